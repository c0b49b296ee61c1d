package telemetry

import (
	"sync/atomic"
	"time"
)

// What is done about clients that abuse HTTP/2.
const (
	AbuseEnded  = "ended"  // a connection was ended for an error or a flood of its client
	AbuseSlowed = "slowed" // a connection was not read for a moment
	AbuseHeld   = "held"   // a new connection waited before it was served
)

// abuse counts it, by direction.
type abuse struct {
	counts [2]counts
	told   [2]atomic.Int64 // Unix nanoseconds of the last event
}

// Abuse counts something done about the clients at an address. The first time one is slowed or held and then once a minute at
// most is an event.
func (r *Recorder) Abuse(dir Direction, what, address string) {
	a := &r.parts.abuse
	a.counts[dir].add(what)
	if what == AbuseEnded {
		return
	}
	now, told := r.now().UnixNano(), a.told[dir].Load()
	if (told == 0 || now-told > int64(time.Minute)) && a.told[dir].CompareAndSwap(told, now) {
		r.events.Add(Event{
			Kind: EventAbuse, To: what, By: address,
			Detail: dir.String() + " clients of this address abuse HTTP/2: what they do beyond their budget is slowed down, others are served as before",
		})
	}
}

func (a *abuse) each(f func(dir Direction, what string, n uint64)) {
	for i := range a.counts {
		a.counts[i].each(func(what string, n uint64) { f(Direction(i), what, n) })
	}
}
