package h2

import (
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// job is one stream to be served.
type job struct {
	c       *serverConn
	st      *stream
	x       *pipeline.Exchange
	tooMuch bool
}

// do serves it. x is memory that is used again.
func (j job) do(x *exchange) {
	*x = exchange{c: j.c, st: j.st, x: j.x}
	switch {
	case !j.st.begin():
		j.c.srv.Pipeline.Note(j.x, "given up before it was begun")
	case j.tooMuch:
		j.c.srv.Pipeline.Refuse(j.x, x, 431, "head larger than limits.header_bytes or limits.header_count")
	default:
		j.c.srv.Pipeline.Serve(j.x, x)
	}
	x.finish()
	*x = exchange{}
	j.x.Release()
	j.c.jobs.Done()
}

// exchange is the downstream half of one exchange.
type exchange struct {
	c  *serverConn
	st *stream
	x  *pipeline.Exchange

	held   *pipeline.Response // a final head that waits for what comes with it
	begun  bool
	marked bool // the head said that we leave
	over   bool // counted as such by the session
	torn   code // what a tunnel that breaks off is reset with; 0: it is none
}

var (
	_ pipeline.Stream = (*exchange)(nil)
	_ pipeline.Sink   = (*exchange)(nil)
	_ pipeline.Flow   = body{}
)

// finish ends the stream, whatever state it is in.
func (x *exchange) finish() {
	s, st := x.c.session, x.st
	s.mu.Lock()
	switch {
	case st.err != nil || st.sentReset:
	case !st.sentEnd:
		st.resetLocked(internalError)
	case !st.rxEnd:
		st.resetLocked(noError) // a complete answer; the rest of the request is not wanted
	}
	s.forgetLocked(st.id, st.excused())
	s.nextShutLocked()
	s.working--
	if x.over {
		s.over--
	}
	s.closeIfIdleLocked()
	s.mu.Unlock()
	st.release()
}

// Body implements pipeline.Stream.
func (x *exchange) Body() pipeline.Body { return body{x.st} }

// InterruptBody implements pipeline.Stream.
func (x *exchange) InterruptBody() {
	x.c.session.mu.Lock()
	x.st.interrupted = true
	x.c.session.mu.Unlock()
	x.st.reader.notify()
}

// ResumeBody implements pipeline.Stream.
func (x *exchange) ResumeBody() {
	x.c.session.mu.Lock()
	x.st.interrupted = false
	x.c.session.mu.Unlock()
}

// Guard implements pipeline.Stream.
func (x *exchange) Guard(u pipeline.Upstream) bool {
	x.c.session.mu.Lock()
	defer x.c.session.mu.Unlock()
	x.st.guarded = u
	return x.st.err != nil && !x.st.rxEndedWell()
}

// Interim implements pipeline.Stream.
func (x *exchange) Interim(r *pipeline.Response) error {
	s := x.c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := x.st.readyLocked(x.c.session.lim.IdleTimeout); err != nil {
		return err
	}
	if !s.takesLocked(r.Fields, 0) {
		return nil // an interim answer is not worth an error
	}
	s.encodeStatusLocked(r.Status)
	s.encodeFieldsLocked(r.Fields, false)
	return x.st.blockLocked(false)
}

// Head implements pipeline.Stream: the head waits for the first bytes behind it, or for the end.
func (x *exchange) Head(r *pipeline.Response, _ bool) error {
	if r.Status == 101 { // the answer to an extended CONNECT (RFC 8441 5)
		r.Status = 200
		for i := range r.Fields {
			f := &r.Fields[i]
			f.Drop = f.Drop || strings.EqualFold(f.Name, "sec-websocket-accept")
		}
	}
	if !r.Local {
		x.c.session.mu.Lock()
		fits := x.c.session.takesLocked(r.Fields, 0)
		x.c.session.mu.Unlock()
		if !fits {
			return pipeline.ErrTooLarge
		}
	}
	x.held, x.begun = r, true
	return nil
}

// headLocked sends the head that waits, if there is one.
func (x *exchange) headLocked(end bool) error {
	r := x.held
	if r == nil {
		return nil
	}
	x.held = nil
	if err := x.st.readyLocked(x.c.session.lim.IdleTimeout); err != nil {
		return err
	}
	s := x.c.session
	gone := x.c.srv.offline.Load()
	if gone != 0 {
		s.warnLocked(time.Now())
	}
	s.encodeStatusLocked(r.Status)
	s.encodeFieldsLocked(r.Fields, r.Length >= 0 && !r.NoBody || r.KeepLength)
	if gone != 0 {
		s.encodeOfflineLocked(gone)
		x.marked = true
	}
	if r.Local && r.Length > 0 && !r.NoBody {
		s.encodeLengthLocked(r.Length)
	}
	return x.st.blockLocked(end)
}

// Write implements pipeline.Stream.
func (x *exchange) Write(p []byte) error {
	x.c.session.mu.Lock()
	defer x.c.session.mu.Unlock()
	if err := x.headLocked(false); err != nil {
		return err
	}
	return x.st.sendLocked(p, x.c.session.lim.IdleTimeout, time.Time{})
}

// Offer implements pipeline.Sink.
func (x *exchange) Offer(p []byte) (bool, pipeline.Sender) {
	if x.held != nil {
		return false, nil
	}
	return x.st.offer(p)
}

// Flush implements pipeline.Stream.
func (x *exchange) Flush() error {
	if x.held == nil {
		return nil
	}
	x.c.session.mu.Lock()
	defer x.c.session.mu.Unlock()
	return x.headLocked(false)
}

// End implements pipeline.Stream.
func (x *exchange) End(trailers []pipeline.Field) error {
	s := x.c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	err := x.endLocked(trailers)
	if err == nil && x.st.rxEnd && !x.over {
		x.over = true
		s.over++
		s.answered.Add(1)
	}
	return err
}

func (x *exchange) endLocked(trailers []pipeline.Field) error {
	s := x.c.session
	some := hasSome(trailers)
	if x.held != nil {
		if err := x.headLocked(!some); err != nil || !some {
			return err
		}
	}
	if !some {
		return x.st.endLocked()
	}
	if err := x.st.readyLocked(x.c.session.lim.IdleTimeout); err != nil {
		return err
	}
	if !s.takesLocked(trailers, 0) {
		return pipeline.ErrTooLarge
	}
	gone := x.c.srv.offline.Load()
	if gone != 0 {
		s.warnLocked(time.Now())
	}
	s.encodeFieldsLocked(trailers, false)
	if gone != 0 && !x.marked { // the answer began before it was known
		s.encodeOfflineLocked(gone)
	}
	return x.st.blockLocked(true)
}

// RawWriter implements pipeline.Stream.
func (x *exchange) RawWriter(int64) *netio.Conn { return nil }

// Abort implements pipeline.Stream.
func (x *exchange) Abort() {
	x.c.session.mu.Lock()
	defer x.c.session.mu.Unlock()
	if !x.st.sentEnd && !wasReset(x.st.err) {
		why := internalError
		if x.torn != 0 {
			why = x.torn
		}
		x.st.resetLocked(why)
	}
}

// Tunnel implements pipeline.Stream: a stream has no socket of its own. A tunnel to a socket breaks off with an error of its
// own (RFC 9113 8.5), one of another protocol is cancelled (RFC 8441 5).
func (x *exchange) Tunnel() (*netio.Conn, []byte) {
	if x.torn = cancelled; x.x.Req.Method == "CONNECT" {
		x.torn = connectError
	}
	x.c.session.mu.Lock()
	x.st.tunnel = true
	x.c.session.mu.Unlock()
	return nil, nil
}
