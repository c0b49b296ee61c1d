package pipeline

import (
	"errors"
	"io"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/resilience"
)

// relay sends the answer of the attempt on.
func (x *Exchange) relay() {
	if x.resp.Status == 101 {
		x.out.Status = 101
		x.switchProtocols()
		return
	}
	if x.Req.Upgrade != "" && x.Req.Version == HTTP2 && x.resp.Status < 300 {
		// A 2xx would tell a client of extended CONNECT that the tunnel stands (RFC 8441 5).
		x.abandon()
		x.answer(resilience.UpstreamProtocol, 0, "the endpoint did not switch to "+x.Req.Upgrade)
		return
	}
	x.out.Status = x.resp.Status
	err := x.down.Head(&x.resp, x.upload.poll())
	if errors.Is(err, ErrTooLarge) {
		x.abandon()
		x.answer(resilience.UpstreamProtocol, 0, err.Error())
		return
	}
	ok := false
	if err == nil {
		x.remember()
		if ok = x.relayBody(); ok {
			x.remembered()
		}
	} else {
		x.lostCaller(err)
	}
	if x.upload.running {
		if ok && x.resp.Status < 400 && !x.Req.Expect {
			x.upload.waitFor(x.up) // an early answer: the endpoint may still read
		}
		x.upload.stop(x)
	}
	x.down.Guard(nil)
	x.close(ok && x.upload.downErr == nil && x.upload.upErr == nil)
}

// relayBody sends body and trailers, and reports whether all arrived.
func (x *Exchange) relayBody() bool {
	down, body := x.down, x.up.Body()
	if p := x.ahead.piece; p != nil {
		if err := x.pass(p); err != nil {
			return x.lostCaller(err)
		}
	}
	for !x.ahead.done {
		if !body.Buffered() {
			if err := down.Flush(); err != nil {
				return x.lostCaller(err)
			}
			if moved, err := x.relayRaw(body); err != nil {
				return x.cutShort(err)
			} else if moved {
				continue
			}
		}
		p, err := x.nextDown(body)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return x.cutShort(err)
		}
		if err := x.pass(p); err != nil {
			return x.lostCaller(err)
		}
	}
	x.settle()
	trailers := body.Trailers()
	x.noticedBehind(trailers)
	FilterTrailers(trailers)
	if err := down.End(trailers); err != nil {
		return x.lostCaller(err)
	}
	return true
}

// nextDown returns the next piece of the response body. Where both sides can, those that come while it waits are sent on by
// who receives them.
func (x *Exchange) nextDown(body Body) ([]byte, error) {
	if flow, ok := body.(Flow); ok && !x.keeping {
		if _, ok := x.down.(Sink); ok {
			var until time.Time
			if x.call.is {
				until = x.deadline
			}
			return flow.Flow(x.passDown, x.rt.IdleTimeout, until)
		}
	}
	return body.Next(x.bodyUntil(body))
}

// offerDown sends a piece of the response body on at once, if it can.
func (x *Exchange) offerDown(p []byte) (bool, Sender) {
	ok, later := x.down.(Sink).Offer(p)
	if ok {
		x.passed(p)
	}
	return ok, later
}

// passed counts a piece of the response body.
func (x *Exchange) passed(p []byte) {
	x.out.BytesOut += int64(len(p))
	if x.call.is {
		x.call.out.feed(p)
	}
}

// pass sends a piece of the body on.
func (x *Exchange) pass(p []byte) error {
	x.passed(p)
	if x.keeping {
		x.keep(p)
	}
	return x.down.Write(p)
}

// relayRaw lets the kernel move the rest of a large body.
func (x *Exchange) relayRaw(body Body) (bool, error) {
	src, n := body.Raw()
	if src == nil || n < rawFrom || x.keeping {
		return false, nil
	}
	dst := x.down.RawWriter(n)
	if dst == nil {
		return false, nil
	}
	var act netio.Activity
	act.Start(time.Now(), x.rt.IdleTimeout)
	var count atomic.Int64
	moved, err := netio.Copy(dst, src, n, &act, &count)
	body.Advance(moved)
	x.out.BytesOut += moved
	return true, err
}

// lostCaller notes that the response could not be delivered.
func (x *Exchange) lostCaller(err error) bool {
	x.out.Reason, x.out.Detail = resilience.CallerGone, err.Error()
	x.down.Abort()
	return false
}

// cutShort passes on that the response broke off in its middle.
func (x *Exchange) cutShort(err error) bool {
	var we *netio.WriteError
	if errors.As(err, &we) {
		return x.lostCaller(we.Err)
	}
	o := resilience.Outcome{Kind: resilience.Reset, Sent: true}
	var pe *ProtocolError
	switch {
	case errors.Is(err, netio.ErrInterrupted):
		return x.lostCaller(err)
	case x.pastDeadline(err):
		o.Kind = resilience.TimedOut
		x.out.Reason, x.out.Detail = resilience.Timeout, "the deadline of the call is over"
	case errors.Is(err, netio.ErrTimeout):
		o.Kind = resilience.TimedOut
		x.out.Reason, x.out.Detail = resilience.Timeout, "no byte of the response body within idle_timeout"
	case errors.As(err, &pe):
		o.Kind = resilience.Malformed
		x.out.Reason, x.out.Detail = resilience.UpstreamProtocol, "in the response body: "+pe.Text
	case errors.Is(err, ErrTooBusy):
		o.Kind = resilience.TooBusy
		x.out.Reason, x.out.Detail = resilience.Overloaded, "in the response body: "+err.Error()
	default:
		x.out.Reason, x.out.Detail = resilience.UpstreamReset, "in the response body: "+err.Error()
	}
	x.ended = o
	x.Clock = time.Now()
	x.report(o)
	if x.grpcTrailers(x.out.Reason, x.out.Detail) {
		return false
	}
	_ = x.down.Flush() // what did arrive, before the cut
	x.down.Abort()
	return false
}

// switchProtocols sends the 101 on and becomes a tunnel.
func (x *Exchange) switchProtocols() {
	x.out.Upgraded = true
	x.upload.wait() // the tunnel begins behind the request
	err := x.down.Head(&x.resp, false)
	if err == nil {
		err = x.down.Flush()
	}
	if err != nil {
		x.lostCaller(err)
		x.down.Guard(nil)
		x.close(false)
		return
	}
	x.tunnel()
}

// tunnel moves bytes both ways until the end; the exchange's timers no longer apply, its idle bound does.
func (x *Exchange) tunnel() {
	// Both sides are read now, so that an end of either is noticed in its place, behind the bytes before it.
	x.down.Guard(nil)
	up, fromUp := x.up.Tunnel()
	down, fromDown := x.down.Tunnel()
	if up != nil && down != nil {
		x.tunnelSockets(down, up, fromDown, fromUp)
	} else {
		x.tunnelStreams(up)
	}
	x.close(false)
}

// tunnelSockets is a tunnel between two connections that have nothing else to carry.
func (x *Exchange) tunnelSockets(down, up *netio.Conn, fromDown, fromUp []byte) {
	_, err := up.Write(fromDown, x.rt.IdleTimeout)
	if err == nil {
		_, err = down.Write(fromUp, x.rt.IdleTimeout)
	}
	if err != nil {
		x.out.Reason, x.out.Detail = resilience.UpstreamReset, err.Error()
		up.Reset()
		down.Reset()
		return
	}
	e := x.converse(down, up)
	x.out.BytesIn, x.out.BytesOut = e.AToB+int64(len(fromDown)), e.BToA+int64(len(fromUp))
	x.tunnelEnded(e.Err)
	if e.AtB && (errors.Is(e.Err, syscall.ECONNRESET) || errors.Is(e.Err, syscall.EPIPE)) {
		x.out.Reason = resilience.UpstreamReset
	}
}

func (x *Exchange) tunnelEnded(err error) {
	switch {
	case err == nil:
	case errors.Is(err, netio.ErrTimeout):
		x.out.Reason, x.out.Detail = resilience.Timeout, "no byte in either direction within idle_timeout"
	default:
		x.out.Detail = err.Error()
	}
}

// tunnelStreams is a tunnel of which at least one side is a stream among others. to is the endpoint's socket, where the
// tunnel has that for itself: it is reset when the client's stream is (RFC 9113 8.5).
func (x *Exchange) tunnelStreams(to *netio.Conn) {
	var act netio.Activity
	act.Start(time.Now(), x.rt.IdleTimeout)
	ended := make(chan error, 1)
	go func() {
		n, err := carry(x.down.Body(), x.up.SendBody, x.up.Flush, &act)
		x.out.BytesIn = n
		if err == nil {
			err = x.up.SendEnd(nil, false)
		} else {
			x.up.Interrupt()
			if to != nil {
				to.Reset()
			}
		}
		ended <- err
	}()
	n, err := carry(x.up.Body(), x.down.Write, x.down.Flush, &act)
	if err == nil {
		err = x.down.End(nil)
	} else {
		x.down.Abort()
		x.down.InterruptBody()
	}
	if other := <-ended; err == nil {
		err = other
	}
	x.out.BytesOut = n
	x.tunnelEnded(err)
}

// carry sends what comes in a body on, piece by piece, until its end.
func carry(from Body, write func([]byte) error, flush func() error, act *netio.Activity) (int64, error) {
	var moved int64
	for {
		if !from.Buffered() {
			if err := flush(); err != nil {
				return moved, err
			}
		}
		p, err := from.Next(act.Over())
		switch {
		case errors.Is(err, io.EOF):
			return moved, flush()
		case errors.Is(err, netio.ErrTimeout) && time.Now().Before(act.Over()):
			continue // something moved the other way meanwhile
		case err != nil:
			return moved, err
		}
		moved += int64(len(p))
		act.Touch(time.Now())
		if err := write(p); err != nil {
			return moved, err
		}
	}
}

// reportEvery is how often an exchange that goes on for long says in the log how it stands.
const reportEvery = time.Minute

// converse relays, and has a line in the log every now and then: a tunnel may live for days.
func (x *Exchange) converse(down, up *netio.Conn) netio.Ended {
	var flow netio.Flow
	act := netio.Activity{Every: reportEvery, Report: func() {
		x.out.BytesIn, x.out.BytesOut = flow.AToB.Load(), flow.BToA.Load()
		x.out.Ongoing = true
		x.recordAt(time.Now())
		x.out.Ongoing = false
	}}
	act.Start(time.Now(), x.rt.IdleTimeout)
	return netio.Relay(down, up, &act, &flow)
}
