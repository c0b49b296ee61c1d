package resilience

import "time"

// A Breaker of one endpoint is told of attempts, where that of a service is told of calls (S-150).

// Tried reports how an admitted attempt ended: it is Record or Cancel, as the outcome says something about the endpoint or not.
func (b *Breaker) Tried(now time.Time, t Ticket, o Outcome) BreakerChange {
	if b == nil {
		return Unchanged
	}
	switch {
	case o.Failed() && (o.Kind == TimedOut || o.Kind == ConnectTimed):
		return b.Record(now, t, CallTimedOut)
	case o.Failed():
		return b.Record(now, t, CallFailed)
	case o.Kind == Saturated: // our own bound on connections
		return b.Record(now, t, CallRejected)
	case o.Kind == Answered:
		return b.Record(now, t, b.paced(CallOK, o.Took))
	}
	b.Cancel(now, t)
	return Unchanged
}

// Probe reports whether the admission was one that decides: those are what keeps others out while they are on their way.
func (t Ticket) Probe() bool { return stateOf(uint32(t)) == HalfOpen }

// Until returns when an open breaker lets a probe through, and when a half-open one no longer waits for those on their way;
// zero if it is closed.
func (b *Breaker) Until() time.Time {
	if b == nil {
		return time.Time{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if stateOf(b.word.Load()) == Closed {
		return time.Time{}
	}
	return b.until
}
