package balance

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Counting which endpoints are usable costs a walk over all of them, so that picks on large sets count only now and
// then: after censusEvery at the latest, and after an eighth as many picks as there are endpoints. Sets up to
// censusExact are counted each time. A count may be that stale; whether the picked endpoint is usable never is.
const (
	censusExact = 64
	censusEvery = 10 * time.Millisecond
)

// due says when to count again.
type due struct {
	at   int64 // Unix nanoseconds of the last count
	left int64 // picks until the next one
}

// now tells whether a count of n endpoints is due, and notes it.
func (d *due) now(now int64, n int) bool {
	d.left--
	if n > censusExact && d.left > 0 && now >= d.at && now-d.at < int64(censusEvery) {
		return false
	}
	d.at, d.left = now, int64(n/8)
	return true
}

// census is the usable share of the near group.
type census struct {
	at    atomic.Int64
	left  atomic.Int64
	share atomic.Uint64 // bits of a float64
	mu    sync.Mutex    // held by the one who counts
}

// nearShare returns the usable part of the near weight, 0 … 1.
func (s *Set) nearShare(now int64) float64 {
	n := len(s.near.idx)
	if n <= censusExact {
		return s.countNear(now)
	}
	c := &s.census
	at := c.at.Load()
	if (c.left.Add(-1) <= 0 || now < at || now-at >= int64(censusEvery)) && c.mu.TryLock() {
		c.take(s.countNear(now))
		c.at.Store(now)
		c.left.Store(int64(n / 8))
		c.mu.Unlock()
	}
	return math.Float64frombits(c.share.Load())
}

func (c *census) take(share float64) { c.share.Store(math.Float64bits(share)) }

func (s *Set) countNear(now int64) float64 {
	usable := uint64(0)
	for _, i := range s.near.idx {
		e := &s.endpoints[i]
		if !e.Meter.barred(^uint32(0), now) {
			usable += uint64(e.Weight)
		}
	}
	return float64(usable) / float64(s.near.weight)
}
