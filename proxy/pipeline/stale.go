package pipeline

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// What is remembered for `fallback.stale` is what may stand in for a later answer to the same request: a 200 to a GET that
// says nothing of a user. A request with credentials or a cookie, or an answer that sets one, forbids storing or serving it
// later, or varies by what the key does not hold, is never remembered (RFC 9111 3, 3.5 and 4.2.4, where it speaks of shared
// caches, and stricter): the key holds all fields but those of which we know that answers do not depend on them.

// staleKey writes what an answer is remembered under, or reports that it must not be.
func (x *Exchange) staleKey() bool {
	q := &x.Req
	if q.Method != "GET" || q.HasBody || q.Upgrade != "" {
		return false
	}
	x.key = append(x.key[:0], x.svc.Name...)
	for _, part := range [...]string{x.rt.Name, q.Authority, q.Path, q.Query} {
		x.key = append(append(x.key, 0), part...)
	}
	if q.HasQuery {
		x.key = append(x.key, '?')
	}
	for i := range q.Fields {
		f := &q.Fields[i]
		if f.ID != FieldOther {
			continue
		}
		switch {
		case equalFold(f.Name, "authorization"), equalFold(f.Name, "cookie"), equalFold(f.Name, "range"):
			return false
		case !neutral(f.Name):
			x.key = append(append(append(append(x.key, 0), f.Name...), '='), f.Value...)
		}
	}
	return true
}

// neutral reports whether a field says nothing about whom an answer is for: those of tracing, forwarding, conditions and the
// client's program. What else is known of fields, Classify names.
func neutral(name string) bool {
	for _, n := range [...]string{
		"user-agent", "referer", "cache-control", "pragma", "priority", "x-priority", "dnt", "tracestate", "baggage", "b3",
		"uber-trace-id", "x-correlation-id", "x-trace-id", "x-span-id", "x-real-ip",
	} {
		if equalFold(name, n) {
			return true
		}
	}
	for _, p := range [...]string{"if-", "sec-", "x-b3-", "sw8", "x-envoy-", "x-datadog-"} {
		if hasPrefixFold(name, p) {
			return true
		}
	}
	return false
}

// remember begins to keep the answer that is about to be relayed, where its route wants it.
func (x *Exchange) remember() {
	x.keeping = false
	f := x.rt.Fallback
	if f == nil || f.Stale == nil || x.standing || x.resp.Status != 200 || x.resp.Length > resilience.StaleBody || x.call.is ||
		!x.staleKey() || !f.Stale.Wants(x.Clock, x.key) || !storable(x.resp.Fields) {
		return
	}
	x.keeping, x.kept = true, x.kept[:0]
}

// storable reports whether an answer says nothing against being given to another.
func storable(fields []Field) bool {
	for i := range fields {
		f := &fields[i]
		switch {
		case equalFold(f.Name, "set-cookie"):
			return false
		case equalFold(f.Name, "cache-control"):
			v := strings.ToLower(f.Value)
			for _, forbids := range [...]string{"no-store", "private", "no-cache", "revalidate"} { // must- and proxy-revalidate
				if strings.Contains(v, forbids) {
					return false
				}
			}
		case equalFold(f.Name, "vary"):
			for name := range strings.SplitSeq(f.Value, ",") {
				if name = strings.TrimSpace(name); !hasPrefixFold(name, "accept") && !equalFold(name, "origin") {
					return false
				}
			}
		}
	}
	return true
}

// keep keeps a piece of the body.
func (x *Exchange) keep(p []byte) {
	if len(x.kept)+len(p) > resilience.StaleBody {
		x.keeping = false
		return
	}
	x.kept = append(x.kept, p...)
}

// remembered puts the answer where it can be found again, once all of it has come.
func (x *Exchange) remembered() {
	if !x.keeping {
		return
	}
	x.keeping = false
	a := &resilience.StaleAnswer{Status: x.resp.Status, Body: bytes.Clone(x.kept), At: time.Now()}
	for i := range x.resp.Fields {
		f := &x.resp.Fields[i]
		if !f.Drop && f.ID != FieldContentLength && f.ID != FieldTransferEncoding && f.ID != FieldTrailer && !equalFold(f.Name, "date") && !equalFold(f.Name, "age") {
			a.Fields = append(a.Fields, [2]string{strings.Clone(f.Name), strings.Clone(f.Value)})
		}
	}
	x.rt.Fallback.Stale.Put(x.key, a)
}

// lastGood finds the last good answer to the request.
func (x *Exchange) lastGood(s *snapshot.StandIn) *resilience.StaleAnswer {
	f := x.rt.Fallback
	if s.Config.Kind != snapshot.KindStale || f == nil || x.call.is || !x.staleKey() {
		return nil
	}
	return f.Stale.Get(x.Clock, x.key, s.Config.Stale)
}

// answerStale answers with what was good once, and says how old it is.
func (x *Exchange) answerStale(a *resilience.StaleAnswer, reason resilience.Reason) {
	r := x.begun(a.Status, reason)
	for _, f := range a.Fields {
		r.Fields = append(r.Fields, Field{Name: f[0], Value: f[1], ID: Classify(f[0])})
	}
	age := max(0, x.Clock.Sub(a.At)/time.Second)
	r.Fields = append(r.Fields, Field{Name: "Age", Value: strconv.FormatInt(int64(age), 10)})
	x.sendLocal(a.Body)
}
