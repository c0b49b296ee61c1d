package pipeline

import (
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/sidecar-mesh/sidecar/balance"
	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/resilience"
)

// continueWait is how long a client that waits for 100 (Continue) is left alone with a silent server before we send one:
// the server may not know the expectation (RFC 9110 10.1.1).
const continueWait = time.Second

// attempt makes one attempt, up to the head of its final response.
func (x *Exchange) attempt(a resilience.Action) resilience.Outcome {
	if !x.begin(a) {
		return resilience.Outcome{Kind: resilience.NoEndpoint}
	}
	if o, ok := x.open(a); !ok || x.raw {
		return o
	}
	x.send(a.Until)
	return x.await(a.Until)
}

// begin chooses the endpoint of an attempt. It reports whether there is one.
func (x *Exchange) begin(a resilience.Action) bool {
	x.out.Attempts++
	switch a.Why {
	case resilience.WhyRetry:
		x.out.Retries++
	case resilience.WhyStale:
		x.out.Replays++
	}
	if !(a.Fresh && x.ep != nil && x.ep.Usable() && x.enter()) && !x.pick() {
		return false
	}
	x.began = x.Clock
	x.resp.Status, x.ahead, x.call.pending = 0, ahead{}, false
	x.ep.Meter.Active.Add(1)
	return true
}

// open takes or opens a connection for the attempt. It reports whether the request can be sent.
func (x *Exchange) open(a resilience.Action) (resilience.Outcome, bool) {
	up, err := poolOf(x.ep, x.link()).Open(x.Req.Version, a.Fresh || x.raw, x.rt.ConnectTimeout, a.Until)
	if err != nil {
		return x.notOpened(err), false
	}
	x.up = up
	queued, connecting := up.Connected()
	x.out.Queue += queued
	x.out.Connect = connecting
	if x.down.Guard(up) {
		x.Clock = time.Now()
		return x.outcome(resilience.Gone), false
	}
	if x.raw {
		x.Clock = time.Now()
		o := x.outcome(resilience.Answered)
		o.Status = 200
		return o, true
	}
	return resilience.Outcome{}, true
}

// notOpened says what it means that there is no connection.
func (x *Exchange) notOpened(err error) resilience.Outcome {
	x.ep.Meter.Active.Add(-1)
	x.Clock = time.Now()
	x.out.Detail = err.Error()
	return x.outcome(openFailed(err))
}

func openFailed(err error) resilience.Kind {
	var oe *OpenError
	if errors.As(err, &oe) {
		return oe.kind
	}
	return resilience.Refused
}

// outcome describes the attempt as it stands.
func (x *Exchange) outcome(kind resilience.Kind) resilience.Outcome {
	if kind == resilience.Answered && x.resp.Status >= 500 && x.rt.Plan.Retries > 0 {
		x.upload.settle()
	}
	// A body that is still being sent is not at hand: an answer that comes meanwhile stands.
	o := resilience.Outcome{Kind: kind, Replayable: !x.upload.poll() && !x.upload.lost, Untried: x.to.Set.Untried(x.tried)}
	if x.up != nil {
		o.Sent = x.up.Sent()
		o.Reused = x.up.Reused() && !x.up.Received()
	}
	if kind != resilience.Answered || x.rt.Plan.Retries > 0 {
		o.Broken = x.rt.Breaker.State(x.Clock) != resilience.Closed // an open breaker suppresses retries (S-149)
	}
	return o
}

// send sends the request, or as much of it as is at hand and has the rest sent from aside. A failure to send is no
// verdict: the endpoint may have answered before it stopped reading.
func (x *Exchange) send(until time.Time) {
	q := &x.Req
	q.Fields = x.setDeadline(q.Fields, until)
	x.previousAttempts()
	if x.up.SendHead(q) != nil {
		return
	}
	if !q.HasBody || q.Length == 0 {
		_ = x.up.SendEnd(nil, true) // see above
		return
	}
	m, shared := x.up.(Multiplexed)
	x.upload.keep = shared || x.mirrored || x.appMayStandIn() ||
		x.rt.Idempotent(q.Method) && (x.rt.Plan.Retries > 0 || x.up.Reused() || !x.due.IsZero())
	if x.upload.ended || x.down.Body().Whole() {
		if shared {
			m.Hurry(until)
		}
		x.pump(false)
		return
	}
	x.upload.start(x)
}

// setDeadline tells the next hop how much time is left, where the caller told us (S-141: a deadline is only ever lowered).
// Where the route says so it is told in any case, for HTTP: a time limit there that is longer than ours is of no use (S-241).
func (x *Exchange) setDeadline(fields []Field, until time.Time) []Field {
	tell := x.rt.TellDeadline && !x.call.is
	if x.deadline.IsZero() && !tell {
		return fields
	}
	if x.call.is && x.rt.Plan.PerTry == 0 && x.rt.PerTry == nil {
		until = x.deadline // the time limits of a policy are about the head, the caller's about the whole call
	}
	left := time.Until(until)
	for i := range fields {
		switch f := &fields[i]; {
		case f.Drop:
		case f.ID == FieldEnvoyTimeout:
			f.Value, tell = x.milliseconds(left), false
		case f.ID == FieldGRPCTimeout:
			f.Value = formatGRPCTimeout(left)
		}
	}
	if tell {
		fields = append(fields, Field{Name: "X-Envoy-Expected-Rq-Timeout-Ms", Value: x.milliseconds(left), ID: FieldEnvoyTimeout})
	}
	return fields
}

// milliseconds writes a time limit in memory that lives as long as the exchange.
func (x *Exchange) milliseconds(left time.Duration) string {
	at := len(x.text)
	x.text = strconv.AppendInt(x.text, max(1, left.Milliseconds()), 10)
	return str(x.text[at:])
}

// await reads heads until the final one and passes interim ones on.
func (x *Exchange) await(until time.Time) resilience.Outcome {
	expecting := x.Req.Expect
	var sent int64
	patience := max(minPatience, until.Sub(x.began))
	for {
		wait := until
		if expecting {
			if t := time.Now().Add(continueWait); t.Before(until) {
				wait = t
			}
		}
		if !x.due.IsZero() && x.due.Before(wait) {
			wait = x.due
		}
		err := x.up.ReadHead(&x.resp, wait)
		if errors.Is(err, netio.ErrTimeout) && !wait.Before(until) && x.stillSending(&sent, patience) {
			until = time.Now().Add(patience)
			continue
		}
		if errors.Is(err, netio.ErrTimeout) && wait.Before(until) {
			if !x.due.IsZero() {
				if x.action, x.late = x.askBackup(); x.late {
					return resilience.Outcome{}
				}
				x.due = time.Time{}
				continue
			}
			expecting = false
			if x.down.Interim(&Response{Status: 100, NoBody: true}) != nil {
				x.Clock = time.Now()
				return x.outcome(resilience.Gone)
			}
			continue
		}
		if err != nil {
			return x.awaitFailed(err)
		}
		switch status := x.resp.Status; {
		case status >= 200 || status == 101:
			x.Clock = time.Now()
			return x.answered()
		case status == 100:
			if !x.Req.Expect {
				continue // nobody asked for it (RFC 9110 15.2.1)
			}
			expecting = false
		}
		x.due = time.Time{} // something of its answer goes on: there is no way back
		if x.down.Interim(&x.resp) != nil {
			x.Clock = time.Now()
			return x.outcome(resilience.Gone)
		}
	}
}

// answered describes an attempt whose final head has come.
func (x *Exchange) answered() resilience.Outcome {
	x.out.FirstByte = x.Clock.Sub(x.Start)
	if x.resp.Offline != 0 || x.ep.Meter.State.Load()&balance.StateDraining != 0 {
		x.noticed()
	}
	o := x.outcome(resilience.Answered)
	o.Status = x.resp.Status
	switch {
	case x.call.is:
		x.look(&o)
	case o.Status >= 429 && x.rt.Plan.Retries > 0:
		o.Pushback = x.holdOff(&o)
	}
	return o
}

const (
	// minRate is how fast a request body must come, in bytes per second, for time limits to wait for it.
	minRate     = 100
	minPatience = time.Second
)

// stillSending reports whether the request body is still on its way and comes on at a pace worth waiting for. Time limits
// are about the endpoint; a large upload is not its fault. sent is how much had been sent when it was asked before, patience ago.
func (x *Exchange) stillSending(sent *int64, patience time.Duration) bool {
	if !x.upload.poll() {
		return false
	}
	n := x.upload.bytes.Load()
	enough := n-*sent >= int64(minRate*patience.Seconds())
	*sent = n
	return enough
}

// awaitFailed says what it means that no head came.
func (x *Exchange) awaitFailed(err error) resilience.Outcome {
	x.upload.stop(x)
	x.Clock = time.Now()
	kind := resilience.Reset
	var pe *ProtocolError
	switch {
	case errors.Is(err, ErrTooLarge):
		kind = resilience.Unfit
		x.out.Detail = err.Error()
	case errors.Is(err, netio.ErrTimeout):
		kind = resilience.TimedOut
		x.out.Detail = "no response head in time"
	case errors.Is(err, netio.ErrInterrupted) || x.upload.downErr != nil:
		return x.outcome(resilience.Gone)
	case errors.As(err, &pe):
		kind = resilience.Malformed
		x.out.Detail = pe.Text
	case x.pastDeadline(err):
		kind = resilience.TimedOut
		x.out.Detail = "the deadline of the call is over"
	case errors.Is(err, ErrTooBusy):
		kind = resilience.TooBusy
		x.out.Detail = err.Error()
	default:
		x.out.Detail = "closed before a response head: " + err.Error()
	}
	return x.outcome(kind)
}

// abandon gives up the attempt, whose answer is not wanted.
func (x *Exchange) abandon() {
	if x.up == nil {
		return
	}
	x.down.Guard(nil)
	x.upload.stop(x)
	x.close(x.resp.Status != 0 && x.drained())
}

// drained passes over the body of an unwanted answer, if all of it is at hand, so that the connection may serve again.
func (x *Exchange) drained() bool {
	b := x.up.Body()
	if !b.Whole() || x.upload.lost && !x.upload.ended {
		return false
	}
	for {
		if _, err := b.Next(time.Time{}); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// close ends the attempt.
func (x *Exchange) close(clean bool) {
	x.withdraw()
	x.ep.Meter.Active.Add(-1)
	x.up.Close(clean)
	x.up = nil
}

// judge tells the meters of the endpoint how the attempt ended. A pooled connection that was dead before we used it says
// nothing about the endpoint.
func (x *Exchange) judge(next resilience.Action) {
	if next.Why != resilience.WhyNone {
		x.p.Recorder.UpstreamConn(x.to.Service.Name).Decided(next.Why)
		if next.Why == resilience.WhyBody {
			x.p.Recorder.UpstreamConn(x.to.Service.Name).BodyTooLarge()
			if x.out.Detail != "" {
				x.out.Detail += "; "
			}
			x.out.Detail += "not retried: the request body is not at hand (limits.replay_bytes)"
		}
	}
	if next.Why == resilience.WhyStale || x.ended.Kind == resilience.NoEndpoint {
		x.withdraw()
		return
	}
	if x.call.pending && x.ended.Kind == resilience.Answered {
		return // settle will
	}
	x.report(x.ended)
}

// report feeds one outcome to outlier detection and balancer.
func (x *Exchange) report(o resilience.Outcome) {
	ep, svc, now := x.ep, x.to.Service, x.Clock
	o.Took = now.Sub(x.began)
	if x.hurried(x.began, &o) {
		o = resilience.Outcome{Kind: resilience.Gone}
	}
	if o.Kind != resilience.Gone && o.Kind != resilience.Saturated && o.Kind != resilience.Unfit && x.to.Set.Spec().Kind.Learns() {
		if o.Failed() {
			ep.Meter.ObserveFailure(now, now.Sub(x.began), x.rt.Plan.Longest())
		} else {
			ep.Meter.Observe(now, now.Sub(x.began))
		}
	}
	v := svc.Outlier.Record(now, ep.Health, o)
	if v.Act == resilience.Eject {
		ep.Eject()
	}
	if v.Act != resilience.Keep {
		x.p.Observer.Ejected(svc, ep, v)
	}
	if x.entry != 0 {
		c := ep.Tried(now, x.entry, o)
		x.entry = 0
		if c != resilience.Unchanged {
			x.p.Observer.EndpointBreaker(ep, c)
		}
	}
}
