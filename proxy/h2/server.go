package h2

import (
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// Server serves downstream connections of one listener. It ends with Drain or Abort.
type Server struct {
	Pipeline *pipeline.Pipeline
	Watcher  *netio.Watcher

	limits   atomic.Pointer[Limits]
	draining atomic.Bool
	offline  atomic.Int64 // Unix nanoseconds of our end, which answers tell; 0: they do not
	aborted  atomic.Bool
	held     atomic.Int64 // connections that wait until they are served
	workers  workers
	debts    debts

	mu    sync.Mutex
	conns map[*serverConn]struct{} // guarded by mu
}

// SetLimits puts limits in force for the connections to come.
func (s *Server) SetLimits(l Limits) { s.limits.Store(&l) }

// Serve serves one connection until it ends, and closes it. first is what was read from it already, the preface included.
func (s *Server) Serve(nc *netio.Conn, first []byte) {
	peer := pipeline.PeerOf(nc.RemoteAddr())
	owed := s.debts.join(peer.Addr, time.Now())
	defer s.debts.leave(owed)
	if !s.admit(nc, owed, peer.Text) {
		_ = nc.Close()
		return
	}
	lim := s.limits.Load()
	c := &serverConn{srv: s, peer: peer, leaves: lim.leavesAt(time.Now())}
	c.session = newSession(nc, false, lim, c, first)
	c.session.debt = owed
	c.session.greet() // before anybody else can send something
	s.mu.Lock()
	if s.conns == nil {
		s.conns = make(map[*serverConn]struct{})
	}
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	if s.draining.Load() && s.offline.Load() == 0 { // else its first answer says so
		c.session.mu.Lock()
		c.session.warnLocked(time.Now())
		c.session.mu.Unlock()
	}
	c.serve()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// Drain asks every client to leave; their streams finish. No goroutine waits for streams any more.
func (s *Server) Drain() {
	s.draining.Store(true)
	s.workers.close()
	s.each(func(c *serverConn) { c.session.warnLocked(time.Now()) })
}

// Offline is Drain with answers that tell callers who are sidecars to send nothing more; we are gone at that time. A client
// that comes yet is asked to leave with its first answer: one that went at once would not be told.
func (s *Server) Offline(gone time.Time) {
	s.offline.Store(gone.UnixNano())
	s.Drain()
}

// CloseIdle lets clients that were asked to leave go, whether or not they have answered. It returns how many connections
// are left.
func (s *Server) CloseIdle(now time.Time, d time.Duration) int {
	return s.each(func(c *serverConn) {
		if c.session.away == warned && !c.session.pinged.IsZero() && now.Sub(c.session.pinged) >= d {
			c.session.leaveLocked()
		}
		c.session.closeIfIdleLocked()
	})
}

// Abort ends all connections at once, and the goroutines that wait for streams.
func (s *Server) Abort() {
	s.aborted.Store(true)
	s.workers.close()
	s.each(func(c *serverConn) {
		c.session.failLocked(net.ErrClosed)
		c.session.nc.Abort()
	})
}

// Counts returns how many connections there are, and how many of them have no stream.
func (s *Server) Counts() (open, idle int) {
	open = s.each(func(c *serverConn) {
		if c.session.working == 0 {
			idle++
		}
	})
	return open + int(s.held.Load()), idle
}

func (s *Server) each(f func(*serverConn)) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.session.mu.Lock()
		f(c)
		c.session.mu.Unlock()
	}
	return len(s.conns)
}

// serverConn is a downstream connection: the owner of its session.
type serverConn struct {
	srv     *Server
	session *session
	peer    pipeline.Peer
	leaves  time.Time      // zero: never
	served  int            // streams; guarded by the session's lock
	jobs    sync.WaitGroup // streams being served
}

func (c *serverConn) serve() {
	if err := c.session.in.preface(); err != nil {
		_ = c.session.nc.Close()
		c.session.mu.Lock()
		c.session.failLocked(err)
		c.session.mu.Unlock()
		c.session.in.release()
		return
	}
	c.session.run()
	c.jobs.Wait()
}

// headers implements owner: it opens a stream.
func (c *serverConn) headers(s *session, id uint32, h *head) error {
	switch {
	case id <= s.highest:
		h.release()
		if known, reset := s.recallLocked(id); known && reset {
			return nil
		} else if known {
			return &connError{streamClosed, "HEADERS on a closed stream"}
		}
		return &connError{protocolError, "stream identifiers must grow"}
	case s.err != nil: // all streams were ended: this one would not be
		h.release()
		return s.err
	case s.away == leaving:
		s.highest = id // what follows is passed over as well
		h.release()
		return nil
	}
	s.highest = id
	// A stream is over for the client with the last octet of its answer: what is left of its work must not cost the next
	// one its place.
	if s.working-s.over >= maxStreams || s.working >= 4*maxStreams {
		h.release()
		return &streamError{id, refusedStream, "too many streams"}
	}
	if s.peer.window < shutWindow {
		if err := s.charge(costShut); err != nil {
			h.release()
			return err
		}
	}
	x := pipeline.Begin(c.peer)
	x.Start = s.in.when()
	st := getStreamLocked(s, id)
	st.rxEnd, st.left, st.began = h.end, h.length, x.Start
	problem := h.bad
	switch {
	case problem != "":
	case h.tooMuch:
		h.refused(&x.Req)
	default:
		problem = h.request(&x.Req)
		if problem == "" && h.end && h.length > 0 {
			problem = "less DATA than content-length"
		}
	}
	if problem != "" {
		h.release()
		x.Release()
		st.release()
		return &streamError{id, protocolError, problem}
	}
	s.streams[id] = st
	s.working++
	c.jobs.Add(1)
	if c.served++; c.served == s.lim.MaxRequests {
		c.retireLocked(x.Start, WhyRequests)
	}
	c.srv.workers.run(job{c, st, x, h.tooMuch})
	h.release()
	return nil
}

// tick implements owner.
func (c *serverConn) tick(s *session, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.working == 0 && now.Sub(s.idleSince) >= s.lim.IdleTimeout,
		s.away == warned && now.Sub(s.lastPing) >= tickEvery: // it does not answer
		s.leaveLocked()
	case !c.leaves.IsZero() && !now.Before(c.leaves):
		c.retireLocked(now, WhyAge)
	}
	return s.err
}

// retireLocked asks the client to use another connection from now on; what it has begun goes on.
func (c *serverConn) retireLocked(now time.Time, why string) {
	if c.session.away == staying {
		c.session.warnLocked(now)
		c.srv.Pipeline.Recorder.Retired("downstream", why)
	}
}

// settled implements owner.
func (c *serverConn) settled(*session) {}

// abused implements owner.
func (c *serverConn) abused(what string) { c.srv.abuse(what, c.peer.Text) }

// ended implements owner.
func (c *serverConn) ended(*session) {}

// job is one stream to be served.
type job struct {
	c       *serverConn
	st      *stream
	x       *pipeline.Exchange
	tooMuch bool
}

func (j job) do() {
	x := exchangePool.Get().(*exchange)
	*x = exchange{c: j.c, st: j.st, x: j.x}
	if j.tooMuch {
		j.c.srv.Pipeline.Refuse(j.x, x, 431, "head larger than limits.header_bytes or limits.header_count")
	} else {
		j.c.srv.Pipeline.Serve(j.x, x)
	}
	x.finish()
	*x = exchange{}
	exchangePool.Put(x)
	j.x.Release()
	j.c.jobs.Done()
}

var exchangePool = sync.Pool{New: func() any { return new(exchange) }}

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

// left implements leaver: the client gave the stream up, and what runs for it ends.
func (c *serverConn) left(st *stream) {
	if st.guarded != nil {
		st.guarded.Interrupt()
	}
}

// workers is a pool of goroutines that serve streams: their stacks have grown to what an exchange needs.
type workers struct {
	mu     sync.Mutex
	idle   []chan job // the last one worked last
	closed bool       // each stream has a goroutine of its own now
}

const maxIdleWorkers = 256

func (w *workers) run(j job) {
	w.mu.Lock()
	if n := len(w.idle); n > 0 {
		ch := w.idle[n-1]
		w.idle = w.idle[:n-1]
		w.mu.Unlock()
		ch <- j
		return
	}
	w.mu.Unlock()
	go w.work(make(chan job, 1), j)
}

func (w *workers) work(ch chan job, j job) {
	for {
		j.do()
		j = job{}
		w.mu.Lock()
		if w.closed || len(w.idle) >= maxIdleWorkers {
			w.mu.Unlock()
			return
		}
		w.idle = append(w.idle, ch)
		w.mu.Unlock()
		var ok bool
		if j, ok = <-ch; !ok {
			return
		}
	}
}

func (w *workers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, ch := range w.idle {
		close(ch)
	}
	w.idle = nil
}

var errPreface = errors.New("malformed client preface")
