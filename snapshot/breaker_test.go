package snapshot_test

import (
	"testing"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// TestBreakerPer: routes share the breaker of their service unless they say otherwise; per route each has one, which a reload
// keeps, and one that was shared goes to nobody.
func TestBreakerPer(t *testing.T) {
	var prev *snapshot.Snapshot
	for _, per := range []string{"service", "route", "route", "service"} {
		cfg, err := config.LoadBytes("test.yaml", []byte(`services:
  a:
    endpoints: [10.0.0.1:80]
    policy: {breaker: {per: `+per+`}}
    routes: [{name: x, match: /x}, {name: y, match: /y, policy: {timeout: 1s}}]
`), config.RankFile, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := snapshot.Compile(&config.Mesh{Config: cfg}, prev, snapshot.Options{})
		if err != nil {
			t.Fatal(err)
		}
		a, _ := s.Outbound.Get("a")
		x, y, rest := a.Routes[0].Breaker, a.Routes[1].Breaker, a.Rest.Breaker
		shared := per == "service"
		if x == nil || y == nil || rest == nil || (x == y) != shared || (x == rest) != shared || (y == rest) != shared {
			t.Errorf("per %s: x == y %v, x == rest %v, y == rest %v", per, x == y, x == rest, y == rest)
		}
		if prev != nil {
			was, _ := prev.Outbound.Get("a")
			if rest != was.Rest.Breaker {
				t.Error("the service's breaker forgets")
			}
			if per == "route" && was.Policy.Breaker.Per.Value == per && (x != was.Routes[0].Breaker || y != was.Routes[1].Breaker) {
				t.Error("a route's breaker forgets")
			}
		}
		prev = s
	}
}
