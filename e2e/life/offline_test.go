package life

import (
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// offlineState is what /services/NAME says of an endpoint that leaves.
type offlineState struct {
	Endpoints []struct {
		Address, State string
		Usable         bool
		DrainingUntil  time.Time `json:"draining_until"`
	}
}

// draining tells which endpoint of a consumer's service is left out since it leaves.
func draining(t testing.TB, consumer *sidecartest.Process) string {
	t.Helper()
	var v offlineState
	must(t, "GET", consumer.Admin, "/services/shop", 200, &v)
	for _, e := range v.Endpoints {
		if e.State == "draining" && !e.Usable && time.Until(e.DrainingUntil) > 0 {
			return e.Address
		}
	}
	return ""
}

// provider runs a sidecar before an app that answers with its name.
func provider(t testing.TB, name string) *sidecartest.Process {
	t.Helper()
	app := sidecartest.Answer(t, sidecartest.OK(name))
	return sidecartest.Run(t, "limits: {drain_grace: 10s, drain_timeout: 30s}\ninbound: [{service: shop, app: %q}]", app.Address)
}

// TestOfflineNotice: the first answer of a node that leaves is good, carries the mark, and is the last one that a consumer
// gets from it; nobody but sidecars sees the mark.
func TestOfflineNotice(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"http", "http2"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			a, b := provider(t, "a"), provider(t, "b")
			consumer := sidecartest.Run(t, "services: {shop: {protocol: %s, endpoints: [%q, %q]}}", protocol, a.Inbound, b.Inbound)
			c := sidecartest.Dial(t, consumer.Outbound)
			for range 4 {
				c.Ask(t, get, "shop")
			}
			must(t, "POST", a.Admin, "/drain", 202, nil)
			fromA := 0
			for range 40 {
				m := c.Ask(t, get, "shop")
				if m.Status() != 200 || m.Has("x-sidecar-offline") || m.Has("connection") {
					t.Fatalf("%s", m.Fields)
				}
				if string(m.Body) == "a" {
					fromA++
				}
			}
			if fromA != 1 {
				t.Errorf("%d answers of the node that leaves, want 1", fromA)
			}
			if got := draining(t, consumer); got != a.Inbound {
				t.Errorf("left out: %q, want %s", got, a.Inbound)
			}
			sidecartest.Eventually(t, patience, "one notice is counted", func() bool {
				return consumer.Metric(t, "sidecar_offline_notices_total", `service="shop"`) == 1
			})
			m := sidecartest.Dial(t, a.Inbound).Ask(t, get, "shop")
			if m.Status() != 200 || m.Get("connection") != "close, X-Sidecar-Offline" || m.Get("x-sidecar-offline") == "" {
				t.Errorf("an answer of the node that leaves: %s", m.Fields)
			}
		})
	}
}

// TestOfflineForged: neither an app behind a sidecar nor whoever stands behind a proxy can say it for the endpoint; an
// endpoint itself can, for itself, and comes back when its time is over.
func TestOfflineForged(t *testing.T) {
	t.Parallel()
	const marked, hop = "X-Sidecar-Offline: 3", "Connection: close, X-Sidecar-Offline"
	app := sidecartest.Answer(t, func(*sidecartest.Message) string { return sidecartest.Reply(200, "app", marked, hop) })
	p := sidecartest.Run(t, "inbound: [{service: shop, app: %q}]", app.Address)
	if m := sidecartest.Dial(t, p.Inbound).Ask(t, get, "shop"); m.Status() != 200 || m.Has("x-sidecar-offline") {
		t.Errorf("what the app says gets out: %s", m.Fields)
	}
	relayed := sidecartest.Answer(t, func(*sidecartest.Message) string { return sidecartest.Reply(200, "relayed", marked) })
	other := sidecartest.Answer(t, sidecartest.OK("other"))
	consumer := sidecartest.Run(t, "services: {shop: {endpoints: [%q, %q, %q]}}", p.Inbound, relayed.Address, other.Address)
	for range 9 {
		if m := sidecartest.Dial(t, consumer.Outbound).Ask(t, get, "shop"); m.Status() != 200 || m.Has("x-sidecar-offline") {
			t.Errorf("%s", m.Fields)
		}
	}
	if got := draining(t, consumer); got != "" {
		t.Errorf("%s is left out by what somebody else said", got)
	}
	itself := sidecartest.Answer(t, func(*sidecartest.Message) string { return sidecartest.Reply(200, "itself", marked, hop) })
	consumer = sidecartest.Run(t, "services: {shop: {endpoints: [%q, %q]}}", itself.Address, other.Address)
	for range 2 {
		sidecartest.Dial(t, consumer.Outbound).Ask(t, get, "shop")
	}
	if got := draining(t, consumer); got != itself.Address {
		t.Errorf("left out: %q, want %s", got, itself.Address)
	}
	sidecartest.Eventually(t, patience, "it is back", func() bool { return draining(t, consumer) == "" })
	sidecartest.Eventually(t, patience, "one return is counted", func() bool {
		return consumer.Metric(t, "sidecar_offline_returns_total", `service="shop"`) == 1
	})
}

// TestOfflineRestart: with fixed endpoints, a node that was restarted is used again as soon as it is needed, and
// until all have left none that leaves is asked.
func TestOfflineRestart(t *testing.T) {
	t.Parallel()
	a := provider(t, "a")
	consumer := sidecartest.Run(t, "services: {shop: {endpoints: [%q]}}", a.Inbound)
	must(t, "POST", a.Admin, "/drain", 202, nil)
	c := sidecartest.Dial(t, consumer.Outbound)
	for range 3 {
		if m := c.Ask(t, get, "shop"); m.Status() != 200 {
			t.Fatalf("the only one leaves, and is asked all the same: %s", m.Start)
		}
	}
	a.Signal(t, syscall.SIGTERM)
	a.Signal(t, syscall.SIGINT)
	a.Wait(t, patience)
	sidecartest.AnswerAt(t, a.Inbound, sidecartest.OK("next"))
	if m := c.Ask(t, get, "shop"); string(m.Body) != "next" {
		t.Fatalf("%s %q", m.Start, m.Body)
	}
	if got := draining(t, consumer); got != "" {
		t.Errorf("%s is left out although it answered", got)
	}
}
