package h2

import (
	"errors"
	"math/rand/v2"
	"time"
)

const (
	calmFirst  = 200 * time.Millisecond // until the next connection, the first time
	calmMost   = 30 * time.Second
	calmSteps  = 4         // doublings of the time between PINGs: up to 16 minutes
	calmForget = time.Hour // without a complaint one doubling is taken back
)

var errCalm = errors.New("the endpoint asked for calm (ENHANCE_YOUR_CALM): it is left alone for a while")

// calm is how a pool obeys an endpoint that found us too busy: each time, PINGs get rarer by half and the next connection
// waits twice as long. The zero calm is undisturbed.
type calm struct {
	steps int
	last  time.Time // of the complaints
	until time.Time // no connection before that
}

// complain notes a complaint. random is in [0, 1).
func (c *calm) complain(now time.Time, random float64) {
	c.forget(now)
	wait := min(calmMost, calmFirst<<c.steps)
	c.until = now.Add(wait/2 + time.Duration(random*float64(wait)))
	c.steps, c.last = min(c.steps+1, 16), now
}

func (c *calm) forget(now time.Time) {
	for c.steps > 0 && now.Sub(c.last) >= calmForget {
		c.steps--
		c.last = c.last.Add(calmForget)
	}
}

// calmDown notes that an endpoint gave up a stream because we are too busy. Streams that it gives up together are one
// complaint.
func (p *Pool) calmDown(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calm.left(now) == 0 {
		p.calm.complain(now, jitter())
	}
}

// left is how long no connection may be opened.
func (c *calm) left(now time.Time) time.Duration {
	if c.until.IsZero() {
		return 0
	}
	return max(0, c.until.Sub(now))
}

// pingAfter is how long a connection with work open may be silent before it is asked whether it lives.
func (c *calm) pingAfter(now time.Time) time.Duration {
	c.forget(now)
	return pingAfter << min(c.steps, calmSteps)
}

func jitter() float64 { return rand.Float64() }
