package life

import (
	"fmt"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// appState is what /services/NAME says of the app.
func appState(t testing.TB, p *sidecartest.Process) string {
	t.Helper()
	var v struct {
		Usable int `json:"endpoints_usable"`
		App    struct{ State, Reason string }
	}
	must(t, "GET", p.Admin, "/services/shop", 200, &v)
	if v.App.State == "ill" && (v.Usable != 0 || v.App.Reason == "") || v.App.State == "well" && v.Usable != 1 {
		return fmt.Sprintf("changing: %+v", v) // one thing after the other
	}
	return v.App.State
}

// TestAppHealth: the app that is not there yet, is there, is killed and comes back shows within an interval, in the admin API,
// the metrics and the events; /ready does not depend on it, /ready?app does.
func TestAppHealth(t *testing.T) {
	t.Parallel()
	app := sidecartest.NewEndpoint(t)
	app.Kill()
	p := sidecartest.Run(t, "inbound: [{service: shop, app: %q, health: {http: /healthz, interval: 300ms}}]", app.Address)
	is := func(state string, healthy float64, ready int) {
		t.Helper()
		began := time.Now()
		sidecartest.Eventually(t, patience, "the app is "+state, func() bool { return appState(t, p) == state })
		t.Logf("%s after %v", state, time.Since(began))
		sidecartest.Eventually(t, patience, "sidecar_app_healthy says so", func() bool {
			return p.Metric(t, "sidecar_app_healthy", `service="shop"`) == healthy
		})
		must(t, "GET", p.Health, "/ready", 200, nil)
		must(t, "GET", p.Health, "/ready?app", ready, nil)
	}
	is("ill", 0, 503)
	app.Start(t)
	is("well", 1, 200)
	app.Kill()
	is("ill", 0, 503)
	app.Start(t)
	is("well", 1, 200)
	sidecartest.Eventually(t, patience, "four events are counted", func() bool { return p.Metric(t, "sidecar_events_total", `kind="app"`) == 4 })
}
