package balance

import (
	"math"
	"time"
)

const (
	defaultDecay   = 10 * time.Second
	failurePenalty = time.Second      // for an endpoint of which nothing else is known
	maxPenalty     = 10 * time.Second // what repeated failures can make of a latency
	maxFailure     = time.Minute      // what one failure can add to the average of adaptive
)

func (s *Set) decay() float64 {
	if s.spec.Decay > 0 {
		return float64(s.spec.Decay)
	}
	return float64(defaultDecay)
}

// Observe takes in the latency of an attempt that was answered. A latency above the average replaces it at once (that
// is the peak), one below pulls it down by the time that has passed since the last sample.
func (m *Meter) Observe(now time.Time, latency time.Duration) {
	m.calls.Add(1)
	m.spent.Add(uint64(max(latency, 0)))
	m.observe(now.UnixNano(), func(float64) float64 { return float64(latency) })
}

// ObserveFailure takes in an attempt that failed. Failing fast must not look fast: it counts as twice the average, at
// least as latency and at most 10 s, or as 1 s where nothing is known yet. For adaptive it counts as limit, which is how
// long the attempt might have taken, at most a minute.
func (m *Meter) ObserveFailure(now time.Time, latency, limit time.Duration) {
	m.calls.Add(1)
	m.spent.Add(uint64(max(latency, min(limit, maxFailure), 0)))
	m.observe(now.UnixNano(), func(average float64) float64 {
		if average == 0 {
			return max(float64(latency), float64(failurePenalty))
		}
		return max(float64(latency), min(2*average, float64(maxPenalty)))
	})
}

// Latency is the decayed average as of the last sample; 0 without samples.
func (m *Meter) Latency() time.Duration {
	if m.seen.Load() == 0 {
		return 0
	}
	return time.Duration(math.Float64frombits(m.ewma.Load()))
}

// work reads how much m has observed. A reading between the two additions of an observation is off by one of many.
func (m *Meter) work() work { return work{calls: m.calls.Load(), spent: m.spent.Load()} }

func (m *Meter) observe(now int64, sample func(average float64) float64) {
	for {
		seen, old := m.seen.Load(), m.ewma.Load()
		average := math.Float64frombits(old)
		next := max(sample(average), 1)
		if seen != 0 && next < average {
			w := math.Exp(-float64(max(now-seen, 0)) / float64(defaultDecay))
			next = average*w + next*(1-w)
		}
		if m.ewma.CompareAndSwap(old, math.Float64bits(next)) {
			if now > seen {
				m.seen.CompareAndSwap(seen, now)
			}
			return
		}
	}
}

// latency is the average as it has faded since the last sample: an endpoint that was slow is tried again some day.
func (m *Meter) latency(now int64, decay float64) float64 {
	seen := m.seen.Load()
	if seen == 0 {
		return 0
	}
	average := math.Float64frombits(m.ewma.Load())
	return max(average*math.Exp(-float64(max(now-seen, 0))/decay), 1)
}
