package admin

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/explain"
	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// Service is what /services says of each service.
type Service struct {
	Name      string   `json:"name"`
	Direction string   `json:"direction"`
	Protocol  string   `json:"protocol"`
	Hosts     []string `json:"hosts"`
	Listen    string   `json:"listen,omitempty"`
	From      string   `json:"from"`
	Known     int      `json:"endpoints_known"`
	Usable    int      `json:"endpoints_usable"`
	Breaker   string   `json:"breaker"`
	Active    []string `json:"active"` // what protects it now, in words; empty: nothing has to
	// Failing are those of its sources that cannot be heard: what they said last is in use.
	Failing []explain.Source `json:"failing,omitempty"`
	Traffic Traffic          `json:"traffic"`

	// Of an inbound service: how its app is doing, where somebody asks it, and where it is registered.
	App           *App           `json:"app,omitempty"`
	Registrations []Registration `json:"registrations,omitempty"`
}

// Traffic is what went through a service or route since it is known.
type Traffic struct {
	Requests uint64 `json:"requests"` // and TCP connections, that ended
	Failed   uint64 `json:"failed"`   // with a status of 5xx or without any, TCP connections for a reason
	InFlight int64  `json:"in_flight"`
	Attempts uint64 `json:"attempts"`
	Retries  uint64 `json:"retries"`
	// Rate is requests per second over the last one to two minutes; only for a service as a whole.
	Rate *float64 `json:"rate_per_second,omitempty"`
	// Latency is that of the last one to two minutes; only for a service as a whole, and absent without traffic.
	Latency *Latency `json:"latency,omitempty"`
}

// Latency is quantiles in milliseconds.
type Latency struct {
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	P9999 float64 `json:"p9999_ms"`
	Count uint64  `json:"count"`
}

// directions are the two sides of a snapshot, in the order in which they are shown.
func directions(s *snapshot.Snapshot) [2]*snapshot.Directory {
	return [2]*snapshot.Directory{telemetry.Outbound: s.Outbound, telemetry.Inbound: s.Inbound}
}

func (a *api) services(w http.ResponseWriter, r *http.Request) {
	s := a.process.Snapshot()
	if s == nil {
		starting(w, r)
		return
	}
	t := a.traffic()
	list := []Service{}
	for dir, d := range directions(s) {
		for _, svc := range d.List {
			list = append(list, t.service(s, telemetry.Direction(dir), svc))
		}
	}
	answer(w, http.StatusOK, struct {
		Services []Service `json:"services"`
	}{list})
}

// traffic is the counters of all routes at one moment.
type traffic struct {
	a     *api
	now   time.Time
	stats map[seriesKey]telemetry.SeriesStats
	whole map[seriesKey]Traffic // of services, all routes together
}

type seriesKey struct {
	dir            telemetry.Direction
	service, route string
}

func (a *api) traffic() *traffic {
	t := &traffic{a: a, now: a.now(), stats: map[seriesKey]telemetry.SeriesStats{}, whole: map[seriesKey]Traffic{}}
	for _, v := range a.recorder.Stats() {
		t.stats[seriesKey{v.Direction, v.Service, v.Route}] = v
		k := seriesKey{dir: v.Direction, service: v.Service}
		sum, one := t.whole[k], trafficOf(&v)
		sum.Requests += one.Requests
		sum.Failed += one.Failed
		sum.InFlight += one.InFlight
		sum.Attempts += one.Attempts
		sum.Retries += one.Retries
		t.whole[k] = sum
	}
	return t
}

func trafficOf(v *telemetry.SeriesStats) Traffic {
	t := Traffic{
		Requests: v.Requests + v.Connections, Failed: v.Status[0] + v.Status[5],
		InFlight: v.InFlight, Attempts: v.Attempts, Retries: v.Retries,
	}
	if v.Connections > 0 && v.Requests == 0 {
		for reason, n := range v.Reasons {
			if reason > 0 {
				t.Failed += n
			}
		}
	}
	return t
}

// service sums up one service.
func (t *traffic) service(snap *snapshot.Snapshot, dir telemetry.Direction, s *snapshot.Service) Service {
	v := Service{
		Name: s.Name, Direction: dir.String(), Protocol: s.Protocol, Hosts: s.Hosts(), Listen: s.Listen, From: originOf(s),
		Known: len(s.Endpoints), Breaker: explain.BreakerText(s.Rest, t.now), Active: filled(explain.Active(snap, s, t.now)),
		Traffic: t.whole[seriesKey{dir: dir, service: s.Name}],
	}
	for _, src := range explain.Sources(s) {
		if src.Stale {
			v.Failing = append(v.Failing, src)
		}
	}
	for _, e := range s.Endpoints {
		if e.Meter.State.Load() == 0 {
			v.Usable++
		}
	}
	if s.Inbound {
		t.a.own(&v)
	}
	q := t.a.recorder.Latency(dir, s.Name)
	rate := float64(q.Count) / t.a.window(t.now).Seconds()
	v.Traffic.Rate = &rate
	if q.Count > 0 {
		v.Traffic.Latency = &Latency{ms(q.P50), ms(q.P90), ms(q.P99), ms(q.P999), ms(q.P9999), q.Count}
	}
	return v
}

// window is how long the time is that latencies are kept of: the last complete minute and the one under way.
func (a *api) window(now time.Time) time.Duration {
	return max(time.Second, min(time.Minute+time.Duration(now.Second())*time.Second, now.Sub(a.started)))
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func originOf(s *snapshot.Service) string {
	if s.Inbound {
		return s.InboundConfig.From.String()
	}
	return s.Config.From.String()
}

// ServiceDetail is what /services/NAME says.
type ServiceDetail struct {
	Service
	Sources     []explain.Source   `json:"sources"`
	Endpoints   []explain.Endpoint `json:"endpoints"`
	LeftOut     []explain.Doubt    `json:"left_out,omitempty"` // known and not used, with the reason
	Subset      *explain.Subset    `json:"subset,omitempty"`   // of the endpoints that are listed; nil: all
	Policy      []explain.Field    `json:"policy"`
	Connections Upstream           `json:"upstream_connections"`
	Routes      []Route            `json:"routes"` // the last one is the service as a whole
	Advice      []Advice           `json:"advice"` // about time limits
}

// Upstream counts the connections to the endpoints of a service.
type Upstream struct {
	Open         int64  `json:"open"`
	Idle         int64  `json:"idle"`
	Connects     uint64 `json:"connects"`
	Failures     uint64 `json:"connect_failures"`
	Ejections    uint64 `json:"ejections"`
	Readmissions uint64 `json:"readmissions"`
}

// Route is one route of a service, with the meters it is under: those of the service, where it has none of its own.
type Route struct {
	Index   int             `json:"index"` // -1: the service as a whole
	Name    string          `json:"name"`
	Match   string          `json:"match,omitempty"`
	From    string          `json:"from,omitempty"`
	Action  string          `json:"action"`
	Policy  []explain.Field `json:"policy,omitempty"` // where it is not that of the service
	Breaker Breaker         `json:"breaker"`
	Limit   Limit           `json:"limit"`
	Traffic Traffic         `json:"traffic"`
}

// Breaker is a circuit breaker and its window.
type Breaker struct {
	State    string `json:"state"` // none, closed, open, half_open
	OK       uint32 `json:"ok"`
	Failed   uint32 `json:"failed"`
	TimedOut uint32 `json:"timed_out"`
	Rejected uint32 `json:"rejected"`
}

// Limit is a limit in use.
type Limit struct {
	InFlight    int `json:"in_flight"`
	MaxInFlight int `json:"max_in_flight"`
	Waiting     int `json:"waiting"`
	MaxWaiting  int `json:"max_waiting"`
}

func (a *api) service(w http.ResponseWriter, r *http.Request) {
	s := a.process.Snapshot()
	if s == nil {
		starting(w, r)
		return
	}
	name, want := strings.TrimPrefix(r.URL.Path, "/services/"), r.URL.Query().Get("direction")
	for dir, d := range directions(s) {
		svc, ok := d.Get(name)
		if ok && (want == "" || want == telemetry.Direction(dir).String()) {
			answer(w, http.StatusOK, a.detail(s, telemetry.Direction(dir), svc))
			return
		}
	}
	refuse(w, r, problem{Status: http.StatusNotFound, Title: "no such service", Detail: "GET /services lists them"})
}

func (a *api) detail(s *snapshot.Snapshot, dir telemetry.Direction, svc *snapshot.Service) ServiceDetail {
	t := a.traffic()
	up := a.recorder.UpstreamStats(svc.Name)
	v := ServiceDetail{
		Service: t.service(s, dir, svc), Sources: explain.Sources(svc), Policy: explain.Policy(s.Mesh.Config, svc.Rest),
		Endpoints:   explain.Endpoints(svc.Rest.Targets[0], t.now),
		LeftOut:     explain.LeftOut(svc),
		Subset:      explain.SubsetOf(svc),
		Connections: Upstream{up.Open, up.Idle, up.Connects, up.Failures, up.Ejections, up.Readmissions},
		Routes:      make([]Route, 0, len(svc.Routes)+1),
		Advice:      filled(advise(dir, svc, a.recorder.Latency(dir, svc.Name), outboundOnly(dir, inboundTimeout(s)))),
	}
	for i, r := range svc.Routes {
		one := t.route(dir, r)
		one.Index, one.Match, one.From = i, svc.MatchText(i), r.Config.From.String()
		for _, f := range explain.Policy(s.Mesh.Config, r) {
			if !slices.Contains(v.Policy, f) {
				one.Policy = append(one.Policy, f)
			}
		}
		v.Routes = append(v.Routes, one)
	}
	v.Routes = append(v.Routes, t.route(dir, svc.Rest))
	return v
}

// route describes a route and its meters.
func (t *traffic) route(dir telemetry.Direction, r *snapshot.Route) Route {
	v := Route{Index: -1, Name: r.Name, Action: "forward", Breaker: Breaker{State: explain.BreakerText(r, t.now)}}
	if st, ok := t.stats[seriesKey{dir, r.Service.Name, r.Name}]; ok {
		v.Traffic = trafficOf(&st)
	}
	switch {
	case r.Respond != nil:
		v.Action = "respond"
	case r.Redirect != nil:
		v.Action = "redirect"
	case r.Split != nil:
		v.Action = "split"
	}
	if r.Breaker != nil {
		c := r.Breaker.Counts(t.now)
		v.Breaker.OK, v.Breaker.Failed, v.Breaker.TimedOut, v.Breaker.Rejected = c.OK, c.Failed, c.TimedOut, c.Rejected
	}
	v.Limit.MaxInFlight, v.Limit.MaxWaiting = explain.Limits(r)
	v.Limit.InFlight, v.Limit.Waiting = r.Limiter.InUse()
	return v
}
