// Package pipeline is one exchange from its head to its record, the same for every protocol and direction: match, admit,
// call (pick, attempt), relay, record. Engines offer the downstream half as a Stream and the upstream half as a
// Pool; what to do is decided by the pure packages, and done here. It owns exchanges, which it pools, and no
// connection. Tests: scripts of fake streams and transports under testing/synctest, and allocation tests; its engines
// test it over real codecs.
package pipeline

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/balance"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/route"
	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// Observer is told changes of verdict. It must not block.
type Observer interface {
	// Ejected and Spared tell what outlier detection decided of an endpoint: kept out, or only not for want of others.
	Ejected(s *snapshot.Service, e *snapshot.Endpoint, v resilience.EjectVerdict)
	// Breaker tells a change of a route's breaker.
	Breaker(r *snapshot.Route, c resilience.BreakerChange)
	// Switched tells what the rule of a degradation switch has done.
	Switched(w *snapshot.Switch, c resilience.SwitchChange)
	// EndpointBreaker tells that the breaker of an endpoint changed; its state says so already.
	EndpointBreaker(e *snapshot.Endpoint, c resilience.BreakerChange)
	// Offline tells that an endpoint said that it leaves; its state says so already. It is told for each such answer.
	Offline(e *snapshot.Endpoint, until time.Time)
	// Online tells that an endpoint that is out for that reason answered an attempt begun at that time without saying so.
	Online(e *snapshot.Endpoint, began time.Time)
}

// Pipeline serves the exchanges of one direction.
type Pipeline struct {
	Store     *snapshot.Store
	Direction telemetry.Direction
	Recorder  *telemetry.Recorder
	Observer  Observer
	// Service is the one service that all requests are for, whatever their host says; empty: the host decides.
	Service string
}

// Peer is who sent a request.
type Peer struct {
	Addr netip.Addr
	Text string // the address without its port
	Full string // with it
}

// PeerOf describes a peer by the address of its socket; one behind a unix socket has none.
func PeerOf(a net.Addr) Peer {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return Peer{Text: "local", Full: "local"}
	}
	addr := t.AddrPort().Addr().Unmap()
	return Peer{Addr: addr, Text: addr.String(), Full: netip.AddrPortFrom(addr, uint16(t.Port)).String()}
}

// ProtocolError is a message that breaks its protocol or a limit.
type ProtocolError struct {
	Status int    // what a client is told when its request is at fault
	Text   string // what is wrong
}

// ErrTooLarge says that a head is larger than the other side takes. Nothing of it was sent.
var ErrTooLarge = errors.New("the head is larger than the other side takes (SETTINGS_MAX_HEADER_LIST_SIZE)")

// Error returns the text.
func (e *ProtocolError) Error() string { return e.Text }

// Exchange is one request and what becomes of it. It belongs to the goroutine that serves it; engines fill Req and Start.
type Exchange struct {
	state

	// What is kept from one exchange to the next, for its memory.
	pathBuf []byte
	text    []byte // of added fields and local answers
	tried   []int  // indexes in to
	upload  upload
	web     web
	wake    chan struct{}
	wakeUp  func()
	aside   func() // sends the request body beside the wait for a response
	// passUp and passDown are offerUp and offerDown, made once.
	passUp, passDown Pass
	racing           *racing
	key              []byte // of an answer that is remembered
	kept             []byte // of its body
}

// state is what an exchange forgets when it is over.
type state struct {
	Req   Request
	Start time.Time
	// Clock is when something last happened to the exchange: reading the clock costs as much as much of the rest, so it
	// is read at the start, when a head arrives, at the end, and after every wait.
	Clock time.Time

	peer Peer
	p    *Pipeline
	down Stream
	snap *snapshot.Snapshot
	svc  *snapshot.Service
	rt   *snapshot.Route
	to   *snapshot.Target

	facts     route.Facts
	idHash    uint64
	requestID string
	deadline  time.Time // of the caller, zero if none
	raw       bool      // a TCP connection: an attempt is over when it is connected

	plan     resilience.Call
	action   resilience.Action
	ticket   resilience.Ticket
	breaking bool // the breaker has to be told how the call ends
	limited  bool // a place of the limiter is held
	left     bool // leave was called
	hint     balance.Hint
	waiter   resilience.Waiter

	up    Upstream
	ep    *snapshot.Endpoint
	entry resilience.Ticket // of the breaker of ep; 0: it is told nothing of the attempt
	began time.Time         // of the last attempt
	ended resilience.Outcome
	resp  Response
	call  call      // of gRPC
	ahead ahead     // of the response body
	due   time.Time // when to ask for an attempt beside the one in progress; zero: never
	late  bool      // that time has come, and action is such an attempt
	// standing says that the answer stands in for the service's: nothing else does for it. keeping says that the body on its
	// way is kept, so that it may stand in for a later one.
	standing, keeping bool
	mirrored          bool                    // a copy of the request is to be sent
	good              *resilience.StaleAnswer // the last good answer, where that stands in

	retryIn int64 // seconds, of an answer of ours
	out     telemetry.Outcome
}

var exchanges = sync.Pool{New: func() any {
	x := &Exchange{wake: make(chan struct{}, 1), text: make([]byte, 0, 256), pathBuf: make([]byte, 0, 256)}
	x.Req.Fields = make([]Field, 0, 32)
	x.resp.Fields = make([]Field, 0, 32)
	x.tried = make([]int, 0, 8)
	x.upload.done = make(chan struct{}, 1)
	x.wakeUp = func() {
		select {
		case x.wake <- struct{}{}:
		default: // it has a call to wake up to
		}
	}
	x.aside = func() {
		x.pump(true)
		x.upload.done <- struct{}{}
	}
	x.passUp, x.passDown = x.offerUp, x.offerDown
	return x
}}

// Begin returns an exchange with a peer, to be released when it is over.
func Begin(peer Peer) *Exchange {
	x := exchanges.Get().(*Exchange)
	x.peer = peer
	return x
}

// Release gives the exchange back; nothing of it may be used any more.
func (x *Exchange) Release() {
	fields, respFields := x.Req.Fields, x.resp.Fields
	clear(fields)
	clear(respFields)
	x.state = state{}
	x.Req.Fields, x.resp.Fields = fields[:0], respFields[:0]
	x.pathBuf, x.text, x.tried = x.pathBuf[:0], x.text[:0], x.tried[:0]
	x.upload.reset()
	if x.web.x != nil {
		x.web.reset()
	}
	exchanges.Put(x)
}

// Serve serves one request whose head was read.
func (p *Pipeline) Serve(x *Exchange, down Stream) {
	x.p, x.down, x.snap = p, down, p.Store.Load()
	x.Clock = x.Start
	x.serve()
	x.record()
}

// serve is the path of a request.
func (x *Exchange) serve() {
	if !x.match() {
		return
	}
	switch {
	case x.Req.Method == "CONNECT":
		x.connect()
		return
	case x.rt.Respond != nil || x.rt.Redirect != nil:
		x.respond()
		return
	}
	if x.shielded() || !x.prepare() {
		return
	}
	if x.admit() {
		x.mirror()
		if x.try() && !x.replaceAnswer() {
			x.relay()
		}
		x.sendCopy()
		x.leave()
	}
	x.watch()
}

// try runs the call: it makes attempts until one has an answer to relay, or answers locally.
func (x *Exchange) try() bool {
	f := resilience.Facts{
		Idempotent: x.rt.Idempotent(x.Req.Method), HasBody: x.Req.HasBody && x.Req.Length != 0, Deadline: x.deadline, Rand: x.idHash,
		Alone: x.raw || x.Req.Upgrade != "" || x.Req.Expect,
	}
	if x.out.Queue > 0 && !x.standing { // the time of a call runs while it waits for its turn
		if end := x.Start.Add(x.rt.Plan.Timeout); f.Deadline.IsZero() || end.Before(f.Deadline) {
			f.Deadline = end
		}
	}
	if b := x.rt.Backups; b != nil {
		f.BackupAfter, f.Backups = x.rt.Latency.BackupAfter(x.Clock, b.When), b.Budget
	}
	if auto := x.rt.PerTry; auto != nil {
		f.PerTry = x.rt.Latency.PerTry(x.Clock, *auto)
	}
	a := x.plan.Start(&x.rt.Plan, x.rt.Budget, x.Clock, f)
	for {
		x.action = a
		switch a.Verb {
		case resilience.Try:
			if x.plan.Overlaps() {
				a = x.race(a)
			} else {
				a = x.conclude(a, x.attempt(a))
			}
		case resilience.Wait:
			a = x.pause(a.Until)
		case resilience.Finish:
			return true
		default:
			x.fail(a)
			return false
		}
	}
}

// conclude tells plan and meters how an attempt ended, and gives it up where its answer is not wanted.
func (x *Exchange) conclude(a resilience.Action, o resilience.Outcome) resilience.Action {
	x.ended = o
	if l := x.rt.Latency; l != nil && primary(a) && (o.Kind == resilience.Answered && !o.Failed() || o.Kind == resilience.TimedOut) && !x.hurried(x.began, &o) {
		l.Observe(x.Clock.Sub(x.began))
	}
	next := x.plan.Result(x.Clock, a.Slot, o)
	x.judge(next)
	if next.Verb == resilience.Finish {
		x.out.BackupWon = !primary(a)
	} else {
		x.abandon()
	}
	return next
}

// primary reports whether an attempt is not one beside another.
func primary(a resilience.Action) bool {
	return a.Why != resilience.WhyBackup && a.Why != resilience.WhyDual
}

// pause waits; a caller who has left meanwhile ends the call, a breaker that opened keeps it from trying again.
func (x *Exchange) pause(until time.Time) resilience.Action {
	gone := x.sleep(until)
	x.Clock = time.Now()
	switch {
	case gone:
		return x.plan.CallerGone(x.Clock)
	case x.rt.Breaker.State(x.Clock) != resilience.Closed:
		if a := x.plan.BreakerOpened(x.Clock); a.Verb == resilience.Fail {
			return a
		}
	}
	return x.plan.Tick(x.Clock)
}

// sleep waits until a time, or until the caller leaves, and reports whether it has.
func (x *Exchange) sleep(until time.Time) bool {
	c := &crowd{gone: make(chan struct{}, 1)}
	if x.down.Guard(c) {
		return true
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.gone:
	}
	return x.down.Guard(nil)
}

func random() uint64 { return rand.Uint64() }
