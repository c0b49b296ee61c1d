package register

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// TestAllOfANode: all services of a node come into several registries and leave them at once, though one of those is dead by then; it is
// said what may be left there (S-25, S-27, S-28).
func TestAllOfANode(t *testing.T) {
	t.Parallel()
	alive, dies := consultest.Dev(t), consultest.Dev(t)
	app := sidecartest.Answer(t, sidecartest.OK("app"))
	names := []string{"shop", "cart", "pay"}
	document := fmt.Sprintf(`
node: {id: pod}
limits: {drain_grace: 100ms, drain_timeout: 20s}
registries: {a: {consul: {address: %q}}, b: {consul: {address: %q}}}
inbound:
`, alive.HTTP, dies.HTTP)
	for _, s := range names {
		document += fmt.Sprintf("- {service: %s, app: %q, health: {interval: 200ms}, register: {to: [a, b]}}\n", s, app.Address)
	}
	p := sidecartest.Run(t, "%s", document)
	for _, agent := range []*consultest.Agent{alive, dies} {
		for _, name := range names {
			becomes(t, agent, name, "passing", 20*time.Second)
		}
	}
	dies.Kill(t)
	p.Signal(t, syscall.SIGTERM)
	began := time.Now()
	for _, name := range names {
		becomes(t, alive, name, "", 8*time.Second)
	}
	t.Logf("all gone after %v", time.Since(began))
	if code := p.Wait(t, 30*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	said := p.Said()
	for _, part := range []string{"registries may list us still", "shop in b", "cart in b", "pay in b"} {
		if !strings.Contains(said, part) {
			t.Errorf("%q is not said: %s", part, said)
		}
	}
	for _, name := range names {
		if strings.Contains(said, name+" in a") {
			t.Errorf("%s is said to be left in a: %s", name, said)
		}
	}
}
