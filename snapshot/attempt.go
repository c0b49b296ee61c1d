package snapshot

import (
	"time"

	"github.com/sidecar-mesh/sidecar/balance"
	"github.com/sidecar-mesh/sidecar/resilience"
)

// The breaker of an endpoint decides, and its bit in the meter is what balancers see of that. The two are changed one after
// the other, so the bit may be behind; whoever asks the breaker puts it right.

// Admit asks the breaker of the endpoint whether an attempt may be made. One that was admitted is reported by Tried, or given
// back by Untried.
func (e *Endpoint) Admit(now time.Time) resilience.Admission {
	v := e.Breaker.Admit(now)
	switch {
	case !v.OK:
		e.open(v.Until)
	case !v.Probe && e.Meter.State.Load()&balance.StateOpen != 0:
		e.Shut(now)
	}
	return v
}

// Tried reports how an attempt ended that Admit let pass; with ticket 0, which none has, it says nothing.
func (e *Endpoint) Tried(now time.Time, t resilience.Ticket, o resilience.Outcome) resilience.BreakerChange {
	if t == 0 {
		return resilience.Unchanged
	}
	c := e.Breaker.Tried(now, t, o)
	switch _, to := c.States(); {
	case c == resilience.ClosedAgain:
		e.Shut(now)
	case to == resilience.Open:
		e.open(e.Breaker.Until())
	case t.Probe():
		e.asks(now)
	}
	return c
}

// Untried gives an admission back: the attempt came to no end.
func (e *Endpoint) Untried(now time.Time, t resilience.Ticket) {
	if t != 0 {
		e.Breaker.Cancel(now, t)
		if t.Probe() {
			e.asks(now)
		}
	}
}

// asks lets balancers pick the endpoint again: a probe is back, and decided nothing.
func (e *Endpoint) asks(now time.Time) { e.Meter.OpenUntil.Store(now.UnixNano()) }

// open keeps calls away until a time.
func (e *Endpoint) open(until time.Time) {
	e.Meter.OpenUntil.Store(until.UnixNano())
	e.Meter.State.Or(balance.StateOpen)
	if e.Breaker.Until().IsZero() { // it closed meanwhile
		e.Meter.State.And(^balance.StateOpen)
	}
}

// Shut lets calls through where the breaker is closed; slow start begins at now.
func (e *Endpoint) Shut(now time.Time) {
	if e.Breaker.Until().IsZero() && e.Meter.State.And(^balance.StateOpen)&balance.StateOpen != 0 {
		e.Meter.Since.Store(now.UnixNano())
	}
}

// guarded gives an endpoint the breaker that the policy of its service asks for: the one it had, where the numbers are the same.
func (s *Service) guarded(was *Endpoint) *resilience.Breaker {
	cfg, off := breakerOf(&s.Policy)
	if off || s.Inbound || s.Policy.Breaker.Per.Value != "endpoint" { // the app is alone: the breaker of the service is its
		return nil
	}
	if was == nil {
		return resilience.NewBreaker(cfg)
	}
	return was.Breaker.As(cfg)
}
