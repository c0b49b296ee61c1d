package snapshot_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
)

// TestUntil: a ban ends by itself, at the caller and at the provider (S-120), as a choice of endpoints does.
func TestUntil(t *testing.T) {
	snap := meshtest.Compile(t, `node: {service: shop, address: 10.0.0.2}
services:
  banned: {endpoints: [10.1.0.1:80], rules: [{name: ban, when: {host: 10.0.0.2}, forbid: true, until: "2026-12-01T10:00:00Z"}]}
  url: {endpoints: [10.1.0.1:80], rules: "condition://0.0.0.0/url?until=2026-12-01T10%3A00%3A00Z&rule=host%20%3D%2010.0.0.2%20%3D%3E"}
  chosen: {endpoints: [10.1.0.1:80, 10.1.0.2:80], rules: [{when: {method: get}, then: {host: 10.1.0.1}, until: 2026-12-01T12:00:00+02:00}]}
inbound: [{service: shop, app: 127.0.0.1:8080}]
rules: {shop: [{name: ban, when: {host: 10.0.0.9}, forbid: true, until: 2026-12-01T10:00:00Z}]}
`)
	end := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	caller := netip.MustParseAddr("10.0.0.9")
	shop, _ := snap.Inbound.Get("shop")
	chosen, _ := snap.Outbound.Get("chosen")
	for _, row := range []struct {
		now time.Time
		ban bool
	}{{end.Add(-time.Nanosecond), true}, {end, false}} {
		for _, name := range []string{"banned", "url"} {
			s, _ := snap.Outbound.Get(name)
			got := s.Rest.Targets[0].Under("get", row.now).Forbidden
			if (got != nil) != row.ban || got != nil && !strings.Contains(got.Refusal(), "until 2026-12-01T10:00:00Z") {
				t.Errorf("%s at %v: %+v", name, row.now, got)
			}
		}
		if got := shop.Refuses(caller, caller.String(), "", row.now); (got != nil) != row.ban {
			t.Errorf("provider at %v: %+v", row.now, got)
		}
		if n := len(chosen.Rest.Targets[0].Under("get", row.now).Endpoints); (n == 1) != row.ban {
			t.Errorf("chosen at %v: %d endpoints", row.now, n)
		}
	}
}
