// Package explain says what would become of a request and why: which service takes its host, which route fits and why the
// earlier ones do not, what is rewritten, which policy holds and where each field was written, which endpoints are usable
// and why the others are not, who would be picked next. It is pure and asks the very code that decides on the data path,
// without disturbing it: no turn is taken, nothing is counted. It owns nothing. Tests: tables and golden texts here, and
// an end-to-end test that compares it with what the real proxy does.
package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/route"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// Request is what is asked about.
type Request struct {
	Method string // empty: GET
	URL    string // http://host/path?query, host/path, or /path with a Host field
	Header []Header
	// Caller is the service that asks; empty: our own app, or for an inbound request nobody knows who. Address is where from.
	Caller  string
	Address netip.Addr
	Inbound bool
	// Service names the service at whose own port the request comes in (services.NAME.listen); empty: the host decides.
	Service string
}

// Explanation is the answer, for people by Text and for programs as JSON.
type Explanation struct {
	Request Facts   `json:"request"`
	Outcome Outcome `json:"outcome"`

	Service *Service `json:"service,omitempty"`
	Passed  []Passed `json:"passed_routes,omitempty"` // the routes before the one that fits
	Route   *Route   `json:"route,omitempty"`
	Varies  bool     `json:"varies,omitempty"` // the request id decides, and the request has none
	Sent    *Sent    `json:"sent,omitempty"`
	Grey    *Grey    `json:"grey,omitempty"`
	Policy  []Field  `json:"policy,omitempty"`
	Plan    *Plan    `json:"plan,omitempty"`
	Targets []Target `json:"targets,omitempty"`
}

// Facts is the request as rules see it.
type Facts struct {
	Direction string `json:"direction"`
	Method    string `json:"method"`
	Host      string `json:"host"`
	Path      string `json:"path"` // normalised
	AsSent    string `json:"path_as_sent,omitempty"`
	Query     string `json:"query,omitempty"`
	Caller    string `json:"caller,omitempty"`
	RequestID string `json:"request_id,omitempty"`
}

// The kinds of Outcome.
const (
	Forwarded = "forwarded"
	Answered  = "answered" // by a respond or redirect route, a switch that is on, or a fallback
	Refused   = "refused"
)

// Outcome is what happens to the request.
type Outcome struct {
	Kind     string     `json:"kind"`
	Status   int        `json:"status,omitempty"` // of a local answer; 0: none, or that of the app at Location
	Reason   string     `json:"reason,omitempty"` // as in x-sidecar-reason
	Detail   string     `json:"detail,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	Location string     `json:"location,omitempty"`
	Headers  []Header   `json:"headers,omitempty"`
	Body     string     `json:"body,omitempty"`
}

// Header is a name and a value.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// ParseHeader reads "NAME: VALUE".
func ParseHeader(text string) (Header, error) {
	name, value, ok := strings.Cut(text, ":")
	if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsAny(name, " \t") {
		return Header{}, fmt.Errorf("%q: NAME: VALUE is expected", text)
	}
	return Header{Name: name, Value: strings.TrimSpace(value)}, nil
}

// Service is the one that takes the request.
type Service struct {
	Name     string `json:"name"`
	Pattern  string `json:"host_pattern,omitempty"`
	Why      string `json:"why"`
	Protocol string `json:"protocol"`
	From     string `json:"from"`
}

// Passed is a route that was looked at before the one that fits.
type Passed struct {
	Index  int    `json:"index"`
	Name   string `json:"name"`
	Match  string `json:"match"`
	Misses string `json:"misses"`
	// Share is the part of such requests that this route takes, where the request id decides and the request has none.
	Share float64 `json:"share,omitempty"`
}

// Route is the one that fits, or with Index -1 what is left to the service as a whole.
type Route struct {
	Index int    `json:"index"`
	Name  string `json:"name,omitempty"`
	Match string `json:"match,omitempty"`
	From  string `json:"from,omitempty"`
}

// Sent is the request as it is sent on.
type Sent struct {
	Host    string   `json:"host"`
	Path    string   `json:"path"` // with query
	Changed bool     `json:"changed"`
	Set     []Header `json:"set_headers,omitempty"`
	Removed []string `json:"removed_headers,omitempty"`
}

// Plan is how often and how long is tried.
type Plan struct {
	Attempts   int    `json:"attempts"` // at most, but for a dead pooled connection
	Timeout    string `json:"timeout"`
	PerTry     string `json:"per_try_timeout,omitempty"`
	Idempotent bool   `json:"idempotent"`
	Why        string `json:"idempotent_because"`
	Breaker    string `json:"breaker"`
	InFlight   int    `json:"in_flight"`
	Waiting    int    `json:"waiting"`
}

// question is one explanation in the making.
type question struct {
	snap  *snapshot.Snapshot
	now   time.Time
	facts route.Facts
	known bool // the request has an id
	svc   *snapshot.Service
	rt    *snapshot.Route
	e     *Explanation
}

// Explain explains what would become of a request now. The error says what is wrong with the question.
func Explain(s *snapshot.Snapshot, r Request, now time.Time) (*Explanation, error) {
	q := &question{snap: s, now: now, e: &Explanation{Outcome: Outcome{Kind: Forwarded}}}
	if err := q.read(&r); err != nil {
		return nil, err
	}
	if !q.service(&r) {
		return q.e, nil
	}
	if q.facts.Method == "CONNECT" {
		q.connect()
		return q.e, nil
	}
	if !q.route() {
		return q.e, nil
	}
	q.rest()
	return q.e, nil
}

// read takes the request apart.
func (q *question) read(r *Request) error {
	method := r.Method
	if method == "" {
		method = "GET"
	}
	if strings.ContainsAny(method, " \t\r\n") {
		return errors.New("the method must be one word")
	}
	host, target, err := split(method, r.URL)
	if err != nil {
		return err
	}
	header := make(route.FieldList, len(r.Header), len(r.Header)+1)
	for i, h := range r.Header {
		header[i] = route.Field(h)
	}
	if given, ok := header.Get("host"); ok {
		host = given
	} else {
		header = append(header, route.Field{Name: "Host", Value: host})
	}
	path, query := route.PathOf(target)
	q.facts = route.Facts{Method: method, Host: host, Path: path, Query: query, Fields: header}
	q.facts.Caller = route.Caller{Service: r.Caller, Addr: r.Address}
	q.e.Request = Facts{Direction: "outbound", Method: method, Host: host, Path: path, Query: query}
	if r.Inbound {
		q.e.Request.Direction = "inbound"
	} else if r.Caller == "" {
		node := &q.snap.Mesh.Config.Node
		q.facts.Caller.Service, q.facts.Caller.Labels = node.Service, node.Labels
	}
	q.e.Request.Caller = q.facts.Caller.Service
	if q.e.Request.Caller == "" && r.Address.IsValid() {
		q.e.Request.Caller = r.Address.String()
	}
	if id, ok := requestID(header); ok {
		q.known, q.e.Request.RequestID = true, id
		q.facts.Hash = route.Hash(id)
	}
	return nil
}

// service finds who takes the host, or refuses.
func (q *question) service(r *Request) bool {
	d := q.snap.Outbound
	if r.Inbound {
		d = q.snap.Inbound
	}
	v := &Service{}
	ok := false
	switch {
	case r.Service != "":
		q.svc, ok = d.Get(r.Service)
		v.Why = "its own port"
	case r.Inbound && len(d.List) == 1:
		q.svc, ok = d.List[0], true
		v.Why = "the only service of our app"
	default:
		q.svc, v.Pattern, ok = d.Which(q.facts.Host)
		v.Why = "host " + v.Pattern
	}
	if !ok {
		return q.refuse(resilience.NoRoute, 404, "no service takes this host")
	}
	v.Name, v.Protocol = q.svc.Name, q.svc.Protocol
	v.From = originOf(q.svc).String()
	q.e.Service = v
	return true
}

// route finds the route, or refuses.
func (q *question) route() bool {
	if q.svc.Protocol == "tcp" {
		return q.refuse(resilience.NoRoute, 404, "its protocol is tcp: use CONNECT, or its own port (services."+q.svc.Name+".listen)")
	}
	if q.facts.Path != "*" {
		path, verdict := route.NormalizePath(nil, q.facts.Path)
		if verdict != route.PathOK {
			return q.refuse(resilience.BadRequest, 400, verdict.String())
		}
		if path != q.facts.Path {
			q.e.Request.AsSent = q.facts.Path
		}
		q.facts.Path, q.e.Request.Path = path, path
	}
	for i, r := range q.svc.Routes {
		misses := q.svc.Misses(i, &q.facts)
		p := Passed{Index: i, Name: r.Name, Match: q.svc.MatchText(i), Misses: misses}
		switch {
		case !q.known && partial(r) && (misses == "" || misses == "percent"):
			p.Misses, p.Share = "percent", r.Config.Match.Percent
			q.e.Varies = true
		case misses == "":
			q.rt = r
			q.e.Route = &Route{Index: i, Name: r.Name, Match: p.Match, From: r.Config.From.String()}
			return true
		}
		q.e.Passed = append(q.e.Passed, p)
	}
	q.rt = q.svc.Rest
	q.e.Route = &Route{Index: -1}
	return true
}

// partial reports whether the request id has a say in whether a route fits.
func partial(r *snapshot.Route) bool {
	m := &r.Config.Match
	return m.HasPercent && m.Percent < 1
}

// connect is about a CONNECT, which looks at no route.
func (q *question) connect() {
	q.rt = q.svc.Rest
	q.e.Route = &Route{Index: -1}
	if q.svc.Protocol != "tcp" {
		q.refuse(resilience.BadRequest, 405, "CONNECT reaches only services with protocol: tcp")
		return
	}
	q.forward()
}

// rest is what follows once there is a route.
func (q *question) rest() {
	r := q.rt
	switch {
	case r.Redirect != nil:
		q.e.Outcome = Outcome{Kind: Answered, Status: r.Redirect.Status, Location: r.Redirect.To}
		return
	case r.Respond != nil:
		q.e.Outcome = Outcome{Kind: Answered, Status: r.Respond.Status, Body: r.Respond.Body}
		for _, h := range r.Respond.Headers {
			q.e.Outcome.Headers = append(q.e.Outcome.Headers, Header(h))
		}
		return
	}
	q.sent()
	if !q.guarded() {
		q.forward()
	}
}

// sent says what the endpoint gets.
func (q *question) sent() {
	v := &Sent{Host: q.facts.Host}
	path := q.facts.Path
	if rw := q.rt.Rewrite; rw != nil {
		v.Changed = true
		if rw.Path != nil && path != "*" {
			path = rw.Path.Path(nil, path)
		}
		v.Removed = rw.Remove
		for _, h := range rw.Set {
			v.Set = append(v.Set, Header(h))
		}
		if rw.Host != "" {
			if _, ok := q.facts.Fields.Get("x-forwarded-host"); !ok {
				v.Set = append(v.Set, Header{"X-Forwarded-Host", v.Host})
			}
			v.Host = rw.Host
		}
	}
	if v.Host == "" {
		v.Host = q.svc.Name
	}
	v.Path = path
	if q.facts.Query != "" {
		v.Path += "?" + q.facts.Query
	}
	q.e.Sent = v
}

// refuse notes a local answer that says no.
func (q *question) refuse(reason resilience.Reason, status int, detail string) bool {
	q.e.Outcome = Outcome{Kind: Refused, Status: status, Reason: reason.String(), Detail: detail}
	q.replaced(reason)
	return false
}
