package register

import (
	"fmt"
	"testing"

	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// TestPublishPolicy: what callers are to know is written when the service is registered and when it changes, and not because its app
// comes and goes (S-8, S-9).
func TestPublishPolicy(t *testing.T) {
	t.Parallel()
	consul := consultest.Dev(t)
	app := sidecartest.NewEndpoint(t)
	document := func(policy string) string {
		return fmt.Sprintf(`
node: {service: shop, id: pod}
registries: {main: {consul: {address: %q}}}
config_center: {consul: {registry: main, prefix: mesh/}}
inbound:
- {app: %q, health: {http: /, interval: 200ms}, register: {to: main, ttl: 12s, publish_policy: service}, policy: {%s}}`, consul.HTTP, app.Address, policy)
	}
	p := sidecartest.Run(t, "%s", document("timeout: 7s"))
	published := func(want string) {
		t.Helper()
		sidecartest.Eventually(t, soon, want+" is published", func() bool {
			got, _ := consul.KV(t, "mesh/published/shop")
			return got == want
		})
	}
	published(`{"policy":{"timeout":"7s"}}`)
	becomes(t, consul, "shop", "passing", soon)
	app.Kill()
	becomes(t, consul, "shop", "critical", soon)
	app.Start(t)
	becomes(t, consul, "shop", "passing", soon)
	if n := p.Metric(t, "sidecar_registration_actions_total", `action="publish"`, `result="written"`); n != 1 {
		t.Errorf("written %v times", n)
	}
	p.Write(t, "%s", document("timeout: 9s"))
	published(`{"policy":{"timeout":"9s"}}`)
	sidecartest.Eventually(t, soon, "two documents were written", func() bool {
		return p.Metric(t, "sidecar_registration_actions_total", `action="publish"`, `result="written"`) == 2
	})
}
