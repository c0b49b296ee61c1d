package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/explain"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a process whose answers a test sets.
type script struct {
	gate      Gate
	snap      *snapshot.Snapshot
	readiness Readiness
	reloads   Reloads
	conns     Connections
	state     Drain
	apps      []App
	regs      []Registration
	drained   chan struct{}
	asked     []string
	switches  []Switch
	journal   []SwitchChange
	writes    []SwitchWrite
}

func (p *script) Snapshot() *snapshot.Snapshot  { return p.snap }
func (p *script) Readiness() Readiness          { return p.readiness }
func (p *script) Reloads() Reloads              { return p.reloads }
func (p *script) Connections() Connections      { return p.conns }
func (p *script) Apps() []App                   { return p.apps }
func (p *script) Registrations() []Registration { return p.regs }
func (p *script) Drained() <-chan struct{}      { return p.drained }

func (p *script) Drain() Drain {
	p.asked = append(p.asked, "drain")
	select {
	case <-p.drained:
		return Drain{State: "drained"}
	default:
		return p.state
	}
}

func (p *script) Switches() ([]Switch, []SwitchChange) { return p.switches, p.journal }

func (p *script) SetSwitch(name string, w SwitchWrite) (Switch, error) {
	for _, s := range p.switches {
		switch {
		case s.Name != name:
			continue
		case s.Level == 3 && *w.Enabled && !w.Confirm:
			return Switch{}, fmt.Errorf("%w: level 3", ErrUnconfirmed)
		}
		p.writes = append(p.writes, w)
		s.State = "off"
		if *w.Enabled {
			s.State = "on"
		}
		return s, nil
	}
	return Switch{}, fmt.Errorf("%w %s", ErrNoSwitch, name)
}

func (p *script) Quit() Drain {
	p.asked = append(p.asked, "quit")
	return p.state
}

func (p *script) Gate() Gate { return p.gate }

func (p *script) SetGate(closed bool, share float64) Gate {
	p.gate.Closed, p.gate.Share = closed, share
	return p.gate
}

const shop = `
node: {service: shop}
policies: {named: {timeout: 3s}}
services:
  catalog:
    hosts: [catalog, "*.catalog"]
    policy: {use: named}
    endpoints: [10.0.0.1:80, {address: 10.0.0.2:80, weight: 2, labels: {version: v2}}]
    routes:
      - {name: one, match: GET /one/*, policy: {retry: 2, breaker: none}}
      - {match: /gone, respond: {status: 410}}
  bytes: {protocol: tcp, listen: 127.0.0.1:9000, endpoints: [10.0.0.3:80], policy: {breaker: none}}
inbound: [{app: 127.0.0.1:8080}]
`

// rig returns a server of the API, in front of a process with a snapshot in force and some traffic behind it.
func rig(t *testing.T) (*script, *telemetry.Recorder, *Server) {
	t.Helper()
	cfg, err := config.LoadBytes("shop.yaml", []byte(shop), config.RankFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	mesh := &config.Mesh{Config: cfg, Revision: "0123456789ab", Endpoints: map[string]*config.EndpointSet{}}
	for name, s := range cfg.Services {
		mesh.Endpoints[name] = &config.EndpointSet{List: s.Endpoints, Sources: []config.SourceState{{Name: "static", Answered: true}}}
	}
	snap, err := snapshot.Compile(mesh, nil, snapshot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := telemetry.New(telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rec.Close(context.Background()) })
	p := &script{snap: snap, readiness: Readiness{Ready: true}, state: Drain{State: "draining"}, drained: make(chan struct{})}
	s := New(Options{Process: p, Recorder: rec, Log: slog.New(slog.DiscardHandler)})
	s.api.started = s.api.started.Add(-time.Minute)
	return p, rec, s
}

// ask sends a request to a table of paths.
func ask(h http.Handler, method, target string, fields ...string) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	r.Host = "127.0.0.1:15000"
	for i := 0; i < len(fields); i += 2 {
		if r.Header.Set(fields[i], fields[i+1]); fields[i] == "Host" {
			r.Host = fields[i+1]
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// decode reads an answer and fails unless it has a status.
func decode[T any](t *testing.T, r *http.Response, status int) T {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	var v T
	if r.StatusCode != status {
		t.Fatalf("status %d, want %d: %s", r.StatusCode, status, body)
	}
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	return v
}

func TestProblems(t *testing.T) {
	p, _, s := rig(t)
	for _, row := range []struct {
		name, method, target string
		fields               []string
		status               int
		title                string
		allow                string
	}{
		{"unknown path", "GET", "/nope", nil, 404, "no such path", ""},
		{"below nothing", "GET", "/services/", nil, 404, "no such path", ""},
		{"unknown service", "GET", "/services/nope", nil, 404, "no such service", ""},
		{"POST to read", "POST", "/config", nil, 405, "method not allowed", "GET, HEAD"},
		{"GET to change", "GET", "/drain", nil, 405, "method not allowed", "POST"},
		{"other method", "PATCH", "/ready", nil, 405, "method not allowed", "GET, HEAD"},
		{"rebound name", "GET", "/config", []string{"Host", "evil.example"}, 403, "host not allowed", ""},
		{"rebound name with port", "POST", "/quit", []string{"Host", "evil.example:15000"}, 403, "host not allowed", ""},
		{"from a page", "POST", "/quit", []string{"Origin", "http://evil.example"}, 403, "origin not allowed", ""},
		{"from our own page", "POST", "/quit", []string{"Origin", "http://127.0.0.1:15000"}, 403, "origin not allowed", ""},
		{"from a page without Origin", "POST", "/drain", []string{"Sec-Fetch-Site", "cross-site"}, 403, "origin not allowed", ""},
		{"bad wait", "POST", "/drain?wait=x", nil, 400, "bad parameter", ""},
		{"no url", "GET", "/explain", nil, 400, "bad parameter", ""},
		{"unknown parameter", "GET", "/explain?uri=http://catalog/", nil, 400, "bad parameter", ""},
		{"bad header", "GET", "/explain?url=http://catalog/&header=x", nil, 400, "bad parameter", ""},
		{"bad direction", "GET", "/explain?url=http://catalog/&direction=up", nil, 400, "bad parameter", ""},
		{"bad scheme", "GET", "/explain?url=ftp://catalog/", nil, 400, "bad parameter", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := ask(s.api.full(), row.method, row.target, row.fields...)
			v := decode[problem](t, r, row.status)
			if v.Title != row.title || v.Status != row.status || v.Type != "about:blank" || r.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%+v, %s", v, r.Header.Get("Content-Type"))
			}
			if r.Header.Get("Allow") != row.allow {
				t.Errorf("Allow: %q", r.Header.Get("Allow"))
			}
		})
	}
	if len(p.asked) > 0 {
		t.Errorf("the process was asked to %v", p.asked)
	}
}

func TestHosts(t *testing.T) {
	_, _, s := rig(t)
	table := s.api.full()
	table.host = "admin.local:15000"
	for host, trusted := range map[string]bool{
		"127.0.0.1:15000": true, "127.0.0.1": true, "[::1]:15000": true, "[::1]": true, "localhost": true, "LOCALHOST:1": true, "localhost.": true,
		"x.localhost:80": true, "10.1.2.3:15000": true, "admin.local:15000": true, "Admin.Local": true, "": true,
		"evil.example": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "notlocalhost": false, "admin.local.evil": false,
	} {
		if table.trusts(host) != trusted {
			t.Errorf("%q: want %v", host, trusted)
		}
	}
	if r := ask(s.api.health(), "GET", "/ready", "Host", "pod.example"); r.StatusCode != 200 {
		t.Errorf("a probe with a Host of its own: %d", r.StatusCode)
	}
	if r := ask(s.api.health(), "GET", "/metrics"); r.StatusCode != 404 {
		t.Errorf("/metrics on listen.health: %d", r.StatusCode)
	}
	if r := ask(s.api.scrape(), "GET", "/config"); r.StatusCode != 404 {
		t.Errorf("/config on listen.metrics: %d", r.StatusCode)
	}
}

func TestReady(t *testing.T) {
	p, _, s := rig(t)
	if r := ask(s.api.full(), "HEAD", "/ready"); r.StatusCode != 200 {
		t.Errorf("status %d", r.StatusCode)
	}
	p.readiness = Readiness{Reason: "starting", Detail: "waiting for dns", Waiting: []Waiting{{Service: "catalog", Source: "dns", Error: "no answer"}}}
	r := ask(s.api.full(), "GET", "/ready")
	v := decode[problem](t, r, 503)
	if v.Reason != "starting" || v.Detail != "waiting for dns" || len(v.Waiting) != 1 || v.Waiting[0].Service != "catalog" || r.Header.Get("Retry-After") != "1" {
		t.Errorf("%+v", v)
	}
	if r := ask(s.api.full(), "GET", "/live"); r.StatusCode != 200 {
		t.Errorf("live: status %d", r.StatusCode)
	}
}

func TestNothingInForce(t *testing.T) {
	p, _, s := rig(t)
	p.snap = nil
	for _, path := range []string{"/config", "/services", "/services/catalog", "/explain?url=http://catalog/"} {
		if v := decode[problem](t, ask(s.api.full(), "GET", path), 503); v.Reason != "starting" {
			t.Errorf("%s: %+v", path, v)
		}
	}
	for _, path := range []string{"/connections", "/events", "/metrics", "/"} {
		if r := ask(s.api.full(), "GET", path); r.StatusCode != 200 {
			t.Errorf("%s: status %d", path, r.StatusCode)
		}
	}
}

func TestConfig(t *testing.T) {
	p, _, s := rig(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p.reloads = Reloads{Loaded: Reload{Time: at, Trigger: "start", Sources: []string{"shop.yaml"}}}
	v := decode[inForce](t, ask(s.api.full(), "GET", "/config"), 200)
	if v.Revision != "0123456789ab" || !v.Loaded.Equal(at) || v.Sources[0] != "shop.yaml" || v.LastFailed != nil {
		t.Errorf("%+v", v)
	}
	if v.Origins["services.catalog"] != "shop.yaml:5:3" {
		t.Errorf("%v", v.Origins)
	}
	if _, err := config.LoadBytes("shown", v.Config, config.RankFile, os.LookupEnv); err != nil {
		t.Errorf("what is shown cannot be loaded: %v", err)
	}
	p.reloads.Failed = &Reload{Time: at, Trigger: "SIGHUP", Errors: []Mistake{{File: "shop.yaml", Line: 3, Message: "bad", Text: "shop.yaml:3:1: bad"}}}
	v = decode[inForce](t, ask(s.api.full(), "GET", "/config"), 200)
	if v.LastFailed == nil || v.LastFailed.Errors[0].Text != "shop.yaml:3:1: bad" {
		t.Errorf("%+v", v.LastFailed)
	}
}

// record records exchanges as the proxy does.
func record(rec *telemetry.Recorder, service, route string, status, n int) {
	s := rec.Series(telemetry.Outbound, service, route)
	for range n {
		s.Begin()
		o := telemetry.Outcome{
			Series: s, Service: service, Route: route, Protocol: "HTTP/1.1", Method: "GET", Status: status,
			Attempts: 1, Start: time.Now(), Total: 2 * time.Millisecond,
		}
		if status == 504 {
			o.Reason = resilience.Timeout
		}
		rec.Record(&o)
	}
}

func TestServices(t *testing.T) {
	_, rec, s := rig(t)
	record(rec, "catalog", "one", 200, 9)
	record(rec, "catalog", "", 504, 3)
	list := decode[struct{ Services []Service }](t, ask(s.api.full(), "GET", "/services"), 200).Services
	var names []string
	for _, v := range list {
		names = append(names, v.Direction+" "+v.Name)
	}
	if want := []string{"outbound bytes", "outbound catalog", "inbound shop"}; !slices.Equal(names, want) {
		t.Fatalf("%v", names)
	}
	c := list[1]
	if c.Known != 2 || c.Usable != 2 || c.Breaker != "closed" || c.Traffic.Requests != 12 || c.Traffic.Failed != 3 || c.Traffic.Attempts != 12 {
		t.Errorf("%+v", c)
	}
	if l := c.Traffic.Latency; l == nil || l.Count != 12 || l.P50 < 1.9 || l.P9999 > 2.1 || *c.Traffic.Rate <= 0 || *c.Traffic.Rate > 0.3 {
		t.Errorf("%+v %v", l, *c.Traffic.Rate)
	}
	if list[0].Breaker != "none" || list[0].Listen != "127.0.0.1:9000" || list[0].Traffic.Latency != nil {
		t.Errorf("%+v", list[0])
	}
}

func TestService(t *testing.T) {
	p, rec, s := rig(t)
	record(rec, "catalog", "one", 200, 4)
	svc, _ := p.snap.Outbound.Get("catalog")
	now := time.Now()
	svc.Outlier.SetSize(now, 2, 2)
	for range 5 {
		v := svc.Outlier.Record(now, svc.Endpoints[1].Health, resilience.Outcome{Kind: resilience.Reset})
		if v.Act == resilience.Eject {
			svc.Endpoints[1].Meter.State.Store(1)
		}
	}
	v := decode[ServiceDetail](t, ask(s.api.full(), "GET", "/services/catalog"), 200)
	if len(v.Endpoints) != 2 || !v.Endpoints[0].Usable || v.Endpoints[0].State != "usable" || v.Endpoints[0].From != "shop.yaml:8:17" {
		t.Errorf("%+v", v.Endpoints)
	}
	if e := v.Endpoints[1]; e.Usable || e.State != "ejected" || e.Reason != "consecutive_failures" || e.Until == nil || e.Labels["version"] != "v2" {
		t.Errorf("%+v", e)
	}
	if v.Usable != 1 || len(v.Sources) != 1 || !v.Sources[0].Answered {
		t.Errorf("%+v", v)
	}
	at := slices.IndexFunc(v.Policy, func(f explain.Field) bool { return f.Name == "timeout" })
	if f := v.Policy[at]; f.Value != "3s" || f.From != "shop.yaml:3:29" || f.Layer != "policies.named" {
		t.Errorf("%+v", f)
	}
	if len(v.Routes) != 3 || v.Routes[0].Traffic.Requests != 4 || v.Routes[0].Breaker.State != "none" || v.Routes[1].Action != "respond" || v.Routes[2].Index != -1 {
		t.Fatalf("%+v", v.Routes)
	}
	var own []string
	for _, f := range v.Routes[0].Policy {
		own = append(own, f.Name+"="+f.Value)
	}
	if !slices.Equal(own, []string{"retry.count=2", "breaker=none"}) {
		t.Errorf("%v", own)
	}
	if v.Routes[2].Limit.MaxInFlight != 1024 {
		t.Errorf("%+v", v.Routes[2].Limit)
	}
	in := decode[ServiceDetail](t, ask(s.api.full(), "GET", "/services/shop?direction=inbound"), 200)
	if in.Direction != "inbound" || in.Endpoints[0].Address != "127.0.0.1:8080" {
		t.Errorf("%+v", in)
	}
}

func TestExplain(t *testing.T) {
	_, _, s := rig(t)
	r := ask(s.api.full(), "GET", "/explain?url=http://x.catalog/one/2&method=GET&header=x-a:+b&address=10.0.0.9&caller=web")
	v := decode[explain.Explanation](t, r, 200)
	if v.Service.Pattern != "*.catalog" || v.Route.Name != "one" || v.Request.Caller != "web" || len(v.Targets[0].Endpoints) != 2 {
		t.Errorf("%+v", v)
	}
	v = decode[explain.Explanation](t, ask(s.api.full(), "GET", "/explain?url=/x&direction=inbound"), 200)
	if v.Service.Name != "shop" {
		t.Errorf("%+v", v.Service)
	}
}

func TestGate(t *testing.T) {
	p, _, s := rig(t)
	p.gate = Gate{Share: 0.1, Epoch: "30s"}
	for _, c := range []struct {
		query  string
		status int
		closed bool
		share  float64
	}{
		{"?closed=true", 200, true, 0.1},
		{"?closed=false&percent=5%25", 200, false, 0.05},
		{"?closed=true&percent=0.2", 200, true, 0.2},
		{"?closed=true&percent=0", 400, true, 0.2},
		{"?closed=true&percent=200%25", 400, true, 0.2},
		{"?closed=true&percent=NaN", 400, true, 0.2},
		{"?percent=10%25", 400, true, 0.2},
		{"", 400, true, 0.2},
	} {
		if w := ask(s.api.full(), "POST", "/update-gate"+c.query); w.StatusCode != c.status {
			t.Errorf("%s: %s", c.query, w.Status)
		}
		if v := decode[Gate](t, ask(s.api.full(), "GET", "/update-gate"), 200); v.Closed != c.closed || v.Share != c.share {
			t.Errorf("%s: %+v", c.query, v)
		}
	}
}

func TestDrainAndQuit(t *testing.T) {
	p, _, s := rig(t)
	if v := decode[Drain](t, ask(s.api.full(), "POST", "/drain"), 202); v.State != "draining" {
		t.Errorf("%+v", v)
	}
	if v := decode[Drain](t, ask(s.api.full(), "POST", "/drain?wait=1ms"), 202); v.State != "draining" {
		t.Errorf("%+v", v)
	}
	go close(p.drained)
	if v := decode[Drain](t, ask(s.api.full(), "POST", "/drain?wait=10s"), 200); v.State != "drained" {
		t.Errorf("%+v", v)
	}
	decode[Drain](t, ask(s.api.full(), "POST", "/quit"), 202)
	if p.asked[len(p.asked)-1] != "quit" {
		t.Errorf("%v", p.asked)
	}
}

func TestConnectionsAndEvents(t *testing.T) {
	p, rec, s := rig(t)
	text, _ := io.ReadAll(ask(s.api.full(), "GET", "/connections").Body)
	if string(text) != "{\n  \"downstream\": [],\n  \"upstream\": []\n}\n" {
		t.Errorf("%s", text)
	}
	p.conns = Connections{Downstream: []Listener{{Direction: "outbound", Name: "outbound", Open: 3, Active: 1, Idle: 2}}}
	if v := decode[Connections](t, ask(s.api.full(), "GET", "/connections"), 200); v.Downstream[0].Idle != 2 {
		t.Errorf("%+v", v)
	}
	rec.Ejected("catalog", "10.0.0.1:80", "error_ratio")
	v := decode[struct{ Events []telemetry.Event }](t, ask(s.api.full(), "GET", "/events"), 200)
	if len(v.Events) != 1 || v.Events[0].Kind != telemetry.EventEjected {
		t.Errorf("%+v", v)
	}
	if text, _ := io.ReadAll(ask(s.api.full(), "GET", "/metrics").Body); !strings.Contains(string(text), "sidecar_ejections_total") {
		t.Error("no metrics")
	}
}

func TestProfiles(t *testing.T) {
	_, _, s := rig(t)
	for path, status := range map[string]int{
		"heap?debug=1": 200, "goroutine?debug=1": 200, "profile?seconds=31": 400, "profile?seconds=0": 400, "nope": 404, "cmdline": 404, "symbol": 404,
	} {
		if r := ask(s.api.full(), "GET", "/debug/pprof/"+path); r.StatusCode != status {
			t.Errorf("%s: %s, want %d", path, r.Status, status)
		}
	}
	if r := ask(s.api.scrape(), "GET", "/debug/pprof/heap"); r.StatusCode != 404 {
		t.Errorf("the listener for metrics answers profiles with %s", r.Status)
	}
}
