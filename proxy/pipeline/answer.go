package pipeline

import (
	"errors"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// Refuse answers a request that an engine could not read, and records it.
func (p *Pipeline) Refuse(x *Exchange, down Stream, status int, detail string) {
	x.p, x.down, x.snap, x.Clock = p, down, p.Store.Load(), x.Start
	if contentType, ok := x.Req.Get("content-type"); ok {
		x.call.is = x.Req.Version == HTTP2 && isGRPC(contentType)
	}
	x.answer(resilience.BadRequest, status, detail)
	x.record()
}

// Note records a request that broke off before it could be answered.
func (p *Pipeline) Note(x *Exchange, detail string) { p.unanswered(x, resilience.CallerGone, detail) }

// NoRequest records what was no request at all, to which no answer would be understood.
func (p *Pipeline) NoRequest(x *Exchange, detail string) {
	p.unanswered(x, resilience.BadRequest, detail)
}

func (p *Pipeline) unanswered(x *Exchange, reason resilience.Reason, detail string) {
	x.p = p
	x.out.Reason, x.out.Detail = reason, detail
	x.record()
}

// fail answers locally since no attempt can succeed.
func (x *Exchange) fail(a resilience.Action) {
	if a.Reason != resilience.CallerGone {
		status := 0
		if a.Reason == resilience.BadRequest { // of an endpoint that takes no head as large
			status = 431
		}
		if a.Reason == resilience.Overloaded {
			x.p.Recorder.UpstreamConn(x.to.Service.Name).LimitRefused(resilience.LimitConnections.String())
			x.retryAfter(time.Now().Add(time.Second))
		}
		x.answer(a.Reason, status, x.out.Detail)
		return
	}
	var pe *ProtocolError
	switch err := x.upload.downErr; {
	case errors.As(err, &pe):
		x.answer(resilience.BadRequest, pe.Status, "in the request body: "+pe.Text)
	case errors.Is(err, netio.ErrTimeout):
		x.answer(resilience.BadRequest, 408, "no byte of the request body within idle_timeout")
	case err != nil && !errors.Is(err, io.EOF):
		// The client may have closed only its sending side: it is told.
		x.answer(resilience.CallerGone, 400, "in the request body: "+err.Error())
	default:
		x.out.Reason = resilience.CallerGone
		if x.out.Detail == "" {
			x.out.Detail = "the client left before it was answered"
		}
		x.down.Abort()
	}
}

// answer sends an answer of our own: one line of text that names the reason, the service and what to look at. A status of
// 0 stands for what the reason says.
func (x *Exchange) answer(reason resilience.Reason, status int, detail string) {
	if x.replaceRefusal(reason, detail) {
		return
	}
	if status == 0 {
		status = reason.HTTPStatus()
	}
	x.out.Reason, x.out.Detail, x.out.Status = reason, detail, status
	body := make([]byte, 0, 128)
	body = append(body, reason.String()...)
	if x.svc != nil {
		body = append(body, ": service "...)
		body = append(body, x.svc.Name...)
	}
	if detail != "" {
		body = append(body, ": "...)
		body = append(body, detail...)
	}
	body = append(body, '\n')
	if x.call.is {
		x.grpcAnswer(grpcStatus(reason, status), str(body[:len(body)-1]))
		x.resp.Fields = append(x.resp.Fields, Field{Name: "x-sidecar-reason", Value: reason.String()})
		x.sendLocal(nil)
		return
	}
	r := &x.resp
	*r = Response{Status: status, Fields: append(r.Fields[:0], Field{Name: "Date", Value: now().date},
		Field{Name: "Content-Type", Value: "text/plain; charset=utf-8", ID: FieldContentType},
		Field{Name: "X-Sidecar-Reason", Value: reason.String()}), Local: true}
	if x.retryIn > 0 {
		r.Fields = append(r.Fields, Field{Name: "Retry-After", Value: strconv.FormatInt(x.retryIn, 10)})
	}
	if status == 405 {
		r.Fields = append(r.Fields, Field{Name: "Allow", Value: "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS"})
	}
	x.sendLocal(body)
}

// sendLocal sends x.resp with a body of our own.
func (x *Exchange) sendLocal(text []byte) {
	r := &x.resp
	r.Length = int64(len(text))
	r.NoBody = x.Req.Method == "HEAD" || r.Status == 204 || r.Status == 304
	x.out.FirstByte = time.Since(x.Start)
	body := x.down.Body()
	err := x.down.Head(r, body != nil && !body.Whole())
	if err == nil && !r.NoBody && len(text) > 0 { // without a body it is one head: gRPC wants that
		x.out.BytesOut = int64(len(text))
		err = x.down.Write(text)
	}
	if err == nil {
		err = x.down.End(nil)
	}
	if err != nil && x.out.Reason == resilience.None {
		x.out.Reason, x.out.Detail = resilience.CallerGone, err.Error()
	}
}

// retryAfter sets what the answer says about when to come back, in whole seconds, at least one.
func (x *Exchange) retryAfter(t time.Time) {
	x.retryIn = max(1, int64(time.Until(t)+time.Second-1)/int64(time.Second))
}

// respond answers as the route says.
func (x *Exchange) respond() {
	r := &x.resp
	*r = Response{Fields: append(r.Fields[:0], Field{Name: "Date", Value: now().date}), Local: true}
	var body string
	if rd := x.rt.Redirect; rd != nil {
		r.Status = rd.Status
		r.Fields = append(r.Fields, Field{Name: "Location", Value: rd.To})
	} else {
		rs := x.rt.Respond
		r.Status, body = rs.Status, rs.Body
		typed := body == ""
		for _, h := range rs.Headers {
			id := Classify(h.Name)
			typed = typed || id == FieldContentType
			r.Fields = append(r.Fields, Field{Name: h.Name, Value: h.Value, ID: id})
		}
		if !typed {
			r.Fields = append(r.Fields, Field{Name: "Content-Type", Value: "text/plain; charset=utf-8", ID: FieldContentType})
		}
	}
	if x.call.is && x.rt.Respond != nil && r.Status != 200 {
		x.grpcRespond()
		return
	}
	x.out.Status = r.Status
	x.sendLocal([]byte(body))
}

// connect serves a CONNECT: a tunnel to a service whose protocol is tcp, and to nothing else.
func (x *Exchange) connect() {
	if x.svc.Protocol != "tcp" {
		x.answer(resilience.BadRequest, 405, "CONNECT reaches only services with protocol: tcp")
		return
	}
	x.raw = true
	if w := x.shield(); w != nil {
		x.p.Recorder.UpstreamConn(x.svc.Name).StoodIn("shield")
		x.answer(resilience.Degraded, 0, "the switch "+w.Name+" is on")
		return
	}
	if !x.choose(x.rt.Targets[0]) || !x.admit() {
		return
	}
	if x.try() {
		x.resp = Response{Status: 200, NoBody: true, Local: true, Fields: x.resp.Fields[:0]}
		x.out.Status = 200
		x.switchProtocols()
	}
	x.leave()
	x.watch()
}

// ServeTCP connects a connection to a service and relays until its end. first is what was read from down already.
func (p *Pipeline) ServeTCP(x *Exchange, down *netio.Conn, first []byte, name string) {
	x.p, x.snap, x.raw, x.Clock = p, p.Store.Load(), true, x.Start
	d := x.snap.Outbound
	if p.Direction == telemetry.Inbound {
		d = x.snap.Inbound
	}
	x.out.Protocol = "tcp"
	s := &rawStream{conn: down, first: first}
	x.down = s
	defer func() {
		x.out.Status = 0 // nothing was answered: there are no messages
		x.record()
	}()
	defer func() {
		if x.out.Reason != resilience.None && !s.orderly {
			down.Reset() // so that it looks like what it is: a peer that refuses
		}
		_ = down.Close()
	}()
	svc, ok := d.Get(name)
	if !ok {
		x.out.Reason, x.out.Detail = resilience.NoRoute, "the service is gone"
		return
	}
	x.svc, x.rt = svc, svc.Rest
	x.bind()
	if x.shieldedTCP(s) {
		return
	}
	if !x.choose(x.rt.Targets[0]) || !x.admit() {
		return
	}
	if x.try() {
		x.out.Upgraded = true
		x.out.FirstByte = time.Since(x.Start)
		x.tunnel()
	}
	x.leave()
	x.watch()
}

// rawStream is the downstream half of a TCP connection: it has no messages, so an answer of our own is a reset.
type rawStream struct {
	conn  *netio.Conn
	first []byte
	// orderly says that what was refused ends as if the service had closed the connection.
	orderly bool
}

func (s *rawStream) Body() Body                    { return nil }
func (s *rawStream) InterruptBody()                {}
func (s *rawStream) ResumeBody()                   {}
func (s *rawStream) Guard(Upstream) bool           { return false }
func (s *rawStream) Interim(*Response) error       { return nil }
func (s *rawStream) Head(*Response, bool) error    { return nil }
func (s *rawStream) Write([]byte) error            { return nil }
func (s *rawStream) Flush() error                  { return nil }
func (s *rawStream) End([]Field) error             { return nil }
func (s *rawStream) RawWriter(int64) *netio.Conn   { return nil }
func (s *rawStream) Abort()                        {}
func (s *rawStream) Tunnel() (*netio.Conn, []byte) { return s.conn, s.first }

// clock is the current second, written as HTTP wants it.
type clock struct {
	second int64
	date   string
}

var current atomic.Pointer[clock]

// now returns the clock of the current second.
func now() *clock {
	t := time.Now()
	c := current.Load()
	if c == nil || c.second != t.Unix() {
		c = &clock{t.Unix(), t.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")}
		current.Store(c)
	}
	return c
}

// record hands the exchange to telemetry.
func (x *Exchange) record() {
	if !x.left {
		x.Clock = time.Now()
	}
	x.recordAt(x.Clock)
}

func (x *Exchange) recordAt(now time.Time) {
	o := &x.out
	o.Direction, o.Start, o.Total = x.p.Direction, x.Start, now.Sub(x.Start)
	if o.Protocol == "" {
		o.Protocol = x.Req.Version.String()
	}
	if x.svc != nil {
		o.Service = x.svc.Name
	}
	if x.rt != nil {
		o.Route = x.rt.Name
	}
	if x.ep != nil {
		o.Endpoint = x.ep.Address
		o.Version, _ = x.ep.Counts.(*telemetry.Version)
	}
	o.Caller, o.Method, o.Host, o.Path = x.peer.Full, x.Req.Method, x.Req.Authority, x.Req.Target
	o.RequestID = x.requestID
	o.GRPC, o.MessagesIn, o.MessagesOut = x.call.status, x.call.in.n, x.call.out.n
	if !o.Upgraded {
		o.BytesIn = x.upload.bytes.Load()
	}
	x.p.Recorder.Record(o)
}
