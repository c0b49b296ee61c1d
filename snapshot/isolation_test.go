package snapshot_test

import (
	"testing"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/internal/meshtest"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/route"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// TestBulkheads: who names a bulkhead shares its limiter, who says own does not, and a reload forgets nobody.
func TestBulkheads(t *testing.T) {
	const document = `
bulkheads: {rest: {in_flight: 2, waiting: 1}, other: {in_flight: 1}}
defaults: {limit: {bulkhead: rest}}
services:
  a: {endpoints: [10.0.0.1:80], routes: [{name: r, match: /r, policy: {limit: {bulkhead: other}}}, {name: s, match: /s, policy: {timeout: 1s}}]}
  b: {endpoints: [10.0.0.1:80]}
  core: {endpoints: [10.0.0.1:80], policy: {limit: {bulkhead: own, in_flight: 9}}}
`
	s := meshtest.Compile(t, document)
	get := func(s *snapshot.Snapshot, name string) *snapshot.Service {
		svc, _ := s.Outbound.Get(name)
		return svc
	}
	a, b, core := get(s, "a"), get(s, "b"), get(s, "core")
	rest := s.Bulkheads["rest"]
	if a.Rest.Limiter != rest || b.Rest.Limiter != rest || a.Routes[1].Limiter != rest || a.Routes[0].Limiter != s.Bulkheads["other"] {
		t.Error("the limiter is not shared")
	}
	if core.Rest.Limiter == rest {
		t.Error("own shares")
	}
	rest.Acquire()
	rest.Acquire()
	if v := b.Rest.Limiter.Acquire(); v.Verdict != resilience.Queue {
		t.Errorf("a full bulkhead: %v", v.Verdict)
	}
	cfg, err := config.LoadBytes("test.yaml", []byte(`
bulkheads: {rest: {in_flight: 3}}
defaults: {limit: {bulkhead: rest}}
services: {b: {endpoints: [10.0.0.1:80]}}
`), config.RankFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	next, err := snapshot.Compile(&config.Mesh{Config: cfg}, s, snapshot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	limiter := get(next, "b").Rest.Limiter
	if runs, _ := limiter.InUse(); runs != 2 {
		t.Errorf("after a reload %d run", runs)
	}
	if v := limiter.Acquire(); v.Verdict != resilience.Admitted {
		t.Errorf("a third of 3: %v", v.Verdict)
	}
	if v := limiter.Acquire(); v.Verdict != resilience.Turned || v.Limit.String() != "bulkhead.waiting" && v.Limit.String() != "bulkhead.in_flight" {
		t.Errorf("a fourth of 3: %v %v", v.Verdict, v.Limit)
	}
}

// TestLink: the first class that fits, by announced size, route, priority or service (S-185).
func TestLink(t *testing.T) {
	s := meshtest.Compile(t, `services:
  a:
    endpoints: [10.0.0.1:80]
    routes: [{name: up, match: /up}, {name: down, match: /down}]
    links: [{name: large, match: {size_over: 1MiB}, connections: 4}, {name: bulk, match: {route: [up, down], size_over: 1KiB}}, {name: late, match: {priority: [batch, low]}}, {name: store, match: {service: [media.Store, front]}}]
`)
	a, _ := s.Outbound.Get("a")
	for _, row := range []struct {
		name     string
		length   int64
		want     int
		priority string
	}{
		{"", 0, 0, ""},
		{"", 0, 3, "low"},
		{"", 0, 0, "high"},
		{"up", 0, 2, "low"},
		{"", 1 << 10, 0, ""},
		{"", 1<<10 + 1, 2, ""},
		{"up", 0, 2, ""},
		{"down", -1, 2, ""}, // not announced: the route says it
		{"", -1, 0, ""},
		{"up", 1<<20 + 1, 1, ""},
	} {
		c := snapshot.Call{Service: "a", Route: row.name, Length: row.length, Fields: route.FieldList{{Name: config.PriorityHeader, Value: row.priority}}}
		if got := a.Link(&c); got != row.want {
			t.Errorf("route %q, length %d: class %d, want %d", row.name, row.length, got, row.want)
		}
	}
	for _, row := range []struct {
		service, grpc string
		want          int
	}{
		{"a", "/media.Store/Get", 4},
		{"a", "/media.Stores/Get", 0},
		{"a", "/media.Store", 0},
		{"a", "/media.Stor/e", 0},
		{"a", "", 0},
		{"front", "", 4},
		{"fron", "/x/y", 0},
	} {
		if got := a.Link(&snapshot.Call{Service: row.service, GRPC: row.grpc, Fields: route.FieldList{}}); got != row.want {
			t.Errorf("service %q, %q: class %d, want %d", row.service, row.grpc, got, row.want)
		}
	}
	if got := a.Link(&snapshot.Call{Service: "front", Route: "up", Fields: route.FieldList{}}); got != 4 {
		t.Errorf("a route of another service that is called alike: class %d", got)
	}
	if a.Links[0].Connections != 4 || a.Links[1].Connections != 1024 {
		t.Errorf("%+v", a.Links)
	}
}

// TestRank: the order of the bulkhead, or of the limit that a route has; who is not listed is last unless a star says where.
func TestRank(t *testing.T) {
	s := meshtest.Compile(t, `
bulkheads: {rest: {in_flight: 2, waiting: 1, priorities: [core, "*", batch]}}
services:
  a: {endpoints: [10.0.0.1:80], policy: {limit: {bulkhead: rest, priorities: [batch]}}}
  b:
    endpoints: [10.0.0.1:80]
    policy: {limit: {priorities: [core, "*"]}}
    routes: [{name: same, match: /same, policy: {timeout: 1s}}, {name: other, match: /other, policy: {limit: {priorities: [batch, core]}}}]
  c: {endpoints: [10.0.0.1:80]}
`)
	a, _ := s.Outbound.Get("a")
	b, _ := s.Outbound.Get("b")
	c, _ := s.Outbound.Get("c")
	for _, row := range []struct {
		rt    *snapshot.Route
		ranks [4]uint8 // of core, batch, another word, none
	}{
		{a.Rest, [4]uint8{0, 2, 1, 1}},
		{b.Rest, [4]uint8{0, 1, 1, 1}},
		{b.Routes[0], [4]uint8{0, 1, 1, 1}},
		{b.Routes[1], [4]uint8{1, 0, 2, 2}},
		{c.Rest, [4]uint8{}},
	} {
		for i, fields := range []route.FieldList{
			{{Name: config.PriorityHeader, Value: "core"}},
			{{Name: config.PriorityHeader, Value: "batch"}},
			{{Name: config.PriorityHeader, Value: "x"}},
			{},
		} {
			if got := row.rt.Rank(fields); got != row.ranks[i] {
				t.Errorf("%s/%s: rank %d of %v, want %d", row.rt.Service.Name, row.rt.Name, got, fields, row.ranks[i])
			}
		}
	}
	if b.Rest.Limiter != b.Routes[0].Limiter || b.Rest.Limiter == b.Routes[1].Limiter {
		t.Error("a route with another order shares the queue, or one with the same does not")
	}
}
