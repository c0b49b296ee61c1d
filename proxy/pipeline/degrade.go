package pipeline

import (
	"encoding/binary"
	"html"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/route"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// shield returns the switch that keeps the call from being made, or nil (S-160).
func (x *Exchange) shield() *snapshot.Switch {
	for _, w := range x.rt.Shields {
		shields, c := w.State.Shields(x.Clock, random())
		x.switched(w, c)
		if shields {
			return w
		}
	}
	return nil
}

func (x *Exchange) switched(w *snapshot.Switch, c resilience.SwitchChange) {
	if c.Changed() {
		x.p.Observer.Switched(w, c)
	}
}

// shielded answers in place of the service where a switch says so.
func (x *Exchange) shielded() bool {
	w := x.shield()
	if w == nil {
		return false
	}
	x.p.Recorder.UpstreamConn(x.svc.Name).StoodIn("shield")
	x.out.Detail = "the switch " + w.Name + " is on"
	if !x.standIn(w.Answer, resilience.Degraded) {
		x.answer(resilience.Degraded, 0, x.out.Detail)
	}
	return true
}

// shieldedTCP does the same for a connection: it ends in order, behind what there is to say, or is reset (an error).
func (x *Exchange) shieldedTCP(s *rawStream) bool {
	w := x.shield()
	if w == nil {
		return false
	}
	x.p.Recorder.UpstreamConn(x.svc.Name).StoodIn("shield")
	x.out.Reason, x.out.Detail = resilience.Degraded, "the switch "+w.Name+" is on"
	s.orderly = w.Answer.Config.Kind != snapshot.KindError
	if body := w.Answer.Config.Body; body != "" {
		n, err := s.conn.Write([]byte(body), x.rt.IdleTimeout)
		x.out.BytesOut = int64(n)
		if err != nil {
			x.out.Detail += ": " + err.Error()
		}
	}
	if s.orderly { // what it sent is not read: closing now could overtake what we said
		_ = s.conn.CloseWrite()
		s.linger()
	}
	return true
}

// lingerTime bounds how long a connection that is degraded is read from behind our end.
const lingerTime = time.Second

// linger reads what comes until the client closes.
func (s *rawStream) linger() {
	until := time.Now().Add(lingerTime)
	var b [4 << 10]byte
	for {
		if _, err := s.conn.Read(b[:], until); err != nil {
			return
		}
	}
}

// watch tells the switches that watch the route how a call ended that was made, or refused by a meter of ours.
func (x *Exchange) watch() {
	if len(x.rt.Watchers) == 0 || x.out.Reason == resilience.CallerGone || x.hurried(x.Start, &x.ended) {
		return
	}
	failed := x.out.Reason != resilience.None || x.out.Status >= 500 || x.ended.Failed()
	for _, w := range x.rt.Watchers {
		x.switched(w, w.State.Record(x.Clock, failed))
	}
}

// standFor returns what answers in place of a failure of the call: what a switch of a person or of its rule says, else the
// policy's fallback (S-163: the one is set, the other comes by itself).
func (x *Exchange) standFor(covers func(*resilience.Failures) bool) *snapshot.StandIn {
	if x.rt == nil || x.standing || x.raw {
		return nil
	}
	for _, w := range x.rt.StandIns {
		_, c := w.State.Shields(x.Clock, 0) // its ramp goes on, though all calls are made
		x.switched(w, c)
		if w.State.State() != resilience.SwitchOff && covers(&w.When) {
			return w.Answer
		}
	}
	if f := x.rt.Fallback; f != nil && covers(&f.When) {
		return f.Answer
	}
	return nil
}

// replaceRefusal answers in place of a refusal of ours, where something stands in for it.
func (x *Exchange) replaceRefusal(reason resilience.Reason, detail string) bool {
	s := x.standFor(func(f *resilience.Failures) bool { return f.Refusal(reason) })
	if s == nil {
		return false
	}
	x.out.Detail = detail
	return x.replace(s, reason)
}

// replaceAnswer answers in place of what an endpoint answered, where something stands in for that.
func (x *Exchange) replaceAnswer() bool {
	if x.rt.Fallback == nil && len(x.rt.StandIns) == 0 || !x.ended.Failed() && x.ended.Status < 400 {
		return false
	}
	s := x.standFor(func(f *resilience.Failures) bool { return f.Answer(x.ended) })
	if s == nil {
		return false
	}
	if !x.able(s) {
		return false
	}
	x.out.Detail = "the endpoint answered " + strconv.Itoa(x.ended.Status)
	if x.ended.GRPC != resilience.NotGRPC {
		x.out.Detail = "the endpoint answered " + x.ended.GRPC.String()
	}
	x.abandon()
	return x.replace(s, resilience.Degraded)
}

func (x *Exchange) replace(s *snapshot.StandIn, reason resilience.Reason) bool {
	if !x.standIn(s, reason) {
		return false
	}
	x.out.Fallback = s.Config.Kind
	x.p.Recorder.UpstreamConn(x.svc.Name).StoodIn("fallback")
	return true
}

// able reports whether there is what stands in: an answer that was good once, or all of the request to ask our app with.
func (x *Exchange) able(s *snapshot.StandIn) bool {
	switch s.Config.Kind {
	case snapshot.KindStale:
		if x.good == nil { // once: the next moment another may push it out
			x.good = x.lastGood(s)
		}
		return x.good != nil
	case snapshot.KindLocal:
		return !x.upload.lost && !x.call.is // it speaks HTTP/1.1, which no call of gRPC can be answered by
	}
	return true
}

// appMayStandIn reports whether our own app may be asked if the call fails, which then needs the body of the request.
func (x *Exchange) appMayStandIn() bool {
	if f := x.rt.Fallback; f != nil && f.Answer.Local != nil {
		return true
	}
	for _, w := range x.rt.StandIns {
		if w.Answer.Local != nil && w.State.State() != resilience.SwitchOff {
			return true
		}
	}
	return false
}

// standIn answers in place of the service. It reports whether it could.
func (x *Exchange) standIn(s *snapshot.StandIn, reason resilience.Reason) bool {
	if !x.able(s) {
		return false
	}
	x.standing = true
	x.out.Reason = reason
	switch s.Config.Kind {
	case snapshot.KindLocal:
		x.askLocal(s, reason)
		return true
	case snapshot.KindStale:
		x.answerStale(x.good, reason)
		return true
	case snapshot.KindError:
		x.answerError(s, reason)
		return true
	}
	body := ""
	if s.Config.Kind == snapshot.KindAnswer {
		body = x.bodyOf(s)
	}
	if x.call.is {
		x.answerMessage(body, reason)
		return true
	}
	r := x.begun(s.Config.Status, reason)
	typed := body == ""
	for _, h := range s.Config.Headers {
		id := Classify(h.Name)
		typed = typed || id == FieldContentType
		r.Fields = append(r.Fields, Field{Name: h.Name, Value: h.Value, ID: id})
	}
	if !typed {
		r.Fields = append(r.Fields, Field{Name: "Content-Type", Value: "text/plain; charset=utf-8", ID: FieldContentType})
	}
	x.sendLocal([]byte(body))
	return true
}

// begun starts an answer that stands in, and says why.
func (x *Exchange) begun(status int, reason resilience.Reason) *Response {
	x.out.Reason, x.out.Status = reason, status
	r := &x.resp
	*r = Response{Status: status, Local: true, Fields: append(r.Fields[:0], Field{Name: "Date", Value: now().date},
		Field{Name: "X-Sidecar-Reason", Value: reason.String()})}
	return r
}

// answerError answers with the failure that is configured (exception).
func (x *Exchange) answerError(s *snapshot.StandIn, reason resilience.Reason) {
	detail := s.Config.Message
	if detail == "" {
		detail = x.out.Detail
	}
	if x.call.is {
		x.out.Reason, x.out.Detail = reason, detail
		x.grpcAnswer(int(s.GRPC-resilience.GRPCOK), detail)
		x.resp.Fields = append(x.resp.Fields, Field{Name: "x-sidecar-reason", Value: reason.String()})
		x.sendLocal(nil)
		return
	}
	x.answer(reason, s.Config.Status, detail)
}

// answerMessage answers a gRPC call well, with one message.
func (x *Exchange) answerMessage(body string, reason resilience.Reason) {
	x.out.Reason, x.out.Status, x.call.status = reason, 200, resilience.GRPCOK
	r := &x.resp
	*r = Response{Status: 200, Local: true, Length: LengthUnknown, Fields: append(r.Fields[:0],
		Field{Name: "content-type", Value: "application/grpc", ID: FieldContentType},
		Field{Name: "x-sidecar-reason", Value: reason.String()})}
	x.out.FirstByte = time.Since(x.Start)
	message := binary.BigEndian.AppendUint32(append(make([]byte, 0, 5+len(body)), 0), uint32(len(body)))
	message = append(message, body...)
	x.out.BytesOut = int64(len(message))
	x.call.out.feed(message)
	err := x.down.Head(r, !x.down.Body().Whole())
	if err == nil {
		err = x.down.Write(message)
	}
	if err == nil {
		err = x.down.End([]Field{{Name: "grpc-status", Value: "0", ID: FieldGRPCStatus}})
	}
	if err != nil {
		x.out.Detail = err.Error()
	}
}

// askLocal has our own app answer. How the call of the service ended stays what it was: that is what meters and log are about.
func (x *Exchange) askLocal(s *snapshot.StandIn, reason resilience.Reason) {
	rt, to, ep, ended, action := x.rt, x.to, x.ep, x.ended, x.action
	detail, attempts, deadline := x.out.Detail, x.out.Attempts, x.deadline
	path, fields := x.Req.Path, len(x.Req.Fields)
	x.rt, x.to, x.ep, x.tried = s.Local, s.Local.Targets[0], nil, x.tried[:0]
	x.Req.Path = s.Path
	x.Req.Fields = append(x.Req.Fields, Field{Name: "X-Fallback-For", Value: x.svc.Name}, Field{Name: "X-Fallback-Reason", Value: reason.String()})
	x.Clock = time.Now()
	x.deadline = time.Time{} // it may be over: the app beside us has its own
	if x.try() {
		x.relay()
		if x.out.Reason == resilience.None {
			x.out.Reason, x.out.Detail = reason, detail
		}
	}
	x.rt, x.to, x.ep, x.ended, x.action = rt, to, ep, ended, action
	x.out.Attempts, x.deadline = attempts, deadline
	x.Req.Path, x.Req.Fields = path, x.Req.Fields[:fields] // a copy may still be sent
}

// bodyOf is the body of a fixed answer, with its placeholders filled in.
func (x *Exchange) bodyOf(s *snapshot.StandIn) string {
	if s.Text == nil {
		return s.Config.Body
	}
	var b strings.Builder
	for i := range s.Text {
		part := &s.Text[i]
		b.WriteString(part.Text)
		if part.Kind != "" {
			b.WriteString(escape(s.Escape, x.placeholder(part)))
		}
	}
	return b.String()
}

// mostPlaced bounds what one placeholder stands for: it is the caller's.
const mostPlaced = 4 << 10

func (x *Exchange) placeholder(p *snapshot.TextPart) string {
	v := ""
	switch p.Kind {
	case "method":
		v = x.Req.Method
	case "path":
		v = x.Req.Path
	case "query":
		v, _ = route.QueryValue(x.Req.Query, p.Name)
		if plain, err := url.QueryUnescape(v); err == nil {
			v = plain
		}
	case "header":
		v, _ = x.Req.Get(p.Name)
	case "service":
		v = x.svc.Name
	case "request_id":
		v = x.requestID
	case "reason":
		v = x.out.Reason.String()
	}
	return strings.ToValidUTF8(v[:min(len(v), mostPlaced)], "")
}

// escape makes a value of the caller's safe in its place.
func escape(how snapshot.Escape, v string) string {
	switch how {
	case snapshot.EscapeHTML:
		return html.EscapeString(v)
	case snapshot.EscapeJSON:
		return escapeJSON(v)
	}
	return v
}

func escapeJSON(v string) string {
	var b strings.Builder
	for _, c := range v {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c < ' ' || c == '<' || c == '>' || c == '&' || c == 0x2028 || c == 0x2029:
			b.WriteString(`\u`)
			h := strconv.FormatInt(int64(c), 16)
			b.WriteString("0000"[len(h):] + h)
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}
