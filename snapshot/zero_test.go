package snapshot_test

import (
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
	"github.com/sidecar-mesh/sidecar/resilience"
)

// TestZeroIsNotUnset: a 0 that an operator writes is not the default (S-4).
func TestZeroIsNotUnset(t *testing.T) {
	s := meshtest.Compile(t, `services:
  a:
    endpoints: [10.0.0.1:80, 10.0.0.2:80, 10.0.0.3:80]
    policy:
      outlier: {consecutive_failures: 0, error_ratio: 0%, timeout_ratio: 100%, request_volume: 10}
      breaker: {error_threshold: 0%, request_volume: 2}
`)
	a, _ := s.Outbound.Get("a")
	now := time.Unix(1000, 0)
	a.Outlier.SetSize(now, 3, 3)
	for n := 1; n <= 10; n++ {
		v := a.Outlier.Record(now, a.Endpoints[0].Health, resilience.Outcome{Kind: resilience.Reset, Sent: true})
		if want := n == 10; (v.Act == resilience.Eject) != want || (want && v.Reason != resilience.EjectErrorRatio) {
			t.Fatalf("failure %d: %v by %v", n, v.Act, v.Reason)
		}
	}
	for n, r := range []resilience.CallResult{resilience.CallOK, resilience.CallFailed} {
		v := a.Rest.Breaker.Admit(now)
		if change := a.Rest.Breaker.Record(now, v.Ticket, r); (change == resilience.Opened) != (n == 1) {
			t.Fatalf("call %d: %v", n, change)
		}
	}
}
