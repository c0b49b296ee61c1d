package telemetry

import (
	"sync/atomic"
	"time"
)

// service is what is kept per service name. All but the name is made on first use.
type service struct {
	name    string
	latency [2]atomic.Pointer[latency] // by Direction
	up      atomic.Pointer[Upstream]
}

// latency is the histogram and the recent quantiles of one service in one direction.
type latency struct {
	bounds []int64 // nanoseconds, ascending; shared
	counts []atomic.Uint64
	sum    atomic.Uint64 // nanoseconds
	window window
}

func (s *service) latencyOf(dir Direction, bounds []int64) *latency {
	p := &s.latency[dir&1]
	if l := p.Load(); l != nil {
		return l
	}
	p.CompareAndSwap(nil, &latency{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)})
	return p.Load()
}

func (l *latency) observe(end time.Time, d time.Duration) {
	d = max(d, 0)
	i := 0
	for i < len(l.bounds) && int64(d) > l.bounds[i] {
		i++
	}
	l.counts[i].Add(1)
	l.sum.Add(uint64(d))
	l.window.add(end.Unix()/60, d)
}

// Quantiles are latency quantiles of the last complete minute and the one under way, each within 1.6 %.
type Quantiles struct {
	P50, P90, P99, P999, P9999 time.Duration

	Count uint64 // exchanges they are made of; 0: the quantiles mean nothing
}

func (l *latency) quantiles(now time.Time) Quantiles {
	var g Digest
	l.window.sum(now.Unix()/60, &g)
	var out [5]time.Duration
	n := g.quantiles([]float64{0.5, 0.9, 0.99, 0.999, 0.9999}, out[:])
	return Quantiles{P50: out[0], P90: out[1], P99: out[2], P999: out[3], P9999: out[4], Count: n}
}
