package pipeline

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// upload is the request body on its way. While a goroutine sends it (running), what stands below the gap belongs to that;
// poll, stop and wait take it back.
type upload struct {
	done    chan struct{} // holds a token when the goroutine is over
	running bool
	bytes   atomic.Int64 // read so far

	keep    bool    // bytes are kept in case the plan needs them again
	kept    []byte  // all that was read so far, unless lost
	lost    bool    // some bytes were not kept
	ended   bool    // the body was read to its end
	trailer []Field // behind it
	downErr error   // the client's fault: it left, stalled or sent nonsense
	upErr   error   // the endpoint took no more
}

// reset makes ready for another body. The memory for what is kept stays, unless it is much.
func (u *upload) reset() {
	kept := u.kept[:0]
	if cap(kept) > 64<<10 {
		kept = nil
	}
	u.keep, u.kept, u.lost, u.ended, u.trailer = false, kept, false, false, nil
	u.downErr, u.upErr = nil, nil
	u.bytes.Store(0)
}

// start sends the body from a goroutine of its own, so that the response may come meanwhile.
func (u *upload) start(x *Exchange) {
	u.running = true
	go x.aside()
}

// poll reports whether the goroutine still runs.
func (u *upload) poll() bool {
	if u.running {
		select {
		case <-u.done:
			u.running = false
		default:
		}
	}
	return u.running
}

// lastStep is how long an upload whose answer is there may take to say that it has sent all.
const lastStep = 20 * time.Millisecond

// settle lets a goroutine that has sent everything come to its end: the answer may have overtaken that.
func (u *upload) settle() {
	if u.poll() {
		select {
		case <-u.done:
			u.running = false
		case <-time.After(lastStep):
		}
	}
}

// stop ends the goroutine, if there is one, and waits for it.
func (u *upload) stop(x *Exchange) {
	if !u.poll() {
		return
	}
	u.running = false
	x.down.InterruptBody()
	x.up.Interrupt() // it may be stuck in sending; this connection is of no use any more
	<-u.done
	x.down.ResumeBody()
}

// wait lets the goroutine come to its end, which its idle bound assures.
func (u *upload) wait() {
	if u.running {
		u.running = false
		<-u.done
	}
}

// waitFor lets the goroutine come to its end, unless the endpoint says that it wants no more.
func (u *upload) waitFor(up Upstream) {
	m, ok := up.(Multiplexed)
	if !ok {
		u.wait()
		return
	}
	for u.running {
		stopped, notice := m.Stopped()
		if stopped {
			return
		}
		select {
		case <-u.done:
			u.running = false
		case <-notice:
		}
	}
}

// pump sends what was kept of the body, then the rest as it comes. aside says that it runs beside the wait for a response.
func (x *Exchange) pump(aside bool) {
	u := &x.upload
	u.upErr = nil
	if len(u.kept) > 0 {
		if u.upErr = x.up.SendBody(u.kept); u.upErr != nil {
			return
		}
	}
	body := x.down.Body()
	for !u.ended {
		if !body.Buffered() {
			if u.upErr = x.up.Flush(); u.upErr != nil {
				return
			}
			if !u.keep && x.pumpRaw(body) {
				if u.upErr != nil || u.downErr != nil {
					return
				}
				continue
			}
		}
		p, err := x.nextUp(body)
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			x.bodyEnded(body)
			continue
		case errors.Is(err, netio.ErrInterrupted):
			return
		default:
			u.downErr = err
			x.up.Interrupt()
			return
		}
		x.taken(p)
		if u.upErr = x.up.SendBody(p); u.upErr != nil {
			return
		}
	}
	u.upErr = x.up.SendEnd(u.trailer, !aside)
}

// nextUp returns the next piece of the request body. Where both sides can, those that come while it waits are sent on by who
// receives them.
func (x *Exchange) nextUp(body Body) ([]byte, error) {
	if flow, ok := body.(Flow); ok {
		if _, ok := x.up.(Sink); ok {
			return flow.Flow(x.passUp, x.rt.IdleTimeout, time.Time{})
		}
	}
	return body.Next(x.idleUntil(body))
}

// offerUp sends a piece of the request body on at once, if it can.
func (x *Exchange) offerUp(p []byte) (bool, Sender) {
	ok, later := x.up.(Sink).Offer(p)
	if ok {
		x.taken(p)
	}
	return ok, later
}

// taken counts a piece of the request body, and keeps it as long as it may be needed again.
func (x *Exchange) taken(p []byte) {
	x.count(p)
	switch u := &x.upload; {
	case u.lost:
	case u.keep && len(u.kept)+len(p) <= int(x.snap.Mesh.Config.Limits.ReplayBytes):
		u.kept = append(u.kept, p...)
	default:
		u.lost, u.keep, u.kept = true, false, u.kept[:0]
	}
}

// bodyEnded notes that the body was read to its end.
func (x *Exchange) bodyEnded(body Body) {
	u := &x.upload
	u.ended = true
	u.trailer = body.Trailers()
	FilterTrailers(u.trailer)
}

// count counts a piece of the body.
func (x *Exchange) count(p []byte) {
	x.upload.bytes.Add(int64(len(p)))
	if x.call.is {
		x.call.in.feed(p)
	}
}

// rawFrom is how much of a body must be left for a copy between sockets.
const rawFrom = 64 << 10

// pumpRaw lets the kernel move the rest of a large body, where there is nothing to keep and nothing to frame.
func (x *Exchange) pumpRaw(body Body) bool {
	src, n := body.Raw()
	if src == nil || n < rawFrom {
		return false
	}
	dst := x.up.RawWriter(n)
	if dst == nil {
		return false
	}
	x.upload.lost = true
	var act netio.Activity
	act.Start(time.Now(), x.rt.IdleTimeout)
	moved, err := netio.Copy(dst, src, n, &act, &x.upload.bytes)
	body.Advance(moved)
	var we *netio.WriteError
	switch {
	case err == nil:
	case errors.As(err, &we), errors.Is(err, netio.ErrInterrupted): // it is stop that interrupts
		x.upload.upErr = err
	default:
		x.upload.downErr = err
		x.up.Interrupt()
	}
	return true
}

// idleUntil bounds a wait for the next piece of a body; with one at hand the clock is not read.
func (x *Exchange) idleUntil(body Body) time.Time {
	if body.Buffered() {
		return time.Time{}
	}
	return time.Now().Add(x.rt.IdleTimeout)
}

// FilterTrailers drops fields that must not come behind a body: those that frame, route or authenticate the message, or
// say how to read it (RFC 9110 6.5.1).
func FilterTrailers(fields []Field) {
	for i := range fields {
		fields[i].Drop = !AllowedTrailer(fields[i].Name)
	}
}

// AllowedTrailer reports whether a field of that name may come behind a body.
func AllowedTrailer(name string) bool {
	switch Classify(name) {
	case FieldOther, FieldGRPCStatus, FieldGRPCPushback:
	default:
		return false
	}
	if name == "" {
		return false
	}
	for _, bad := range [...]string{
		"authorization", "www-authenticate", "set-cookie", "cookie", "content-encoding", "content-range",
		"cache-control", "max-forwards", "range", "age", "expires", "date", "location", "retry-after", "vary", "warning",
		"pragma", "authentication-info", "accept", "proxy-authentication-info",
	} {
		if equalFold(name, bad) {
			return false
		}
	}
	return !hasPrefixFold(name, "if-") && !hasPrefixFold(name, "x-forwarded-") && !hasPrefixFold(name, "x-real-ip")
}
