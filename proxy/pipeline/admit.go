package pipeline

import (
	"time"
	"unsafe"

	"github.com/sidecar-mesh/sidecar/resilience"
)

// str is b as a string without a copy.
func str(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// admit asks breaker and limiter, waits where there is a queue, or answers why not.
func (x *Exchange) admit() bool {
	if b := x.rt.Breaker; b != nil {
		v := b.Admit(x.Start)
		x.breakerChanged(v.Change)
		if !v.OK {
			x.retryAfter(v.Until)
			x.answer(resilience.BreakerOpen, 0, "too many calls failed; the next ones are tried when its sleep window is over")
			return false
		}
		x.ticket, x.breaking = v.Ticket, true
	}
	pass := x.rt.Limiter.Acquire()
	if pass.Verdict == resilience.Queue {
		pass = x.queue()
	}
	if pass.Verdict == resilience.Admitted {
		x.limited = true
		return true
	}
	if x.breaking {
		x.breaking = false
		x.breakerChanged(x.rt.Breaker.Record(x.Clock, x.ticket, resilience.CallRejected))
	}
	x.refuseLimit(pass.Limit)
	return false
}

// queue waits for a place of the limiter.
func (x *Exchange) queue() resilience.Pass {
	now := x.Clock
	deadline := x.Start.Add(x.rt.Plan.Timeout)
	if !x.deadline.IsZero() && x.deadline.Before(deadline) {
		deadline = x.deadline
	}
	x.waiter.Wake, x.waiter.Rank = x.wakeUp, x.rt.Rank(&x.Req)
	pass := x.rt.Limiter.Enqueue(now, deadline, &x.waiter)
	if pass.Verdict != resilience.Queue {
		return pass
	}
	if pass.Shed != nil {
		pass.Shed.Wake()
	}
	x.wait(pass.Until)
	refused, granted := x.rt.Limiter.Leave(&x.waiter)
	x.Clock = time.Now()
	x.out.Queue += x.Clock.Sub(now)
	if !granted {
		return refused
	}
	return resilience.Pass{}
}

// wait sleeps until the waiter has left the queue, or until a time.
func (x *Exchange) wait(until time.Time) {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	for {
		select {
		case <-x.wake: // it may be the call of an earlier wait that comes late
			if !x.rt.Limiter.Waits(&x.waiter) {
				return
			}
		case <-t.C:
			return
		}
	}
}

// refuseLimit answers that a limit was reached.
func (x *Exchange) refuseLimit(l resilience.Limit) {
	x.p.Recorder.UpstreamConn(x.svc.Name).LimitRefused(l.String())
	x.retryAfter(time.Now().Add(time.Second))
	text := l.String() + " was reached"
	if l.Reason() == resilience.PriorityShed {
		text = l.String() + ": a call that matters more took its place"
	}
	x.answer(l.Reason(), 0, text)
}

// leave gives back what admit took, when the call is over.
func (x *Exchange) leave() {
	x.Clock, x.left = time.Now(), true
	now := x.Clock
	if x.breaking {
		x.breaking = false
		took := x.out.FirstByte
		if took == 0 {
			took = now.Sub(x.Start)
		}
		if x.hurried(x.Start, &x.ended) {
			x.rt.Breaker.Cancel(now, x.ticket)
		} else {
			x.breakerChanged(x.rt.Breaker.Done(now, x.ticket, x.action, x.ended, took))
		}
	}
	if x.limited {
		x.limited = false
		for w := x.rt.Limiter.Release(now); w != nil; w = x.rt.Limiter.Grant(now) {
			w.Wake()
		}
	}
}

func (x *Exchange) breakerChanged(c resilience.BreakerChange) {
	if c != resilience.Unchanged {
		x.p.Observer.Breaker(x.rt, c)
	}
}
