package register

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// rights are what docs/consul.md says that a token needs.
const rights = `
service_prefix "" { policy = "read" }
node_prefix "" { policy = "read" }
service "shop" { policy = "write" }
agent_prefix "" { policy = "read" }
key_prefix "" { policy = "read" }
key "sidecar/published/shop" { policy = "write" }
key_prefix "sidecar-leases/" { policy = "write" }
session_prefix "" { policy = "write" }`

// TestSecured: a Consul that denies by default and wants certificates. Without rights nothing is found and nothing written, and it is
// said why; with a token that has just what the documents say, put into the file while the sidecar runs, it finds, registers, publishes,
// takes a lease and leaves. A token that is revoked takes nothing away.
func TestSecured(t *testing.T) {
	t.Parallel()
	agent, keys := consultest.Secure(t)
	app, web := sidecartest.NewEndpoint(t), sidecartest.Answer(t, sidecartest.OK("web"))
	agent.RegisterAt(t, "web", web.Address)
	agent.PutKV(t, "sidecar/services/extra", fmt.Sprintf("endpoints: [%q]", web.Address))
	agent.PutKV(t, "rules/allow", "127.0.0.0/8")
	_, powerless := agent.Token(t, `service "none" { policy = "read" }`)
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(powerless)
	document := func(ca string) string {
		return fmt.Sprintf(`
node: {service: shop, id: pod}
limits: {drain_grace: 200ms, drain_timeout: 20s}
registries: {main: {consul: {address: "https://%s", token_file: %q, tls: {ca_file: %q, cert_file: %q, key_file: %q}}}}
config_center: {consul: {registry: main}}
discovery: {ready_wait: 1s, snapshot_dir: none}
services: {web: {from: main}}
inbound: [{app: %q, health: {http: /, interval: 200ms}, policy: {timeout: 3s}, register: {to: main, ttl: 12s, rules: rules, publish_policy: service, lease: {wait: 10s}}}]`,
			agent.HTTPS, file, ca, keys.Cert, keys.Key, app.Address)
	}
	p := sidecartest.Launch(t, sidecartest.Build(t), document(keys.CA))
	failed := func(reason string) float64 {
		return p.Metric(t, "sidecar_discovery_failures_total", `source="main"`, `reason="`+reason+`"`)
	}
	sidecartest.Eventually(t, 20*time.Second, "the lack of rights is named", func() bool { return sidecartest.Dials(p.Metrics) && failed("forbidden") > 0 })
	if got := agent.Instances(t, "shop"); len(got) != 0 {
		t.Errorf("%+v", got)
	}

	sidecartest.Eventually(t, 20*time.Second, "it serves all the same", func() bool { return sidecartest.Dials(p.Outbound) })
	name, able := agent.Token(t, rights)
	write(able)
	ask := func(service string) string {
		c := sidecartest.Dial(t, p.Outbound)
		defer func() { _ = c.Close() }()
		return string(c.Ask(t, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", service).Body)
	}
	sidecartest.Eventually(t, 20*time.Second, "web is found", func() bool { return ask("web") == "web" })
	sidecartest.Eventually(t, 20*time.Second, "the documents are read", func() bool { return ask("extra") == "web" })
	becomes(t, agent, "shop", "passing", 20*time.Second)
	sidecartest.Eventually(t, 20*time.Second, "the policy is published", func() bool {
		text, _ := agent.KV(t, "sidecar/published/shop")
		return strings.Contains(text, "3s")
	})

	before := failed("forbidden")
	agent.Revoke(t, name)
	agent.RegisterAt(t, "web", sidecartest.FreeAddress(t)) // wakes the watch
	sidecartest.Eventually(t, 20*time.Second, "the revoked token is named", func() bool { return failed("forbidden") > before })
	if got := ask("web"); got != "web" {
		t.Errorf("with a revoked token: %s", got)
	}
	_, able = agent.Token(t, rights+"\n")
	write(able)
	sidecartest.Eventually(t, 40*time.Second, "it is heard again", func() bool { return p.Metric(t, "sidecar_discovery_failing", `source="main"`) == 0 })
	// What the agent tells the servers of shop it tells by the new token.
	becomes(t, agent, "shop", "passing", 20*time.Second)
	app.Kill()
	becomes(t, agent, "shop", "critical", soon)
	app.Start(t)
	becomes(t, agent, "shop", "passing", soon)

	p.Signal(t, syscall.SIGTERM)
	becomes(t, agent, "shop", "", 10*time.Second)
	app.Kill()
	if code := p.Wait(t, 20*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	said := p.Said()
	for _, bad := range []string{"registries may list us still", "unavailable"} {
		if strings.Contains(said, bad) {
			t.Errorf("%q: %s", bad, said)
		}
	}

	p = sidecartest.Launch(t, sidecartest.Build(t), document(keys.Cert)) // no authority that signed the server's
	sidecartest.Eventually(t, 20*time.Second, "the wrong authority is named", func() bool { return sidecartest.Dials(p.Metrics) && failed("unreachable") > 0 })
	p.Says(t, "certificate")
}
