package pipeline

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/route"
	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// Get implements route.Fields.
func (q *Request) Get(name string) (string, bool) {
	v, _, ok := q.Next(name, 0)
	return v, ok
}

// Next implements route.Fields.
func (q *Request) Next(name string, from int) (string, int, bool) {
	for i := from; i < len(q.Fields); i++ {
		if f := &q.Fields[i]; route.EqualFold(f.Name, name) {
			return f.Value, i + 1, true
		}
	}
	return "", len(q.Fields), false
}

// match finds service and route, or answers that there is none.
func (x *Exchange) match() bool {
	q := &x.Req
	dir := x.snap.Outbound
	if x.p.Direction == telemetry.Inbound {
		dir = x.snap.Inbound
	}
	x.identify()
	svc, ok := dir.Get(x.p.Service)
	if x.p.Service == "" {
		svc, ok = dir.Find(q.Authority)
	}
	if !ok {
		x.answer(resilience.NoRoute, 404, "no service takes this host")
		return false
	}
	x.svc = svc
	if q.Method == "CONNECT" {
		x.rt = svc.Rest
		x.bind()
		return true
	}
	if svc.Protocol == "tcp" {
		x.answer(resilience.NoRoute, 404, "its protocol is tcp: use CONNECT, or its own port (services."+svc.Name+".listen)")
		return false
	}
	if !x.bridge() {
		return false
	}
	if q.Path != "*" {
		path, verdict := route.NormalizePath(x.pathBuf[:0], q.Path)
		if verdict != route.PathOK {
			x.answer(resilience.BadRequest, 400, verdict.String())
			return false
		}
		q.Path = path
	}
	x.facts = route.Facts{
		Method: q.Method, Host: q.Authority, Path: q.Path, Query: q.Query, Fields: q, Hash: x.idHash,
		Caller: route.Caller{Addr: x.peer.Addr},
	}
	if x.p.Direction == telemetry.Outbound {
		x.facts.Caller.Service, x.facts.Caller.Labels = x.snap.Mesh.Config.Node.Service, x.snap.Mesh.Config.Node.Labels
	}
	x.rt = svc.Match(&x.facts)
	x.bind()
	return true
}

// bind ties the exchange to the counters of its route.
func (x *Exchange) bind() {
	if s, ok := x.rt.Meters.(*telemetry.Series); ok {
		x.out.Series = s
		s.Begin()
	}
}

// identify reads who asks and what for from fields that are not about routing: request id, trace, deadline. What others
// must not be able to claim is dropped.
func (x *Exchange) identify() {
	q := &x.Req
	for i := range q.Fields {
		f := &q.Fields[i]
		if f.Drop {
			continue
		}
		switch f.ID {
		case FieldXRequestID:
			if x.requestID == "" && route.IsRequestID(f.Value) {
				x.requestID = f.Value
			} else {
				f.Drop = true
			}
		case FieldTraceparent:
			if id, ok := traceID(f.Value); ok && x.out.TraceID == "" {
				x.out.TraceID = id
			} else {
				f.Drop = true
			}
		case FieldEnvoyTimeout:
			if ms, err := strconv.ParseUint(f.Value, 10, 32); err == nil && ms > 0 {
				x.lower(x.Start.Add(time.Duration(ms) * time.Millisecond))
			} else {
				f.Drop = true
			}
		case FieldContentType:
			x.call.is = q.Version == HTTP2 && isGRPC(f.Value)
		case FieldGRPCTimeout:
			if d, ok := parseGRPCTimeout(f.Value); ok {
				x.lower(x.Start.Add(d))
			} else {
				f.Drop = true
			}
		case FieldXSidecar, FieldOffline, FieldGRPCPrevious:
			f.Drop = true
		}
	}
	if x.requestID == "" {
		at := len(x.text)
		x.text = appendID(x.text, random(), random())
		x.requestID = str(x.text[at:])
		q.Fields = append(q.Fields, Field{Name: "X-Request-Id", Value: x.requestID, ID: FieldXRequestID})
	}
	x.idHash = route.Hash(x.requestID)
}

// appendID adds a random UUID (version 4, RFC 9562).
func appendID(b []byte, hi, lo uint64) []byte {
	hi = hi&^0xf000 | 0x4000
	lo = lo&^(3<<62) | 2<<62
	var raw [16]byte
	for i := range 8 {
		raw[i], raw[8+i] = byte(hi>>(56-8*i)), byte(lo>>(56-8*i))
	}
	b = hex.AppendEncode(b, raw[:4])
	for _, part := range [...][]byte{raw[4:6], raw[6:8], raw[8:10], raw[10:]} {
		b = append(b, '-')
		b = hex.AppendEncode(b, part)
	}
	return b
}

// traceID returns the trace id of a W3C traceparent (version, trace, parent, flags).
func traceID(s string) (string, bool) {
	if len(s) < 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" ||
		len(s) > 55 && (s[:2] == "00" || s[55] != '-') {
		return "", false
	}
	zero := [2]bool{true, true}
	for i := range 55 {
		if i == 2 || i == 35 || i == 52 {
			continue
		}
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", false
		}
		if c != '0' {
			zero[0] = zero[0] && (i < 3 || i > 34)
			zero[1] = zero[1] && (i < 36 || i > 51)
		}
	}
	return s[3:35], !zero[0] && !zero[1]
}

// prepare makes of the request what is sent on: forwarding fields, rewrites, the target.
func (x *Exchange) prepare() bool {
	q, cfg := &x.Req, x.snap.Mesh.Config
	trusted := false
	for _, net := range cfg.Listen.TrustForwarded {
		trusted = trusted || net.Contains(x.peer.Addr)
	}
	before := ""
	host, proto := false, false
	for i := range q.Fields {
		f := &q.Fields[i]
		switch f.ID {
		case FieldXForwardedFor:
			f.Drop = true
			if trusted && before == "" {
				before = f.Value
			} else if trusted {
				before = x.join(before, ", ", f.Value)
			}
		case FieldXForwardedProto:
			f.Drop = f.Drop || !trusted
			proto = proto || !f.Drop
		case FieldXForwardedHost:
			f.Drop = f.Drop || !trusted
			host = host || !f.Drop
		case FieldAlias:
			f.Drop = true
		case FieldForwarded, FieldXForwardedOther:
			f.Drop = f.Drop || !trusted
		}
	}
	if before != "" {
		before = x.join(before, ", ", x.peer.Text)
	} else {
		before = x.peer.Text
	}
	q.Fields = append(q.Fields, Field{Name: "X-Forwarded-For", Value: before, ID: FieldXForwardedFor})
	if !proto {
		q.Fields = append(q.Fields, Field{Name: "X-Forwarded-Proto", Value: "http", ID: FieldXForwardedProto})
	}
	if rw := x.rt.Rewrite; rw != nil {
		x.rewrite(rw, host)
	}
	if q.Authority == "" {
		q.Authority = x.svc.Name // HTTP/1.0 without Host: the next hop needs one
	}
	x.setHost(q.Authority)
	to := x.rt.Targets[0]
	if x.rt.Split != nil {
		to = x.rt.Targets[x.rt.Split.Pick(x.idHash)]
	}
	return x.choose(to)
}

// setHost makes the Host field say what the request is meant for, which an absolute target or a rewrite may have changed.
func (x *Exchange) setHost(authority string) {
	for i := range x.Req.Fields {
		if f := &x.Req.Fields[i]; f.ID == FieldHost {
			f.Value = authority
			return
		}
	}
}

func (x *Exchange) rewrite(rw *snapshot.Rewrite, forwardedHost bool) {
	q := &x.Req
	if rw.Path != nil && q.Path != "*" {
		at := len(x.text)
		q.Path = rw.Path.Path(x.text[at:], q.Path)
		x.text = x.text[:min(cap(x.text), at+len(q.Path))]
		x.ownQuery()
	}
	for _, name := range rw.Remove {
		for i := range q.Fields {
			if f := &q.Fields[i]; route.EqualFold(f.Name, name) {
				f.Drop = true
			}
		}
	}
	for _, h := range rw.Set {
		for i := range q.Fields {
			if f := &q.Fields[i]; route.EqualFold(f.Name, h.Name) {
				f.Drop = true
			}
		}
		q.Fields = append(q.Fields, Field{Name: h.Name, Value: h.Value, ID: Classify(h.Name)})
	}
	if rw.Host != "" {
		if !forwardedHost {
			q.Fields = append(q.Fields, Field{Name: "X-Forwarded-Host", Value: q.Authority, ID: FieldXForwardedHost})
		}
		q.Authority = rw.Host
	}
}

// ownQuery settles the query where a rewrite has put one into the path: the request's own goes behind it.
func (x *Exchange) ownQuery() {
	q := &x.Req
	path, query, found := strings.Cut(q.Path, "?")
	switch {
	case !found:
		return
	case q.HasQuery && q.Query != "":
		query = x.join(query, "&", q.Query)
	}
	q.Path, q.Query, q.HasQuery = path, query, true
}

// join concatenates in memory that lives as long as the exchange.
func (x *Exchange) join(parts ...string) string {
	at := len(x.text)
	for _, p := range parts {
		x.text = append(x.text, p...)
	}
	return str(x.text[at:])
}
