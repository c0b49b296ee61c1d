package h2

import (
	"errors"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
	"github.com/sidecar-mesh/sidecar/proxy/upstream"
)

const (
	// pingAfter is how long a connection with work open may be silent before it is asked whether it lives: no oftener than
	// servers with a ping policy put up with.
	pingAfter  = 60 * time.Second
	pingAnswer = 15 * time.Second
	// ownStreams bounds the streams of one connection, whatever the peer allows.
	ownStreams = 250
	// lastStream is where a connection is given up because its identifiers run out (RFC 9113 5.1.1).
	lastStream = 1<<31 - 1000
)

// Pool keeps sessions to one endpoint. It fills one before it opens the next.
type Pool struct {
	address  string
	lim      *Limits
	observer upstream.Observer

	mu       sync.Mutex // guards what follows; taken before a session's lock
	settings upstream.Settings
	conns    []*clientConn
	dialing  bool
	waiters  []chan struct{} // first come, first served
	closed   bool
}

// NewPool returns an empty pool. observer may be nil.
func NewPool(address string, s upstream.Settings, lim Limits, observer upstream.Observer) *Pool {
	return &Pool{address: address, lim: &lim, observer: observer, settings: s}
}

// Set changes what the pool may do.
func (p *Pool) Set(s upstream.Settings) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settings = s
}

// clientConn is an upstream connection: the owner of its session.
type clientConn struct {
	pool    *Pool
	session *session
	ready   chan struct{} // closed when the peer's settings came
	once    sync.Once

	reserved int // streams in use or promised; guarded by the pool's lock, as the rest
	served   int
	gone     bool // no new streams
}

// Open implements pipeline.Pool. fresh is satisfied by any session that still takes streams: one that died is not kept.
func (p *Pool) Open(_ pipeline.Version, _ bool, connect time.Duration, until time.Time) (pipeline.Upstream, error) {
	start := time.Now()
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, upstream.ErrClosed
		}
		if c := p.pickLocked(); c != nil {
			a := attempts.Get().(*attempt)
			a.c, a.reused, a.queued = c, c.served > 0, time.Since(start)
			if !a.reused {
				a.connecting, a.queued = a.queued, 0
			}
			c.reserved++
			c.served++
			p.mu.Unlock()
			return a, nil
		}
		if !p.dialing && p.mayDialLocked() {
			p.dialing = true
			p.mu.Unlock()
			if err := p.dial(start.Add(connect), until); err != nil {
				return nil, err
			}
			continue
		}
		if len(p.waiters) >= p.settings.MaxWaiting {
			p.mu.Unlock()
			return nil, pipeline.Saturated(upstream.ErrWaiting)
		}
		w := make(chan struct{}, 1)
		p.waiters = append(p.waiters, w)
		p.mu.Unlock()
		if err := p.await(w, until); err != nil {
			return nil, err
		}
	}
}

// mayDialLocked reports whether another connection may be opened, and is of use.
func (p *Pool) mayDialLocked() bool {
	for _, c := range p.conns {
		if c.session.shut() {
			return false
		}
	}
	return p.settings.MaxOpen <= 0 || len(p.conns) < p.settings.MaxOpen
}

// pickLocked returns a session with room for a stream.
func (p *Pool) pickLocked() *clientConn {
	for _, c := range p.conns {
		if !c.gone && c.reserved < c.session.room() {
			return c
		}
	}
	return nil
}

// room is how many streams the peer lets us have at once.
func (s *session) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.peerAway || s.nextID > lastStream || len(s.out) > 4*roomy {
		return 0
	}
	return int(min(s.peer.streams, ownStreams))
}

// shut reports whether the peer lives and lets us have no stream at all: another connection would be no better.
func (s *session) shut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil && !s.peerAway && s.peer.streams == 0
}

func (p *Pool) await(w chan struct{}, until time.Time) error {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-w:
		return nil
	case <-t.C:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, x := range p.waiters {
		if x == w {
			p.waiters = append(p.waiters[:i], p.waiters[i+1:]...)
			return pipeline.Saturated(upstream.ErrSaturated)
		}
	}
	p.wakeLocked(1) // the chance came at the last moment: somebody else's
	return pipeline.Saturated(upstream.ErrSaturated)
}

func (p *Pool) wakeLocked(n int) {
	for ; n > 0 && len(p.waiters) > 0; n-- {
		p.waiters[0] <- struct{}{}
		p.waiters = append(p.waiters[:0], p.waiters[1:]...)
	}
}

// dial opens a session and waits until its peer has said what it can do.
func (p *Pool) dial(deadline, until time.Time) error {
	start := time.Now()
	if !until.IsZero() && until.Before(deadline) {
		deadline = until
	}
	c, err := p.connect(deadline)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialing = false
	p.wakeLocked(len(p.waiters))
	if err == nil && c.gone {
		err = errGoneAway
	}
	if err == nil && p.closed {
		err = upstream.ErrClosed
		c.session.nc.Abort()
	}
	if p.observer != nil && err == nil {
		p.observer.Opened(time.Since(start))
	}
	switch {
	case errors.Is(err, upstream.ErrTimeout):
		p.failed(true)
		return pipeline.ConnectTimeout(err)
	case err != nil:
		p.failed(false)
		return err
	}
	p.conns = append(p.conns, c)
	return nil
}

func (p *Pool) failed(timeout bool) {
	if p.observer != nil {
		p.observer.ConnectFailed(timeout)
	}
}

func (p *Pool) connect(deadline time.Time) (*clientConn, error) {
	nc, err := upstream.Dial(p.address, deadline)
	if err != nil {
		return nil, err
	}
	c := &clientConn{pool: p, ready: make(chan struct{})}
	c.session = newSession(netio.New(nc), true, p.lim, c, nil)
	c.session.greet()
	go c.session.run()
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case <-c.ready:
		return c, nil
	case <-c.session.done:
		c.session.mu.Lock()
		defer c.session.mu.Unlock()
		return nil, &NotHTTP2{Err: c.session.err}
	case <-t.C:
		c.session.nc.Abort()
		return nil, upstream.ErrTimeout
	}
}

// NotHTTP2 says that a peer took the connection and did not answer the preface as HTTP/2 does.
type NotHTTP2 struct{ Err error }

// Error implements error.
func (e *NotHTTP2) Error() string { return "the endpoint does not speak HTTP/2: " + e.Err.Error() }

// Unwrap returns what came instead.
func (e *NotHTTP2) Unwrap() error { return e.Err }

// headers implements owner: a server opens no streams, but what it sends may come late.
func (c *clientConn) headers(s *session, id uint32, h *head) error {
	h.release()
	if s.idleLocked(id) {
		return &connError{protocolError, "HEADERS on an idle stream"}
	}
	return nil
}

// tick implements owner.
func (c *clientConn) tick(s *session, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.pinged.IsZero() && now.Sub(s.pinged) > pingAnswer:
		return errDead
	case len(s.streams) > 0 && s.pinged.IsZero() && time.Duration(s.quiet)*tickEvery >= pingAfter:
		s.pingLocked(now)
	case len(s.streams) == 0 && now.Sub(s.idleSince) >= s.lim.IdleTimeout:
		return errIdle
	}
	return s.err
}

var errDead = errors.New("the peer does not answer a PING")

// settled implements owner.
func (c *clientConn) settled(*session) {
	c.once.Do(func() { close(c.ready) })
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.pool.wakeLocked(len(c.pool.waiters))
}

// ended implements owner.
func (c *clientConn) ended(*session) {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	c.gone = true
	for i, x := range p.conns {
		if x == c {
			p.conns = append(p.conns[:i], p.conns[i+1:]...)
			if p.observer != nil {
				p.observer.Closed()
			}
			break
		}
	}
	p.wakeLocked(len(p.waiters))
}

// done gives a stream's place back.
func (c *clientConn) done() {
	p := c.pool
	p.mu.Lock()
	c.reserved--
	p.wakeLocked(1)
	last := c.reserved == 0 && p.closed
	p.mu.Unlock()
	if last {
		c.session.end()
	}
}

// end closes a session that is not wanted any more.
func (s *session) end() {
	s.mu.Lock()
	s.roomLocked()
	s.out = appendGoAway(s.out, 0, noError, "")
	s.kickLocked()
	s.failLocked(errIdle)
	s.mu.Unlock()
}

// Sweep does nothing: sessions look after themselves.
func (p *Pool) Sweep() {}

// Close ends sessions without streams now and the others when their streams are over. Nobody gets one any more.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	var idle []*clientConn
	for _, c := range p.conns {
		if c.reserved == 0 {
			idle = append(idle, c)
		}
	}
	p.wakeLocked(len(p.waiters))
	p.mu.Unlock()
	for _, c := range idle {
		c.session.end()
	}
}

// Counts returns how many connections are open, idle and waited for.
func (p *Pool) Counts() (open, idle, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		if c.reserved == 0 {
			idle++
		}
	}
	return len(p.conns), idle, len(p.waiters)
}

var attempts = sync.Pool{New: func() any { return new(attempt) }}

// attempt is one request and its response on a stream.
type attempt struct {
	c                  *clientConn
	st                 *stream // nil until the head was sent
	queued, connecting time.Duration
	reused             bool
	interrupted        bool              // guarded by the session's lock
	held               *pipeline.Request // a head that waits for what comes with it
	method             string
	protocol, key      string // of an extended CONNECT, and the Sec-WebSocket-Key that it stands for
	sent, got          bool
	hurry              time.Time // until when the body may be held up; zero: as long as something moves
	unprocessed        bool
	refused            error // why the head was not sent; guarded by the session's lock
}

var (
	_ pipeline.Upstream    = (*attempt)(nil)
	_ pipeline.Multiplexed = (*attempt)(nil)
	_ pipeline.Pool        = (*Pool)(nil)
)

// Reused implements pipeline.Upstream. What the peer has surely not acted on counts as a connection that was dead.
func (a *attempt) Reused() bool { return a.reused || a.unprocessed }

// Hurry implements pipeline.Multiplexed.
func (a *attempt) Hurry(until time.Time) { a.hurry = until }

// Stopped implements pipeline.Multiplexed. It is for whoever has read the answer to its end.
func (a *attempt) Stopped() (bool, <-chan struct{}) {
	a.c.session.mu.Lock()
	defer a.c.session.mu.Unlock()
	return a.st.err != nil, a.st.reader.ch
}

// Connected implements pipeline.Upstream.
func (a *attempt) Connected() (queued, connecting time.Duration) { return a.queued, a.connecting }

// SendHead implements pipeline.Upstream: the head waits for the first bytes behind it, or for the end.
func (a *attempt) SendHead(q *pipeline.Request) error {
	a.held, a.method = q, q.Method
	if q.Upgrade == "" {
		return nil
	}
	a.protocol, _, _ = strings.Cut(strings.ToLower(q.Upgrade), ",")
	for i := range q.Fields {
		if f := &q.Fields[i]; strings.EqualFold(f.Name, pipeline.WebSocketKey) {
			a.key, f.Drop = f.Value, true
		}
	}
	return nil
}

// errNoConnect says that a request for another protocol cannot be sent on.
var errNoConnect = &pipeline.ProtocolError{Status: 502, Text: "the endpoint does not take extended CONNECT (RFC 8441)"}

// headLocked opens the stream and sends the head that waits, if there is one.
func (a *attempt) headLocked(end bool) error {
	q := a.held
	if q == nil {
		return a.refused
	}
	a.held = nil
	s := a.c.session
	switch {
	case s.err != nil || s.peerAway:
		a.unprocessed, a.refused = true, errGoneAway
	case a.interrupted:
		a.refused = netio.ErrInterrupted
	case a.protocol != "" && !s.peer.connect:
		a.refused = errNoConnect
	}
	if a.refused != nil {
		return a.refused
	}
	id := s.nextID
	s.nextID += 2
	st := getStreamLocked(s, id)
	st.method = q.Method
	s.streams[id] = st
	a.st, a.sent = st, true
	a.pseudoLocked(q)
	s.encodeFieldsLocked(q.Fields, q.HasBody && q.Length >= 0)
	if q.TrailersWanted {
		s.enc.constant("te", "trailers")
	}
	if q.Expect {
		s.enc.constant("expect", "100-continue")
	}
	return st.blockLocked(end)
}

// pseudoLocked encodes the pseudo-fields of a request. One that asks for another protocol becomes an extended CONNECT
// (RFC 8441).
func (a *attempt) pseudoLocked(q *pipeline.Request) {
	enc := a.c.session.enc
	if a.protocol == "" {
		enc.add(":method", q.Method)
	} else {
		enc.constant(":method", "CONNECT")
		enc.add(":protocol", a.protocol)
	}
	enc.constant(":scheme", "http")
	enc.add(":authority", q.Authority)
	if !q.HasQuery {
		enc.add(":path", q.Path)
		return
	}
	enc.text = append(append(append(enc.text[:0], q.Path...), '?'), q.Query...)
	enc.add(":path", unsafe.String(unsafe.SliceData(enc.text), len(enc.text)))
}

func (a *attempt) head(end bool) error {
	a.c.session.mu.Lock()
	defer a.c.session.mu.Unlock()
	return a.headLocked(end)
}

// SendBody implements pipeline.Upstream.
func (a *attempt) SendBody(p []byte) error {
	if err := a.head(false); err != nil {
		return err
	}
	return a.st.send(p, a.c.session.lim.IdleTimeout, a.hurry)
}

// Flush implements pipeline.Upstream.
func (a *attempt) Flush() error { return a.head(false) }

// SendEnd implements pipeline.Upstream.
func (a *attempt) SendEnd(trailers []pipeline.Field, _ bool) error {
	s := a.c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	some := hasSome(trailers)
	if q := a.held; q != nil {
		// A body that turned out to be empty ends in a frame of its own: servers of gRPC wait for that.
		end := !some && (!q.HasBody || q.Length == 0)
		if err := a.headLocked(end); err != nil || end {
			return err
		}
	}
	if a.st == nil {
		return a.refused
	}
	if !some {
		return a.st.endLocked()
	}
	if err := a.st.sendableLocked(); err != nil {
		return err
	}
	s.encodeFieldsLocked(trailers, false)
	return a.st.blockLocked(true)
}

func hasSome(fields []pipeline.Field) bool {
	for i := range fields {
		if !fields[i].Drop {
			return true
		}
	}
	return false
}

// Sent implements pipeline.Upstream.
func (a *attempt) Sent() bool { return a.sent && !a.unprocessed }

// RawWriter implements pipeline.Upstream.
func (a *attempt) RawWriter(int64) *netio.Conn { return nil }

// Received implements pipeline.Upstream.
func (a *attempt) Received() bool { return a.got }

// ReadHead implements pipeline.Upstream. The body may be on its way from elsewhere: who comes first sends the head.
func (a *attempt) ReadHead(r *pipeline.Response, until time.Time) error {
	s := a.c.session
	s.mu.Lock()
	if err := a.headLocked(false); err != nil {
		s.mu.Unlock()
		return err
	}
	for st := a.st; ; {
		switch {
		case len(st.queue) > 0:
			h := st.queue[0]
			st.queue = append(st.queue[:0], st.queue[1:]...)
			s.mu.Unlock()
			a.got = true
			problem := h.response(r, a.method)
			h.release()
			if problem != "" {
				return &pipeline.ProtocolError{Status: 502, Text: problem}
			}
			if a.protocol != "" && r.Status == 200 {
				a.switched(r)
			}
			return nil
		case st.err != nil:
			a.unprocessed = st.unprocessed
			err := st.err
			s.mu.Unlock()
			var se *streamError
			if errors.As(err, &se) {
				return &pipeline.ProtocolError{Status: 502, Text: se.text}
			}
			return err
		case st.rxEnd:
			s.mu.Unlock()
			return &pipeline.ProtocolError{Status: 502, Text: "the stream ended before a final head"}
		}
		s.mu.Unlock()
		late := st.reader.wait(until)
		s.mu.Lock()
		if late && len(st.queue) == 0 && st.err == nil {
			s.mu.Unlock()
			return netio.ErrTimeout
		}
	}
}

// switched makes of the answer to an extended CONNECT what HTTP/1 has for it.
func (a *attempt) switched(r *pipeline.Response) {
	r.Status, r.Reason, r.NoBody = 101, "", true
	r.Fields = append(r.Fields, pipeline.Field{Name: "Upgrade", Value: a.protocol, ID: pipeline.FieldUpgrade})
	if a.key != "" {
		r.Fields = append(r.Fields, pipeline.Field{Name: "Sec-WebSocket-Accept", Value: pipeline.WebSocketAccept(a.key)})
	}
}

// Body implements pipeline.Upstream.
func (a *attempt) Body() pipeline.Body { return body{a.st} }

// Interrupt implements pipeline.Upstream.
func (a *attempt) Interrupt() {
	a.c.session.mu.Lock()
	defer a.c.session.mu.Unlock()
	a.interrupted = true
	if a.st != nil {
		a.st.failLocked(netio.ErrInterrupted, false)
	}
}

// Close implements pipeline.Upstream. A stream that is not over on both sides is reset.
func (a *attempt) Close(bool) {
	c := a.c
	if st := a.st; st != nil {
		s := c.session
		s.mu.Lock()
		if (!st.rxEnd || !st.sentEnd) && !wasReset(st.err) {
			st.resetLocked(cancelled)
		}
		s.forgetLocked(st.id, st.excused())
		s.closeIfIdleLocked()
		s.mu.Unlock()
		st.release()
	}
	*a = attempt{}
	attempts.Put(a)
	c.done()
}

// Tunnel implements pipeline.Upstream: a stream has no socket of its own.
func (a *attempt) Tunnel() (*netio.Conn, []byte) { return nil, nil }
