package simulate

import (
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/balance"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/route"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// call is one exchange. It asks the same questions in the same order as proxy/pipeline: match, admit, attempts, meters.
type call struct {
	c     *sidecar
	t     *Traffic
	id    uint64
	start time.Time

	svc    *snapshot.Service
	rt     *snapshot.Route
	to     *snapshot.Target
	facts  route.Facts
	plan   resilience.Call
	hint   balance.Hint
	tried  []int
	ticket resilience.Ticket

	breaking bool // the breaker has to be told how the call ends
	limited  bool // a place of the limiter is held
	waiter   resilience.Waiter
	running  [resilience.MaxSlots]*attempt
	last     resilience.Outcome // of the last attempt that ended
	attempts int
	asked    bool // breaker and limiter were: switches that watch are told how it ends
	over     bool
}

// attempt is one try at one endpoint.
type attempt struct {
	x     *call
	what  resilience.Action
	ep    *snapshot.Endpoint
	entry resilience.Ticket // of the breaker of ep
	node  *node
	began time.Time
	ended bool
}

// call begins an exchange.
func (c *sidecar) call(t *Traffic, id uint64) {
	x := &call{c: c, t: t, id: id, start: c.sim.now}
	c.sim.record.began(t, c.sim.at())
	svc, ok := c.snap.Outbound.Find(t.host())
	if !ok {
		x.end(resilience.NoRoute, 0)
		return
	}
	self := &c.config.Node
	x.facts = route.Facts{
		Method: t.Method, Host: t.host(), Path: t.Path, Fields: t.fields, Hash: id,
		Caller: route.Caller{Service: self.Service, Labels: self.Labels},
	}
	x.svc, x.rt = svc, svc.Match(&x.facts)
	switch {
	case x.rt.Respond != nil:
		x.end(resilience.None, x.rt.Respond.Status)
		return
	case x.rt.Redirect != nil:
		x.end(resilience.None, x.rt.Redirect.Status)
		return
	}
	if !x.shielded() && x.choose() {
		x.asked = true
		x.admit()
	}
}

// choose settles which endpoints the call may go to, as the grey release and the rules leave them.
func (x *call) choose() bool {
	to := x.rt.Targets[0]
	if x.rt.Split != nil {
		to = x.rt.Targets[x.rt.Split.Pick(x.id)]
	}
	if len(x.c.snap.Greys) > 0 {
		g, _ := x.c.snap.GreyOf(&x.facts)
		to = to.For(g)
	}
	method := x.method()
	x.to = to.Under(method, x.c.sim.now).Ask(&x.facts, method)
	if x.to.Forbidden != nil {
		x.end(resilience.Forbidden, 0)
		return false
	}
	return true
}

// method is what rules call the request: of gRPC the method, else what the route says.
func (x *call) method() string {
	if kind, _ := x.t.fields.Get("content-type"); strings.HasPrefix(kind, "application/grpc") {
		return x.rt.Method(x.t.Path)
	}
	return x.rt.Method("")
}

// admit asks breaker and limiter.
func (x *call) admit() {
	now := x.c.sim.now
	if b := x.rt.Breaker; b != nil {
		v := b.Admit(now)
		x.breakerChanged(v.Change)
		if !v.OK {
			x.end(resilience.BreakerOpen, 0)
			return
		}
		x.ticket, x.breaking = v.Ticket, true
	}
	pass := x.rt.Limiter.Acquire()
	if pass.Verdict == resilience.Queue {
		x.waiter.Wake, x.waiter.Rank = func() { x.c.sim.after(0, x.woken) }, x.rt.Rank(x.facts.Fields)
		pass = x.rt.Limiter.Enqueue(now, x.start.Add(x.rt.Plan.Timeout), &x.waiter)
		if pass.Shed != nil {
			pass.Shed.Wake()
		}
	}
	switch pass.Verdict {
	case resilience.Admitted:
		x.admitted()
	case resilience.Queue:
		x.c.sim.on(pass.Until.Sub(x.c.sim.start), x.expire)
	default:
		x.refuse(pass)
	}
}

// woken goes on with a call that got a place, or lost its own.
func (x *call) woken() {
	if !x.rt.Limiter.Waits(&x.waiter) {
		x.expire()
	}
}

// expire ends the wait of a call.
func (x *call) expire() {
	if x.over || x.limited {
		return
	}
	refused, granted := x.rt.Limiter.Leave(&x.waiter)
	if granted {
		x.admitted()
		return
	}
	x.refuse(refused)
}

func (x *call) refuse(p resilience.Pass) {
	if x.breaking {
		x.breaking = false
		x.breakerChanged(x.rt.Breaker.Record(x.c.sim.now, x.ticket, resilience.CallRejected))
	}
	x.end(p.Limit.Reason(), 0)
}

// admitted starts the attempts.
func (x *call) admitted() {
	x.limited = true
	x.mirror()
	f := resilience.Facts{Idempotent: x.rt.Idempotent(x.t.Method), Rand: x.id}
	if x.c.sim.now.After(x.start) {
		f.Deadline = x.start.Add(x.rt.Plan.Timeout)
	}
	if b := x.rt.Backups; b != nil {
		f.BackupAfter, f.Backups = x.rt.Latency.BackupAfter(x.c.sim.now, b.When), b.Budget
	}
	if auto := x.rt.PerTry; auto != nil {
		f.PerTry = x.rt.Latency.PerTry(x.c.sim.now, *auto)
	}
	x.follow(x.plan.Start(&x.rt.Plan, x.rt.Budget, x.c.sim.now, f))
	if at, may := x.plan.BackupAt(); may && !x.over {
		x.c.sim.on(at.Sub(x.c.sim.start), x.backup)
	}
}

// backup asks for an attempt beside the one in flight.
func (x *call) backup() {
	if x.over {
		return
	}
	a := x.plan.Backup(x.c.sim.now, resilience.Chance{
		AtHand: true, Untried: x.to.Set.Untried(x.tried), Broken: x.rt.Breaker.State(x.c.sim.now) != resilience.Closed,
	})
	x.c.sim.record.decided(x, a.Why)
	if a.Verb == resilience.Try {
		x.follow(a)
	}
}

// follow does what the plan says.
func (x *call) follow(a resilience.Action) {
	for slot := range x.running {
		if a.Cancel>>slot&1 == 1 {
			x.abandon(slot)
		}
	}
	switch a.Verb {
	case resilience.Try:
		x.try(a)
	case resilience.Wait:
		if len(x.live()) == 0 {
			x.c.sim.on(a.Until.Sub(x.c.sim.start), x.tick)
		}
	case resilience.Finish:
		x.finish(a, resilience.None, x.last.Status)
	default:
		x.finish(a, a.Reason, 0)
	}
}

// tick goes on after a wait between two attempts.
func (x *call) tick() {
	if x.over || len(x.live()) > 0 {
		return
	}
	now := x.c.sim.now
	if x.rt.Breaker.State(now) != resilience.Closed {
		if a := x.plan.BreakerOpened(now); a.Verb == resilience.Fail {
			x.follow(a)
			return
		}
	}
	x.follow(x.plan.Tick(now))
}

func (x *call) live() []*attempt {
	var list []*attempt
	for _, a := range x.running {
		if a != nil {
			list = append(list, a)
		}
	}
	return list
}

// try starts an attempt.
func (x *call) try(a resilience.Action) {
	sim := x.c.sim
	if len(x.tried) > 0 && x.to.Spare() != nil && !x.to.Set.Untried(x.tried) { // a grey release falls back to all others
		x.to, x.tried = x.to.Spare().Under(x.method(), x.c.sim.now), x.tried[:0]
	}
	x.c.hint(&x.hint, x.tried)
	if !x.hint.HasHash && x.rt.Hash.On != "" {
		x.hint.Hash, x.hint.HasHash = x.id, true
	}
	i, entry, why := x.pick()
	if !why.Chosen() {
		x.last = resilience.Outcome{Kind: resilience.NoEndpoint}
		x.follow(x.plan.Result(sim.now, a.Slot, x.last))
		return
	}
	if why == balance.PickedPanic {
		sim.record.event(x.c, "panic", x.to.Service.Name, x.to.Endpoints[i].Address, "")
	}
	x.tried = append(x.tried, i)
	x.attempts++
	t := &attempt{x: x, what: a, ep: x.to.Endpoints[i], entry: entry, began: sim.now}
	t.node = sim.byName[t.ep.Address]
	x.running[a.Slot] = t
	t.ep.Meter.Active.Add(1)
	sim.record.tried(x, a.Why)
	t.send()
	sim.on(a.Until.Sub(sim.start), t.late)
}

// pick chooses an endpoint whose breaker lets the attempt pass.
func (x *call) pick() (i int, entry resilience.Ticket, why balance.Why) {
	for {
		i, why = x.to.Set.Pick(&x.hint)
		if !why.Chosen() {
			return i, 0, why
		}
		e := x.to.Endpoints[i]
		v := e.Admit(x.c.sim.now)
		x.c.endpointBreaker(x.to.Service, e, v.Change)
		if v.OK || why == balance.PickedPanic {
			return i, v.Ticket, why
		}
	}
}

// send carries the request to the node and the answer back.
func (t *attempt) send() {
	sim := t.x.c.sim
	half := t.node.class.Network / 2
	switch {
	case t.node.silent():
		sim.after(t.x.rt.ConnectTimeout, func() { t.done(resilience.Outcome{Kind: resilience.ConnectTimed}) })
		return
	case t.node.refuses():
		sim.after(2*half, func() { t.done(resilience.Outcome{Kind: resilience.Refused}) })
		return
	}
	sim.after(half, func() {
		t.node.take(func(status int) {
			sim.after(half, func() { t.done(resilience.Outcome{Kind: resilience.Answered, Status: status, Sent: true}) })
		})
	})
}

// late is the end of the attempt's time.
func (t *attempt) late() { t.done(resilience.Outcome{Kind: resilience.TimedOut, Sent: true}) }

// done reports how the attempt ended, as the pipeline would.
func (t *attempt) done(o resilience.Outcome) {
	if t.ended {
		return
	}
	x, now := t.x, t.x.c.sim.now
	t.ended = true
	x.running[t.what.Slot] = nil
	t.ep.Meter.Active.Add(-1)
	o.Took, o.Replayable, o.Untried = now.Sub(t.began), true, x.to.Set.Untried(x.tried)
	o.Broken = x.rt.Breaker.State(now) != resilience.Closed
	x.last = o
	if l := x.rt.Latency; l != nil && t.primary() && (o.Kind == resilience.Answered && !o.Failed() || o.Kind == resilience.TimedOut) {
		l.Observe(o.Took)
	}
	next := x.plan.Result(now, t.what.Slot, o)
	x.c.sim.record.decided(x, next.Why)
	t.judge(o)
	x.follow(next)
}

// judge feeds balancer and outlier detection.
func (t *attempt) judge(o resilience.Outcome) {
	x, now := t.x, t.x.c.sim.now
	if o.Kind != resilience.Saturated && x.to.Set.Spec().Kind.Learns() {
		if o.Failed() {
			t.ep.Meter.ObserveFailure(now, o.Took, x.rt.Plan.Longest())
		} else {
			t.ep.Meter.Observe(now, o.Took)
		}
	}
	if v := x.to.Service.Outlier.Record(now, t.ep.Health, o); v.Act != resilience.Keep {
		x.c.ejected(x.to.Service, t.ep, v)
	}
	x.c.endpointBreaker(x.to.Service, t.ep, t.ep.Tried(now, t.entry, o))
}

func (t *attempt) primary() bool {
	return t.what.Why != resilience.WhyBackup && t.what.Why != resilience.WhyDual
}

// abandon gives up what runs in a slot. The node goes on with it: it cannot know.
func (x *call) abandon(slot int) {
	t := x.running[slot]
	if t == nil {
		return
	}
	if l := x.rt.Latency; l != nil && t.primary() {
		l.Observe(x.c.sim.now.Sub(t.began))
	}
	t.ended, x.running[slot] = true, nil
	t.ep.Meter.Active.Add(-1)
	t.ep.Untried(x.c.sim.now, t.entry)
}

// finish gives back what admit took.
func (x *call) finish(a resilience.Action, reason resilience.Reason, status int) {
	now := x.c.sim.now
	if x.breaking {
		x.breaking = false
		x.breakerChanged(x.rt.Breaker.Done(now, x.ticket, a, x.last, now.Sub(x.start)))
	}
	x.end(reason, status)
	if x.limited {
		for w := x.rt.Limiter.Release(now); w != nil; w = x.rt.Limiter.Grant(now) {
			w.Wake()
		}
	}
}

func (x *call) breakerChanged(c resilience.BreakerChange) {
	if c != resilience.Unchanged {
		x.c.sim.record.event(x.c, "breaker "+c.String(), x.svc.Name, "", c.Why())
	}
}

// end is the end of the call: switches that watch are told, and what stands in for the failure does.
func (x *call) end(reason resilience.Reason, status int) {
	x.over = true
	x.watch(reason, status)
	if a := x.standFor(reason); a != nil && x.standIn(a, "fallback") {
		return
	}
	if reason == resilience.None && status == 200 {
		x.remember()
	}
	x.c.sim.record.ended(x, reason, status)
}
