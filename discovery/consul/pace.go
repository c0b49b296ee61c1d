package consul

import "time"

// tempo bounds the rate of queries. The zero tempo is none.
type tempo struct {
	refill   time.Duration // a watch asks burst times at once, then once in this time, whatever the answers are
	min, max time.Duration // pauses after failures: the first one, doubled each time up to the last
}

// usual is the tempo of a watch. A change that comes in a pause is told by the next query.
func usual() tempo {
	return tempo{refill: time.Second, min: 500 * time.Millisecond, max: 30 * time.Second}
}

const (
	burst    = 2
	maxAfter = 5 * time.Minute // the longest pause that a server may ask for
)

// pace says when a watch may ask next. Time and randomness are arguments.
type pace struct {
	tempo
	free  time.Time // when the bucket is full again
	until time.Time // not before, after a failure
	fails int
}

// next takes a turn at now and returns how long to wait for it.
func (p *pace) next(now time.Time) time.Duration {
	if p.free.Before(now) {
		p.free = now
	}
	turn := p.free.Add(-(burst - 1) * p.refill)
	p.free = p.free.Add(p.refill)
	if turn.Before(p.until) {
		turn = p.until
	}
	return max(turn.Sub(now), 0)
}

// failed notes a failure. The server may have asked for a pause; random is in [0, 1).
func (p *pace) failed(now time.Time, asked time.Duration, random float64) {
	pause := p.backoff(p.fails, random)
	p.fails++
	p.until = now.Add(max(pause, min(asked, maxAfter)))
}

// succeeded ends a row of failures.
func (p *pace) succeeded() { p.fails, p.until = 0, time.Time{} }

// backoff is the pause after so many failures before this one: doubled each time, half of it at random.
func (t tempo) backoff(fails int, random float64) time.Duration {
	d := t.max
	if fails < 6 {
		d = min(t.min<<fails, t.max)
	}
	return d/2 + time.Duration(random*float64(d/2))
}

// cursor is the place in a registry's history that a blocking query continues from.
type cursor struct{ index uint64 }

// answered takes the index of an answer. One that went backwards (a restored snapshot, a new server) or was never given
// begins anew: the next query is answered at once. The answer itself counts all the same. An index that does not come
// back smaller than it was waits for more than it; 0 would make the next query return at once for ever, so it counts as 1.
func (c *cursor) answered(index uint64) {
	switch {
	case index < c.index:
		c.index = 0
	default:
		c.index = max(index, 1)
	}
}
