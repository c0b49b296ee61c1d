package snapshot_test

import (
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/balance"
	"github.com/sidecar-mesh/sidecar/internal/meshtest"
)

// TestAdaptive: the knobs of lb adaptive reach the balancer, defaults included.
func TestAdaptive(t *testing.T) {
	s := meshtest.Compile(t, `services:
  a: {endpoints: [10.0.0.1:80], policy: {lb: adaptive}}
  b: {endpoints: [10.0.0.1:80], policy: {lb: {adaptive: {slow_fraction: 10%, slow_weight: 1, interval: 30s}}}}
`)
	for name, want := range map[string]balance.Pacing{
		"a": {SlowFraction: 0.2, SlowWeight: 3, NormalWeight: 5, Interval: time.Minute},
		"b": {SlowFraction: 0.1, SlowWeight: 1, NormalWeight: 5, Interval: 30 * time.Second},
	} {
		svc, _ := s.Outbound.Get(name)
		spec := svc.Rest.Targets[0].Set.Spec()
		if spec.Kind != balance.Adaptive || spec.Adaptive != want {
			t.Errorf("%s: %+v", name, spec)
		}
	}
}
