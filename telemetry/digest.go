package telemetry

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Digest is a log-linear histogram of durations from 1 µs to 10 min: 32 steps per doubling, so that a quantile is off by
// at most 1.6 %. Adding is one atomic operation; doublings nobody used take no memory; digests of different places can
// be merged. The zero value is empty and ready.
type Digest struct {
	parts [octaves]atomic.Pointer[octave]
}

type octave [steps]atomic.Uint32

const (
	stepBits = 5
	steps    = 1 << stepBits
	lowBit   = 9                  // values below 2^9 ns count as 2^9 ns
	octaves  = 31                 // up to 2^40 ns = 18 min
	topNanos = 1<<(lowBit+31) - 1 // larger values count as this
)

// bucket returns the doubling and the step of v nanoseconds.
func bucket(v int64) (part, step int) {
	v = min(max(v, 1<<lowBit), topNanos)
	top := bits.Len64(uint64(v)) - 1
	return top - lowBit, int(v>>(top-stepBits)) & (steps - 1)
}

// middle returns the value that stands for all of a step: the harmonic mean of its bounds, which errs by the same ratio
// towards both.
func middle(part, step int) time.Duration {
	width := math.Ldexp(1, part+lowBit-stepBits)
	low := float64(steps+step) * width
	high := low + width
	return time.Duration(2 * low * high / (low + high))
}

// Add counts d once.
func (g *Digest) Add(d time.Duration) { g.AddN(d, 1) }

// AddN counts d n times. Counts stop at 2^32-1 per step.
func (g *Digest) AddN(d time.Duration, n uint32) {
	part, step := bucket(int64(d))
	g.addAt(part, step, n)
}

func (g *Digest) addAt(part, step int, n uint32) {
	p := g.parts[part].Load()
	if p == nil {
		g.parts[part].CompareAndSwap(nil, new(octave))
		p = g.parts[part].Load()
	}
	c := &p[step]
	if now := c.Add(n); now < n {
		c.Store(math.MaxUint32)
	}
}

// Merge adds what other counted. Merging is associative and commutative.
func (g *Digest) Merge(other *Digest) {
	for i := range other.parts {
		p := other.parts[i].Load()
		if p == nil {
			continue
		}
		for j := range p {
			if n := p[j].Load(); n > 0 {
				g.addAt(i, j, n)
			}
		}
	}
}

// Reset empties the digest and keeps its memory. What is added meanwhile may be lost.
func (g *Digest) Reset() {
	for i := range g.parts {
		if p := g.parts[i].Load(); p != nil {
			for j := range p {
				p[j].Store(0)
			}
		}
	}
}

// Count returns how many durations were added.
func (g *Digest) Count() uint64 {
	var sum uint64
	g.each(func(_ time.Duration, n uint32) bool { sum += uint64(n); return true })
	return sum
}

// each calls f for every used step, shortest first, until it returns false.
func (g *Digest) each(f func(value time.Duration, n uint32) bool) {
	for i := range g.parts {
		p := g.parts[i].Load()
		if p == nil {
			continue
		}
		for j := range p {
			if n := p[j].Load(); n > 0 && !f(middle(i, j), n) {
				return
			}
		}
	}
}

// Quantile returns the duration that the share q (0 … 1) of all does not exceed; 0 when empty.
func (g *Digest) Quantile(q float64) time.Duration {
	var out [1]time.Duration
	g.quantiles([]float64{q}, out[:])
	return out[0]
}

// quantiles fills out with the quantiles qs, which must ascend, and returns the count.
func (g *Digest) quantiles(qs []float64, out []time.Duration) uint64 {
	total := g.Count()
	if total == 0 {
		return 0
	}
	var sum uint64
	next := 0
	var last time.Duration
	g.each(func(value time.Duration, n uint32) bool {
		sum += uint64(n)
		last = value
		for next < len(qs) && float64(sum) >= math.Ceil(qs[next]*float64(total)) {
			out[next] = value
			next++
		}
		return next < len(qs)
	})
	for ; next < len(qs); next++ { // counts that grew between the two passes cannot reach this; be safe
		out[next] = last
	}
	return total
}

// window is a pair of digests: the minute under way and the one before.
type window struct {
	cur    atomic.Pointer[minute]
	mu     sync.Mutex // held while turning the page
	first  minute
	second minute
}

type minute struct {
	at     atomic.Int64 // Unix minute; 0: never used
	digest Digest
}

// add counts d in the minute at. It never waits: while another turns the page, it counts in the page that is open.
func (w *window) add(at int64, d time.Duration) {
	m := w.cur.Load()
	if m == nil || m.at.Load() != at {
		m = w.turn(at)
	}
	m.digest.Add(d)
}

// turn opens the page of the minute at and returns the page to write to. A page is not turned back for a late
// exchange, but is when the clock was set back.
func (w *window) turn(at int64) *minute {
	if !w.mu.TryLock() {
		if m := w.cur.Load(); m != nil {
			return m
		}
		return &w.first
	}
	defer w.mu.Unlock()
	m := w.cur.Load()
	if m != nil {
		if now := m.at.Load(); at == now || at < now && at > now-3 {
			return m
		}
	}
	next := &w.first
	if m == next {
		next = &w.second
	}
	next.digest.Reset()
	next.at.Store(at)
	w.cur.Store(next)
	return next
}

// sum merges the minute at (which may be under way) and the one before into g.
func (w *window) sum(at int64, g *Digest) {
	for _, m := range []*minute{&w.first, &w.second} {
		if t := m.at.Load(); t == at || t == at-1 {
			g.Merge(&m.digest)
		}
	}
}
