package pipeline

import (
	"errors"
	"io"
	"slices"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

// racing is what an exchange keeps for attempts that overlap; most never need it.
type racing struct {
	lanes []*lane
	over  chan *lane
	crowd crowd
}

func newRacing() *racing {
	return &racing{
		over:  make(chan *lane, resilience.MaxSlots),
		crowd: crowd{gone: make(chan struct{}, 1)},
	}
}

// race makes an attempt beside which another may begin, and comes back when at most the winner is left: with Finish the
// exchange stands as if that had been its only attempt. The first attempt runs inline, as every other does, and only one
// that takes long moves to a goroutine: so that waiting for a backup that does not come costs nothing.
func (x *Exchange) race(a resilience.Action) resilience.Action {
	if !x.begin(a) {
		return x.conclude(a, resilience.Outcome{Kind: resilience.NoEndpoint})
	}
	if x.racing == nil {
		x.racing = newRacing()
	}
	dual := x.rt.Plan.DualSend
	if dual || x.down.Body().Whole() {
		x.gather()
	}
	if x.atHand() && (dual || !x.prompt()) {
		x.launch(a)
		return x.referee()
	}
	if o, ok := x.open(a); !ok {
		return x.conclude(a, o)
	}
	x.due, _ = x.plan.BackupAt()
	x.send(a.Until)
	o := x.await(a.Until)
	x.due = time.Time{}
	if !x.late {
		return x.conclude(a, o)
	}
	x.late = false
	x.enlist(a)
	x.second(x.action)
	return x.referee()
}

// atHand reports whether the whole request can be sent once more.
func (x *Exchange) atHand() bool {
	u := &x.upload
	return !x.Req.HasBody || x.Req.Length == 0 || !u.poll() && u.ended && !u.lost
}

// prompt reports whether the endpoint has a connection for us.
func (x *Exchange) prompt() bool {
	p, ok := poolOf(x.ep, x.link()).(Prompt)
	return !ok || p.Ready(x.Req.Version)
}

// gatherTime bounds the wait for a body that two attempts are to send.
const gatherTime = time.Second

// gather reads the request body, as far as it may be kept. What is wrong with it is found again by who reads on.
func (x *Exchange) gather() {
	u := &x.upload
	if !x.Req.HasBody || x.Req.Length == 0 || u.ended || u.lost {
		return
	}
	u.keep = true
	body, limit := x.down.Body(), int(x.snap.Mesh.Config.Limits.ReplayBytes)
	var until time.Time
	for len(u.kept) <= limit {
		if until.IsZero() && !body.Buffered() {
			until = time.Now().Add(gatherTime)
		}
		p, err := body.Next(until)
		if err != nil {
			if errors.Is(err, io.EOF) {
				x.bodyEnded(body)
			}
			return
		}
		u.kept = append(u.kept, p...)
		x.count(p)
	}
}

// askBackup asks the plan for the attempt beside the one in flight, whose time has come.
func (x *Exchange) askBackup() (resilience.Action, bool) {
	x.Clock = time.Now()
	b := x.plan.Backup(x.Clock, resilience.Chance{
		AtHand: x.atHand(), Untried: x.to.Set.Untried(x.tried), Broken: x.rt.Breaker.State(x.Clock) != resilience.Closed,
	})
	if b.Why != resilience.WhyNone {
		x.p.Recorder.UpstreamConn(x.to.Service.Name).Decided(b.Why)
	}
	return b, b.Verb == resilience.Try
}

// launch has the attempt that begin has prepared made on a lane.
func (x *Exchange) launch(a resilience.Action) {
	l := x.lane(a)
	l.connect, l.link = x.rt.ConnectTimeout, x.link()
	x.previousAttempts()
	l.fields = append(l.fields[:0], x.Req.Fields...)
	l.fields = x.setDeadline(l.fields, a.Until)
	l.req = x.Req
	l.req.Fields = l.fields
	l.body, l.trailer = x.upload.kept, x.upload.trailer
	go l.run()
}

// enlist moves the attempt in progress, of which everything was sent, to a lane.
func (x *Exchange) enlist(a resilience.Action) {
	l := x.lane(a)
	l.up, l.settled, l.opened = x.up, true, true
	x.up = nil
	go l.run()
}

func (x *Exchange) lane(a resilience.Action) *lane {
	l := newLane()
	l.what, l.ep, l.entry, l.began, l.over = a, x.ep, x.entry, x.began, x.racing.over
	x.entry = 0
	x.racing.lanes = append(x.racing.lanes, l)
	return l
}

// second begins the attempt beside the one in flight.
func (x *Exchange) second(b resilience.Action) {
	x.out.Backups++
	if x.begin(b) {
		x.launch(b)
		return
	}
	x.plan.Result(x.Clock, b.Slot, resilience.Outcome{Kind: resilience.NoEndpoint})
}

// referee waits for the lanes until the plan says how it goes on, or none is left.
func (x *Exchange) referee() resilience.Action {
	r := x.racing
	var timer <-chan time.Time
	for len(r.lanes) > 0 {
		if x.down.Guard(&r.crowd) {
			r.crowd.Interrupt()
		}
		if at, may := x.plan.BackupAt(); !may {
			timer = nil
		} else if wait := time.Until(at); wait > 0 {
			if timer == nil {
				timer = time.After(wait)
			}
		} else if b, yes := x.askBackup(); yes {
			x.second(b)
		}
		next := resilience.Action{}
		select {
		case <-timer:
			timer = nil
			continue
		case <-r.crowd.gone:
			x.Clock = time.Now()
			x.ended = resilience.Outcome{Kind: resilience.Gone}
			next = x.plan.CallerGone(x.Clock)
		case l := <-r.over:
			next = x.finished(l)
		}
		x.action = next
		if next.Verb != resilience.Wait {
			x.disband(next.Verb == resilience.Finish)
			return next
		}
	}
	x.disband(false)
	return x.action
}

// finished takes the result of a lane over.
func (x *Exchange) finished(l *lane) resilience.Action {
	x.racing.lanes = slices.DeleteFunc(x.racing.lanes, func(other *lane) bool { return other == l })
	x.Clock = time.Now()
	x.up, x.ep, x.entry, x.began = l.up, l.ep, l.entry, l.began
	x.resp, l.resp = l.resp, x.resp
	x.ahead, x.call.pending = ahead{}, false
	a, err, opened := l.what, l.err, l.opened
	l.release()
	var o resilience.Outcome
	switch status := x.resp.Status; {
	case !opened:
		o = x.notOpened(err)
	case err != nil:
		o = x.awaitFailed(err)
	case status < 200 && status != 101:
		return x.commit(a)
	default:
		queued, connecting := x.up.Connected()
		x.out.Queue += queued
		x.out.Connect = connecting
		o = x.answered()
	}
	return x.conclude(a, o)
}

// commit passes an interim response on: there is no way back from that attempt then, and it goes on alone.
func (x *Exchange) commit(a resilience.Action) resilience.Action {
	x.plan.Commit(x.Clock, a.Slot)
	x.disband(true)
	if x.down.Interim(&x.resp) != nil {
		return x.conclude(a, x.outcome(resilience.Gone))
	}
	return x.conclude(a, x.await(a.Until))
}

// disband calls off what still runs. wanted says that the exchange has an attempt to go on with.
func (x *Exchange) disband(wanted bool) {
	r := x.racing
	ending := 0
	for _, l := range r.lanes {
		if primary(l.what) {
			x.rt.Latency.Observe(x.Clock.Sub(l.began))
		}
		if !l.callOff() {
			ending++
		}
	}
	clear(r.lanes)
	r.lanes = r.lanes[:0]
	for range ending {
		l := <-r.over
		if l.up != nil {
			l.up.Close(false)
		}
		l.leave()
	}
	if wanted {
		x.down.Guard(x.up) // one who has left is noticed by what is sent to it
	} else {
		x.down.Guard(nil)
	}
	select {
	case <-r.crowd.gone:
	default:
	}
}
