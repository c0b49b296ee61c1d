package h1

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/grammar"
	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// Limits bounds downstream connections. All fields must be set.
type Limits struct {
	HeaderBytes   int
	HeaderCount   int
	HeaderTimeout time.Duration // from the first byte of a head to its last
	IdleTimeout   time.Duration // between two requests
	HalfClose     string        // "serve" or "cancel"
}

// Server serves downstream connections of one listener.
type Server struct {
	Pipeline *pipeline.Pipeline
	Watcher  *netio.Watcher // may be nil: callers that leave are then noticed when we write to them

	// Prior takes over a connection that begins with the preface of HTTP/2, with what was read of it; nil: refused.
	Prior func(nc *netio.Conn, first []byte)

	limits   atomic.Pointer[Limits]
	draining atomic.Bool
	offline  atomic.Int64 // Unix nanoseconds of our end, which answers tell; 0: they do not

	mu    sync.Mutex
	conns map[*conn]struct{} // guarded by mu
}

// SetLimits puts limits in force, from the next request of each connection on.
func (s *Server) SetLimits(l Limits) { s.limits.Store(&l) }

// Serve serves one connection until it ends, and closes it. first is what was read from it already.
func (s *Server) Serve(nc *netio.Conn, first []byte) {
	c := &conn{srv: s, nc: nc, since: time.Now()}
	c.in.c, c.out.c = nc, nc
	c.in.preload(first)
	c.peer = pipeline.PeerOf(nc.RemoteAddr())
	s.mu.Lock()
	if s.conns == nil {
		s.conns = make(map[*conn]struct{})
	}
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	s.Watcher.Add(nc, c)
	c.run()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	if c.prior != nil {
		s.Prior(nc, c.prior)
	}
}

// Drain asks every connection to end after the exchange in progress; the answers say so.
func (s *Server) Drain() { s.draining.Store(true) }

// Offline is Drain with answers that tell callers who are sidecars to send nothing more; we are gone at that time.
func (s *Server) Offline(gone time.Time) {
	s.offline.Store(gone.UnixNano())
	s.Drain()
}

// CloseIdle closes the connections that have waited for a request for at least d, and returns how many are left.
func (s *Server) CloseIdle(now time.Time, d time.Duration) (left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		since := c.idleSince.Load()
		if since > 0 && now.UnixNano()-since >= int64(d) && c.idleSince.CompareAndSwap(since, claimed) {
			c.nc.Interrupt()
		}
	}
	return len(s.conns)
}

// Abort ends all connections at once.
func (s *Server) Abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.closing.Store(true)
		c.nc.Abort()
		c.interruptUpstream()
	}
}

// Counts returns how many connections there are, and how many of them wait for a request.
func (s *Server) Counts() (open, idle int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.idleSince.Load() != 0 {
			idle++
		}
	}
	return len(s.conns), idle
}

// Each calls f for every connection, for the admin API.
func (s *Server) Each(f func(remote net.Addr, idleSince time.Time, served int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		var since time.Time
		if ns := c.idleSince.Load(); ns > 0 {
			since = time.Unix(0, ns)
		}
		f(c.nc.RemoteAddr(), since, c.served.Load())
	}
}

// claimed marks an idle connection that is being closed: a request that comes at that moment is not begun.
const claimed = -1

// conn is a downstream connection, and the Stream of the exchange in progress. Its goroutine owns everything but what
// says otherwise.
type conn struct {
	srv  *Server
	nc   *netio.Conn
	in   reader
	out  writer
	peer pipeline.Peer

	x       *pipeline.Exchange // of the exchange in progress; nil while idle
	f       framing
	reqBody body
	lim     *Limits

	framing  outFraming // of the response in progress
	begun    bool       // the final head was written
	close    bool       // the connection ends with this exchange
	said100  bool
	detached bool // somebody else has the connection now
	tunnel   bool
	prior    []byte // the connection speaks HTTP/2 and began with this

	since     time.Time    // of the end of the last exchange
	idleSince atomic.Int64 // Unix nanoseconds; 0 while an exchange is in progress, claimed when it is being closed
	served    atomic.Int64
	closing   atomic.Bool

	mu   sync.Mutex
	up   pipeline.Upstream // guarded by mu: the attempt to interrupt when the client leaves
	gone bool              // guarded by mu
	fin  bool              // guarded by mu: the client has closed its sending side
	hang bool              // guarded by mu: and means by it that it has left
}

// run serves one exchange after the other.
func (c *conn) run() {
	for c.await() {
		c.x = pipeline.Begin(c.peer)
		ok := c.exchange()
		if c.detached {
			c.release()
			return
		}
		if !ok {
			break
		}
		c.served.Add(1)
		c.since = c.x.Clock
		c.x.Release()
		c.x = nil
		c.out.release()
		c.in.next()
	}
	c.end()
}

// await waits for the first bytes of a request.
func (c *conn) await() bool {
	lines := 0
	for {
		if c.in.head != nil && !c.in.onlyEmptyLines(&lines) {
			return true // they came with the last one
		}
		now := c.since
		c.idleSince.Store(now.UnixNano())
		c.lim = c.srv.limits.Load()
		if c.closing.Load() {
			return false
		}
		err := c.in.wait(now.Add(c.lim.IdleTimeout))
		if c.idleSince.Swap(0) == claimed || err != nil {
			return false
		}
	}
}

// exchange reads a request and has it served. It reports whether the connection goes on.
func (c *conn) exchange() bool {
	c.lim = c.srv.limits.Load()
	c.out.stall = c.lim.IdleTimeout
	c.begun, c.close, c.said100, c.framing = false, false, false, outNone
	if c.hang { // only this goroutine sets it
		c.mu.Lock()
		c.hang = false
		c.mu.Unlock()
	}
	x := c.x
	x.Start = time.Now()
	if err := c.readRequest(); err != nil {
		if errors.Is(err, errPreface) && c.served.Load() == 0 && c.srv.Prior != nil {
			c.prior, c.detached = bytes.Clone(c.in.cur[:c.in.w]), true
			return false
		}
		if errors.Is(err, errNoVersion) && c.served.Load() == 0 {
			err = errNotHTTP
		}
		return c.refuse(err)
	}
	c.close = !c.f.persistent() || c.srv.draining.Load()
	c.srv.Pipeline.Serve(x, c)
	return c.finish()
}

// readRequest reads and parses the head, and prepares for the body.
func (c *conn) readRequest() error {
	lim := headLimits{c.lim.HeaderBytes, c.lim.HeaderCount}
	q := &c.x.Req
	q.Version = pipeline.HTTP11 // unless it says something else
	if first := c.in.cur[c.in.r]; c.served.Load() == 0 && !plausible(first) {
		if first == tlsHandshake {
			return errTLS
		}
		return errNotHTTP
	}
	head, err := c.in.readHead(lim, true, c.x.Start.Add(c.lim.HeaderTimeout))
	if err != nil {
		return err
	}
	c.f = framing{}
	if err := parseRequest(q, &c.f, head, lim); err != nil {
		return err
	}
	switch {
	case c.f.chunked:
		c.reqBody.start(&c.in, bodyChunked, 0, false)
	case c.f.hasLength:
		c.reqBody.start(&c.in, bodyLength, c.f.length, false)
	default:
		c.reqBody.start(&c.in, bodyNone, 0, false)
	}
	return nil
}

// errNotHTTP is a first byte or first line of a connection that no HTTP request has, and errTLS the one that is most likely. Such a
// peer would not understand an HTTP answer, so it gets none.
var (
	errNotHTTP = errors.New("not HTTP")
	errTLS     = errors.New("TLS, where plain HTTP is expected")
)

// tlsHandshake is the first byte of a TLS connection (RFC 8446 5.1).
const tlsHandshake = 22

func plausible(b byte) bool {
	return grammar.Is(b, grammar.Token) || b == '\r' || b == ' ' || b == '\n'
}

// refuse answers a request that could not be read.
func (c *conn) refuse(err error) bool {
	c.close = true
	c.reqBody.start(&c.in, bodyToClose, 0, false)
	var e *pipeline.ProtocolError
	switch {
	case errors.As(err, &e):
		c.srv.Pipeline.Refuse(c.x, c, e.Status, e.Text)
	case errors.Is(err, netio.ErrTimeout):
		c.srv.Pipeline.Refuse(c.x, c, 408, "the head did not arrive within limits.header_timeout")
	case errors.Is(err, errNotHTTP), errors.Is(err, errTLS):
		c.srv.Pipeline.NoRequest(c.x, err.Error())
	default:
		c.srv.Pipeline.Note(c.x, err.Error())
	}
	return false
}

// finish ends an exchange. It reports whether the connection goes on: the request was read to its end, and the response
// written.
func (c *conn) finish() bool {
	switch {
	case c.close || c.out.err != nil || !c.begun:
		return false
	case !c.reqBody.done:
		return c.skipBody()
	}
	return true
}

// lingerTime bounds how long a connection stays open, behind a response, for bytes that nobody wants.
const lingerTime = time.Second

// skipBody passes over a request body whose endpoint wanted no more of it. The client was not told that this is its last
// exchange, and may send the next one at once.
func (c *conn) skipBody() bool {
	until := time.Now().Add(lingerTime)
	for time.Now().Before(until) {
		if _, err := c.reqBody.Next(until); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
	return false
}

// end closes the connection.
func (c *conn) end() {
	if c.begun && c.out.err == nil {
		c.linger()
	}
	_ = c.nc.Close()
	c.release()
}

// linger reads what is still to come: closing at once would make the kernel send a reset, which may overtake the response
// (RFC 9112 9.6).
func (c *conn) linger() {
	if c.nc.CloseWrite() != nil {
		return
	}
	until := time.Now().Add(lingerTime)
	b := bodyBuffers.Get().(*[bodyBuffer]byte)
	defer bodyBuffers.Put(b)
	c.nc.Resume()
	for time.Now().Before(until) {
		if _, err := c.nc.Read(b[:], until); err != nil {
			return
		}
	}
}

func (c *conn) release() {
	c.in.release()
	c.out.release()
	if c.x != nil {
		c.x.Release()
		c.x = nil
	}
}

// PeerLeft implements netio.Leaver.
func (c *conn) PeerLeft(reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fin = true
	if !reset && !c.hang && c.srv.limits.Load().HalfClose != "cancel" {
		return // it may well wait for its answer
	}
	c.goneLocked()
}

// HangUp implements pipeline.HangUp.
func (c *conn) HangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hang = true; c.fin {
		c.goneLocked()
	}
}

func (c *conn) goneLocked() {
	c.gone = true
	if c.up != nil {
		c.up.Interrupt()
	}
}

func (c *conn) interruptUpstream() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.up != nil {
		c.up.Interrupt()
	}
}
