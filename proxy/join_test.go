package proxy

import (
	"testing"

	"github.com/sidecar-mesh/sidecar/snapshot"
)

// TestSlowStartOfThoseThatJoin: an endpoint that joins others begins with a small share; those that are there at the start
// do not, and neither does one that only changes its labels.
func TestSlowStartOfThoseThatJoin(t *testing.T) {
	p := newApplied(t)
	apply := func(list string) map[string]*snapshot.Endpoint {
		t.Helper()
		p.apply("listen: {outbound: none}\nservices: {a: {endpoints: [" + list + "]}}\n")
		a, _ := p.Snapshot().Outbound.Get("a")
		all := map[string]*snapshot.Endpoint{}
		for _, e := range a.Endpoints {
			all[e.Address] = e
		}
		return all
	}
	first := apply("10.0.0.1:80")
	second := apply("{address: 10.0.0.1:80, labels: {x: y}}, 10.0.0.2:80")
	if first["10.0.0.1:80"].Meter.Since.Load() != 0 || second["10.0.0.1:80"].Meter.Since.Load() != 0 {
		t.Error("an endpoint that was there from the start warms up")
	}
	if second["10.0.0.2:80"].Meter.Since.Load() == 0 {
		t.Error("an endpoint that joined does not warm up")
	}
}
