package snapshot_test

import (
	"testing"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
)

// TestBreakerPer: routes share the breaker of their service unless they say otherwise; per route each has one.
func TestBreakerPer(t *testing.T) {
	for per, shared := range map[string]bool{"service": true, "route": false} {
		s := meshtest.Compile(t, `services:
  a:
    endpoints: [10.0.0.1:80]
    policy: {breaker: {per: `+per+`}}
    routes: [{name: x, match: /x}, {name: y, match: /y, policy: {timeout: 1s}}]
`)
		a, _ := s.Outbound.Get("a")
		x, y, rest := a.Routes[0].Breaker, a.Routes[1].Breaker, a.Rest.Breaker
		if x == nil || y == nil || rest == nil || (x == y) != shared || (x == rest) != shared || (y == rest) != shared {
			t.Errorf("per %s: x == y %v, x == rest %v, y == rest %v", per, x == y, x == rest, y == rest)
		}
	}
}
