package h2

import (
	"errors"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

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
	_ pipeline.Sink        = (*attempt)(nil)
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
	case !s.takesLocked(q.Fields, len(q.Method)+len(q.Authority)+len(q.Path)+len(q.Query)+1):
		a.refused = pipeline.ErrTooLarge
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
		enc.usual(usualMethod, ":method", q.Method)
	} else {
		enc.constant(":method", "CONNECT")
		enc.add(":protocol", a.protocol)
	}
	enc.static(staticHTTP)
	enc.usual(usualAuthority, ":authority", q.Authority)
	if !q.HasQuery {
		enc.usual(usualPath, ":path", q.Path)
		return
	}
	enc.text = append(append(append(enc.text[:0], q.Path...), '?'), q.Query...)
	enc.usual(usualPath, ":path", unsafe.String(unsafe.SliceData(enc.text), len(enc.text)))
}

func (a *attempt) head(end bool) error {
	a.c.session.mu.Lock()
	defer a.c.session.mu.Unlock()
	return a.headLocked(end)
}

// SendBody implements pipeline.Upstream.
func (a *attempt) SendBody(p []byte) error {
	a.c.session.mu.Lock()
	defer a.c.session.mu.Unlock()
	if err := a.headLocked(false); err != nil {
		return err
	}
	return a.st.sendLocked(p, a.c.session.lim.IdleTimeout, a.hurry)
}

// Offer implements pipeline.Sink. Its caller has sent the head.
func (a *attempt) Offer(p []byte) (bool, pipeline.Sender) { return a.st.offer(p) }

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
	if !some || !s.takesLocked(trailers, 0) { // trailers may be left out (RFC 9110 6.5.1)
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

// PeerLeaves reports whether the peer has sent GOAWAY.
func (a *attempt) PeerLeaves() bool {
	a.c.session.mu.Lock()
	defer a.c.session.mu.Unlock()
	return a.c.session.peerAway
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
			st.late = false
			s.mu.Unlock()
			a.got = true
			problem := h.response(r, a.method)
			h.release()
			if problem != "" {
				return &pipeline.ProtocolError{Status: 502, Text: problem}
			}
			if r.Offline != 0 && !a.PeerLeaves() {
				r.Offline = 0 // it speaks of somebody behind our peer
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
			st.late = true
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
		slow := st.late && !st.rxEnd && st.err == nil
		busy := errors.Is(st.err, pipeline.ErrTooBusy)
		if (!st.rxEnd || !st.sentEnd) && !wasReset(st.err) {
			st.resetLocked(cancelled)
		}
		s.forgetLocked(st.id, st.excused())
		s.closeIfIdleLocked()
		s.mu.Unlock()
		st.release()
		if slow {
			c.slow(time.Now())
		}
		if busy {
			c.pool.calmDown(time.Now())
		}
	}
	*a = attempt{}
	attempts.Put(a)
	c.done()
}

// Tunnel implements pipeline.Upstream: a stream has no socket of its own.
func (a *attempt) Tunnel() (*netio.Conn, []byte) { return nil, nil }
