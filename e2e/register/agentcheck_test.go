package register

import (
	"testing"

	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// With `check: agent` the agent asks the app by itself: it is passing when the app answers, critical when it has gone, back with it, and
// goes on to be asked when the sidecar is busy. Maintenance that an operator sets beside that stays (S-20, S-208).
func TestAgentAsksTheApp(t *testing.T) {
	agent := consultest.Dev(t)
	app := sidecartest.Answer(t, sidecartest.OK("shop"))
	p := sidecartest.Run(t, "%s", provider(agent, app.Address, "check: agent, id: shop-1"))
	becomes(t, agent, "shop", "passing", soon)
	var checks map[string]struct{ Type, Status string }
	agent.Call(t, "GET", "/v1/agent/checks", nil, &checks)
	if c := checks["sidecar:shop-1"]; c.Type != "http" {
		t.Errorf("it is no check of the agent's own: %+v", checks)
	}
	agent.Call(t, "PUT", "/v1/agent/service/maintenance/shop-1?enable=true&reason=disk", nil, nil)
	becomes(t, agent, "shop", "critical", soon)
	// The agent forgets the service: it is registered anew, within a third of the ttl.
	agent.Call(t, "PUT", "/v1/agent/service/maintenance/shop-1?enable=false", nil, nil)
	becomes(t, agent, "shop", "passing", soon)
	agent.Deregister(t, "shop-1")
	sidecartest.Eventually(t, soon, "it is registered again", func() bool {
		return p.Metric(t, "sidecar_registration_actions_total", `action="register"`, `result="ok"`) >= 2
	})
	becomes(t, agent, "shop", "passing", soon)
	app.Close()
	becomes(t, agent, "shop", "critical", soon)
}
