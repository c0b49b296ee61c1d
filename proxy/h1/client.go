package h1

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/grammar"
	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
	"github.com/sidecar-mesh/sidecar/proxy/upstream"
)

// Pool sends requests to one endpoint over HTTP/1.1, one at a time on each connection.
type Pool struct {
	*upstream.Pool
	lim atomic.Pointer[headLimits]
}

// NewPool returns a pool whose response heads are bounded by bytes in all and count fields.
func NewPool(conns *upstream.Pool, bytes, count int) *Pool {
	p := &Pool{Pool: conns}
	p.SetLimits(bytes, count)
	return p
}

// SetLimits changes the bounds of response heads, from the next request on.
func (p *Pool) SetLimits(bytes, count int) { p.lim.Store(&headLimits{bytes, count}) }

const (
	maxInterims = 16 // of one request
	writeStall  = time.Minute
)

var (
	errInterims = bad("too many interim responses")
	errSwitched = bad("switched to a protocol that nobody asked for")
	attempts    = sync.Pool{New: func() any { return new(attempt) }}
	_           = pipeline.Pool((*Pool)(nil))
	_           = pipeline.Upstream((*attempt)(nil))
)

// Open implements pipeline.Pool.
func (p *Pool) Open(_ pipeline.Version, fresh bool, connect time.Duration, until time.Time) (pipeline.Upstream, error) {
	c, err := p.Get(fresh, connect, until)
	switch {
	case errors.Is(err, upstream.ErrTimeout):
		return nil, pipeline.ConnectTimeout(err)
	case errors.Is(err, upstream.ErrSaturated), errors.Is(err, upstream.ErrWaiting):
		return nil, pipeline.Saturated(err)
	case err != nil:
		return nil, err
	}
	a := attempts.Get().(*attempt)
	a.conn = c
	a.lim = *p.lim.Load()
	a.in.c, a.out.c, a.out.stall = c.Conn, c.Conn, writeStall
	a.in.n = 0
	a.out.n.Store(0)
	a.interims, a.final, a.complete, a.held, a.tunnel, a.accept = 0, false, false, false, false, ""
	return a, nil
}

// Ready implements pipeline.Prompt.
func (p *Pool) Ready(pipeline.Version) bool {
	_, idle, _ := p.Counts()
	return idle > 0
}

// attempt is one request and its response on an upstream connection.
type attempt struct {
	conn *upstream.Conn
	in   reader
	out  writer
	lim  headLimits
	f    framing
	resp body

	reqFraming outFraming
	method     string
	upgrade    string
	interims   int
	final      bool // the final head was read
	complete   bool // the request was written to its end
	tunnel     bool
	accept     string // what a handshake of ours must be answered with
	held       bool   // the whole request waits to be sent by ReadHead
}

// Reused implements pipeline.Upstream.
func (a *attempt) Reused() bool { return a.conn.Reused() }

// Connected implements pipeline.Upstream.
func (a *attempt) Connected() (queued, connecting time.Duration) {
	return a.conn.Queued, a.conn.Connecting
}

// SendHead implements pipeline.Upstream.
func (a *attempt) SendHead(q *pipeline.Request) error {
	a.method, a.upgrade = q.Method, q.Upgrade
	switch {
	case q.HasBody && q.Length == pipeline.LengthUnknown:
		a.reqFraming = outChunked
	case q.HasBody:
		a.reqFraming = outLength
	default:
		a.reqFraming = outNone
	}
	if q.Version == pipeline.HTTP2 && grammar.EqualFold(q.Upgrade, "websocket") {
		a.shakeHands(q)
	}
	a.out.ready()
	a.out.buf = appendRequest(a.out.buf, q)
	return a.out.err
}

// shakeHands gives a handshake that came over HTTP/2 the key that it needs over HTTP/1, and notes the answer to it.
func (a *attempt) shakeHands(q *pipeline.Request) {
	key := pipeline.NewWebSocketKey()
	a.accept = pipeline.WebSocketAccept(key)
	for i := range q.Fields {
		if f := &q.Fields[i]; grammar.EqualFold(f.Name, pipeline.WebSocketKey) {
			f.Value, f.Drop = key, false
			return
		}
	}
	q.Fields = append(q.Fields, pipeline.Field{Name: "Sec-WebSocket-Key", Value: key})
}

// accepted reports whether a handshake of ours was answered as it must be.
func (a *attempt) accepted(fields []pipeline.Field) bool {
	if a.accept == "" {
		return true
	}
	for i := range fields {
		if grammar.EqualFold(fields[i].Name, "sec-websocket-accept") {
			return fields[i].Value == a.accept
		}
	}
	return false
}

// SendBody implements pipeline.Upstream.
func (a *attempt) SendBody(p []byte) error {
	if a.reqFraming == outChunked {
		return a.out.writeChunk(p)
	}
	return a.out.write(p)
}

// Flush implements pipeline.Upstream.
func (a *attempt) Flush() error { return a.out.flush() }

// SendEnd implements pipeline.Upstream.
func (a *attempt) SendEnd(trailers []pipeline.Field, hold bool) error {
	if a.reqFraming == outChunked {
		a.out.ready()
		a.out.buf = lastChunk(a.out.buf, trailers)
	}
	if a.tunnel {
		if err := a.out.flush(); err != nil {
			return err
		}
		return a.conn.CloseWrite()
	}
	if hold && a.conn.Reused() && a.out.n.Load() == 0 && a.out.err == nil {
		// ReadHead will send it. A pooled connection was looked at just now: nothing can come before the request.
		a.held, a.complete = true, true
		return nil
	}
	err := a.out.flush()
	a.complete = err == nil
	return err
}

// Sent implements pipeline.Upstream.
func (a *attempt) Sent() bool { return a.out.n.Load() > 0 }

// RawWriter implements pipeline.Upstream.
func (a *attempt) RawWriter(n int64) *netio.Conn {
	if a.reqFraming != outLength || a.out.flush() != nil {
		return nil
	}
	a.out.n.Add(n)
	return a.conn.Conn
}

// Received implements pipeline.Upstream.
func (a *attempt) Received() bool { return a.in.n > 0 }

// ReadHead implements pipeline.Upstream.
func (a *attempt) ReadHead(r *pipeline.Response, until time.Time) error {
	if err := a.first(until); err != nil {
		return err
	}
	head, err := a.in.readHead(a.lim, false, until)
	if err != nil {
		return err
	}
	a.f = framing{}
	*r = pipeline.Response{Fields: r.Fields[:0]}
	if err := parseResponse(r, &a.f, head, a.lim, a.method); err != nil {
		return err
	}
	switch {
	case r.Status == 101:
		if a.upgrade == "" || !switchedTo(a.upgrade, r.Fields) || !a.accepted(r.Fields) {
			return errSwitched
		}
	case r.Status < 200:
		if a.interims++; a.interims > maxInterims {
			return errInterims
		}
		return nil
	}
	a.final = true
	a.startBody(r)
	return nil
}

// first waits for the first bytes of a head, and sends the request before that if it was held back.
func (a *attempt) first(until time.Time) error {
	if a.held {
		a.held = false
		return a.in.ask(&a.out, until)
	}
	return a.in.wait(until)
}

func (a *attempt) startBody(r *pipeline.Response) {
	switch {
	case r.NoBody:
		a.resp.start(&a.in, bodyNone, 0, true)
	case a.f.chunked:
		a.resp.start(&a.in, bodyChunked, 0, true)
	case a.f.hasLength:
		a.resp.start(&a.in, bodyLength, a.f.length, true)
	default:
		a.resp.start(&a.in, bodyToClose, 0, true)
	}
}

// Body implements pipeline.Upstream.
func (a *attempt) Body() pipeline.Body { return &a.resp }

// Interrupt implements pipeline.Upstream.
func (a *attempt) Interrupt() { a.conn.Abort() }

// Close implements pipeline.Upstream. A connection serves again only if it stands exactly between two messages: the
// request was written to its end, the response read to its end, nothing lies behind it, and nobody said close.
func (a *attempt) Close(clean bool) {
	reusable := clean && a.final && a.complete && a.resp.done && a.in.buffered() == 0 && a.out.err == nil &&
		a.f.persistent() && !a.conn.Aborted()
	c := a.conn
	a.release()
	c.Release(reusable)
}

func (a *attempt) release() {
	a.in.release()
	a.out.release()
	a.in.c, a.out.c, a.conn = nil, nil, nil
	a.method, a.upgrade = "", ""
	attempts.Put(a)
}

// Tunnel implements pipeline.Upstream. The bytes it returns are valid until Close.
func (a *attempt) Tunnel() (*netio.Conn, []byte) {
	a.tunnel, a.reqFraming = true, outToClose
	a.resp.start(&a.in, bodyToClose, 0, true)
	return a.conn.Conn, a.in.cur[a.in.r:a.in.w]
}
