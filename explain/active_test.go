package explain

import (
	"slices"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/balance"
	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/internal/meshtest"
	"github.com/sidecar-mesh/sidecar/resilience"
)

// TestActive: nothing protects a service that is well; what does is told in words.
func TestActive(t *testing.T) {
	s := meshtest.Compile(t, `
services:
  a:
    group: bj
    endpoints: [{address: "10.0.0.1:80", group: bj}, {address: "10.0.0.2:80", group: sh}, {address: "10.0.0.3:80", group: sh}]
    policy: {breaker: {per: endpoint}}
    routes: [{name: banner, match: /banner/*, policy: {breaker: {error_threshold: 50%, request_volume: 1, window: 10s}}}]
  b: {endpoints: ["10.0.1.1:80"]}
groups: [{service: a, from: bj, to: sh}]
switches: {a-off: {service: a, route: banner, level: 2, empty: {}}}
`)
	now := time.Unix(1_000_000_000, 0)
	a, _ := s.Outbound.Get("a")
	b, _ := s.Outbound.Get("b")
	if got := Active(s, b, now); len(got) != 0 {
		t.Errorf("b: %q", got)
	}
	moved := "group bj is switched to sh"
	if got := Active(s, a, now); !slices.Equal(got, []string{moved}) {
		t.Errorf("a: %q", got)
	}
	s.Switches[0].State.Set(true)
	a.Sources = []config.SourceState{{Name: "consul", Answered: true, Protection: "half_dead", Listed: 1, Known: 3}}
	a.Endpoints[1].Meter.State.Store(balance.StateEjected)
	for range 5 {
		banner := a.Routes[0]
		ticket := banner.Breaker.Admit(now).Ticket
		banner.Breaker.Record(now, ticket, resilience.CallFailed)
	}
	for range 20 {
		a.Endpoints[0].Tried(now, a.Endpoints[0].Admit(now).Ticket, resilience.Outcome{Kind: resilience.Reset})
	}
	got := Active(s, a, now)
	for _, want := range []string{
		"endpoint 10.0.0.2:80 is left out: breaker_open, its breaker is open",
		"switch a-off is on for route banner (level 2, shield)", "breaker of route banner is open",
		"half_dead holds on to the list of consul: 1 listed, 3 known", "endpoint 10.0.0.3:80 is left out: ejected", moved,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if len(got) != 6 {
		t.Errorf("%q", got)
	}
	e, err := Explain(s, Request{URL: "http://a/banner/1"}, now)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(e.Targets, func(v Target) bool { return len(v.Degraded) == 1 }) {
		t.Error("explain does not name the switch")
	}
}
