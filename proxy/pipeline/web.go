package pipeline

import (
	"errors"
	"io"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/grpcweb"
	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// web is the downstream half of a gRPC-Web call, looking like that of a call of gRPC: it stands between the exchange and
// the engine's stream. It holds no more of a body than the piece on its way.
type web struct {
	Stream // of the engine
	x      *Exchange
	typ    grpcweb.Type
	text   bool   // the answer goes out in base64
	plain  bool   // the answer is none of gRPC, and goes out as it is
	only   bool   // the head is all of the answer
	allow  string // the origin that may read the answer; empty: no word about origins
	vary   bool   // the answer depends on the origin
	cors   *snapshot.Web
	body   webBody
	enc    grpcweb.Encoder
	buf    []byte
}

// bridge makes a request of gRPC-Web one of gRPC, where its service takes that, or answers why not. It does nothing to other
// requests.
func (x *Exchange) bridge() bool {
	cors := x.svc.Web
	if cors == nil {
		return true
	}
	q := &x.Req
	if q.Method == "OPTIONS" && len(cors.Origins) > 0 {
		return !x.preflight(cors)
	}
	if q.Method != "POST" || q.Upgrade != "" {
		return true
	}
	contentType, typ, ok := webType(q.Fields)
	if !ok {
		return true
	}
	origin, _ := q.Get("origin")
	accept, _ := q.Get("accept")
	w := &x.web
	w.Stream, w.x, w.typ, w.text, w.cors = x.down, x, typ, typ.AnswerAsText(accept), cors
	w.allow, w.vary = allowed(cors, origin)
	w.body.of = w
	x.down = w
	x.call.is = true
	if h, ok := w.Stream.(HangUp); ok {
		h.HangUp() // browsers close a connection to cancel what runs on it
	}
	contentType.Value = typ.GRPC()
	w.clean()
	if coding, ok := q.Get("content-encoding"); ok && !strings.EqualFold(coding, "identity") {
		x.answer(resilience.BadRequest, 415, "content-encoding of a body of gRPC-Web is not supported")
		return false
	}
	return true
}

// webType finds the content type, where that is one of gRPC-Web.
func webType(fields []Field) (*Field, grpcweb.Type, bool) {
	for i := range fields {
		if f := &fields[i]; f.ID == FieldContentType && !f.Drop {
			t, ok := grpcweb.Parse(f.Value)
			return f, t, ok
		}
	}
	return nil, grpcweb.Type{}, false
}

// clean takes out of the request what is about gRPC-Web itself.
func (w *web) clean() {
	q := &w.x.Req
	for i := range q.Fields {
		f := &q.Fields[i]
		switch f.ID {
		case FieldContentLength:
			f.Drop = f.Drop || w.typ.Text
		case FieldOther:
			f.Drop = f.Drop || equalFold(f.Name, "accept") || equalFold(f.Name, "x-grpc-web")
		}
	}
	if w.typ.Text && q.Length > 0 {
		q.Length = LengthUnknown
	}
	q.TrailersWanted = true
}

// allowed tells which origin an answer is for, and whether that depends on who asks.
func allowed(cors *snapshot.Web, origin string) (allow string, vary bool) {
	switch {
	case len(cors.Origins) == 0:
		return "", false
	case len(cors.Origins) == 1 && cors.Origins[0] == grpcweb.AnyOrigin:
		return grpcweb.AnyOrigin, false
	case origin != "" && grpcweb.Allows(cors.Origins, origin):
		return origin, true
	}
	return "", true
}

// reset forgets the call; the memory for a piece stays, unless it is much.
func (w *web) reset() {
	buf, in := w.buf, w.body.buf
	if cap(buf) > 64<<10 {
		buf = nil
	}
	if cap(in) > 64<<10 {
		in = nil
	}
	*w = web{buf: buf}
	w.body.buf = in
}

// Body implements Stream.
func (w *web) Body() Body {
	if !w.typ.Text {
		return w.Stream.Body()
	}
	return &w.body
}

// Head implements Stream.
func (w *web) Head(r *Response, unread bool) error {
	contentType := -1
	status := false
	for i := range r.Fields {
		f := &r.Fields[i]
		switch {
		case f.Drop:
		case f.ID == FieldContentType:
			contentType = i
		case f.ID == FieldGRPCStatus:
			status = true
		case len(w.cors.Origins) > 0 && hasPrefixFold(f.Name, "access-control-"):
			f.Drop = true // the knob says it
		}
	}
	w.plain = r.Status != 200 || contentType < 0 || !isGRPC(r.Fields[contentType].Value)
	if !w.plain {
		f := &r.Fields[contentType]
		f.Value = w.typ.AnswerType(w.text, f.Value)
		if w.only = status && r.Length == 0; !w.only {
			w.open(r)
		}
	}
	w.share(r)
	return w.Stream.Head(r, unread)
}

// open takes the length off an answer that the frame of trailers makes longer.
func (w *web) open(r *Response) {
	for i := range r.Fields {
		if f := &r.Fields[i]; f.ID == FieldContentLength {
			f.Drop = true
		}
	}
	r.Length, r.KeepLength = LengthUnknown, false
}

// share adds what lets scripts of the caller's origin read the answer, all of its fields included (Fetch, CORS protocol).
func (w *web) share(r *Response) {
	if w.allow != "" {
		names := exposed(r.Fields)
		r.Fields = append(r.Fields, Field{Name: "Access-Control-Allow-Origin", Value: w.allow},
			Field{Name: "Access-Control-Expose-Headers", Value: names})
		if w.cors.Credentials {
			r.Fields = append(r.Fields, Field{Name: "Access-Control-Allow-Credentials", Value: "true"})
		}
	}
	if w.vary {
		r.Fields = append(r.Fields, Field{Name: "Vary", Value: "Origin"})
	}
}

// exposed lists the names of the fields that a script may see.
func exposed(fields []Field) string {
	var b strings.Builder
	b.WriteString("grpc-status,grpc-message")
	for i := range fields {
		f := &fields[i]
		if f.Drop || f.ID == FieldGRPCStatus || f.ID == FieldTransferEncoding || equalFold(f.Name, "grpc-message") || equalFold(f.Name, "set-cookie") {
			continue
		}
		b.WriteByte(',')
		b.WriteString(strings.ToLower(f.Name))
	}
	return b.String()
}

// Write implements Stream. Padding behind a message lets the client read it; in its middle that would be of no use.
func (w *web) Write(p []byte) error {
	if w.plain || !w.text {
		return w.Stream.Write(p)
	}
	w.buf = w.enc.Encode(w.buf[:0], p)
	if out := &w.x.call.out; out.left == 0 && out.have == 0 {
		w.buf = w.enc.Pad(w.buf)
	}
	return w.some(w.buf)
}

func (w *web) some(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	return w.Stream.Write(p)
}

// End implements Stream: trailers become the last frame of the body, unless the head is all of the answer.
func (w *web) End(trailers []Field) error {
	if w.plain || w.only {
		return w.Stream.End(nil)
	}
	frame := w.buf[:0]
	if len(trailers) > 0 {
		frame = grpcweb.BeginTrailers(frame)
		for i := range trailers {
			if f := &trailers[i]; !f.Drop {
				frame = grpcweb.AppendTrailer(frame, f.Name, f.Value)
			}
		}
		frame = grpcweb.EndTrailers(frame, 0)
	}
	if w.text {
		n := len(frame)
		frame = w.enc.Pad(w.enc.Encode(frame, frame))[n:]
	}
	w.buf = frame[:0]
	if err := w.some(frame); err != nil {
		return err
	}
	return w.Stream.End(nil)
}

// RawWriter implements Stream: the bytes of gRPC-Web are those of gRPC, but for base64.
func (w *web) RawWriter(n int64) *netio.Conn {
	if w.text && !w.plain {
		return nil
	}
	return w.Stream.RawWriter(n)
}

// webBody takes the base64 off a request body.
type webBody struct {
	of  *web
	dec grpcweb.Decoder
	buf []byte
}

// Next implements Body. A piece may turn out to be empty.
func (b *webBody) Next(until time.Time) ([]byte, error) {
	p, err := b.of.Stream.Body().Next(until)
	if err == nil {
		b.buf, err = b.dec.Decode(b.buf[:0], p)
		p = b.buf
	} else if errors.Is(err, io.EOF) {
		if bad := b.dec.End(); bad != nil {
			err = bad
		}
	}
	if errors.Is(err, grpcweb.ErrBase64) || errors.Is(err, grpcweb.ErrTruncated) {
		return nil, &ProtocolError{Status: 400, Text: err.Error()}
	}
	return p, err
}

// Buffered implements Body.
func (b *webBody) Buffered() bool { return b.of.Stream.Body().Buffered() }

// Whole implements Body.
func (b *webBody) Whole() bool { return b.of.Stream.Body().Whole() }

// Trailers implements Body.
func (b *webBody) Trailers() []Field { return b.of.Stream.Body().Trailers() }

// Raw implements Body.
func (b *webBody) Raw() (*netio.Conn, int64) { return nil, 0 }

// Advance implements Body.
func (b *webBody) Advance(int64) {}

// preflight answers a browser that asks whether a script may call (Fetch, CORS-preflight request). It reports false when the
// request is no such question.
func (x *Exchange) preflight(cors *snapshot.Web) bool {
	q := &x.Req
	origin, _ := q.Get("origin")
	_, asks := q.Get("access-control-request-method")
	if origin == "" || !asks {
		return false
	}
	x.rt = x.svc.Rest
	x.bind()
	allow, vary := allowed(cors, origin)
	if allow == "" {
		x.answer(resilience.Forbidden, 403, "scripts of "+origin+" may not call it (grpc_web.origins)")
		return true
	}
	r := &x.resp
	*r = Response{Status: 204, Local: true, Fields: append(r.Fields[:0], Field{Name: "Date", Value: now().date},
		Field{Name: "Access-Control-Allow-Origin", Value: allow},
		Field{Name: "Access-Control-Allow-Methods", Value: "POST"},
		Field{Name: "Access-Control-Max-Age", Value: cors.MaxAge})}
	if headers, ok := q.Get("access-control-request-headers"); ok {
		r.Fields = append(r.Fields, Field{Name: "Access-Control-Allow-Headers", Value: headers})
	}
	if cors.Credentials {
		r.Fields = append(r.Fields, Field{Name: "Access-Control-Allow-Credentials", Value: "true"})
	}
	if vary {
		r.Fields = append(r.Fields, Field{Name: "Vary", Value: "Origin"})
	}
	x.out.Status = r.Status
	x.sendLocal(nil)
	return true
}
