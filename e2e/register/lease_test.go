package register

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// leased is the configuration of a sidecar that needs a lease to go out.
const leased = `
node: {service: shop, id: "${POD}"}
registries: {main: {consul: {address: "${CONSUL}"}}}
inbound:
  - app: "${APP}"
    health: {interval: 200ms}
    register: {to: main, id: "${POD}", lease: {ttl: 10s, wait: "${WAIT:-5m}"}}
limits: {drain_grace: 100ms, drain_timeout: "${DRAIN:-3s}"}
telemetry: {access_log: {format: none}}
`

func startLeased(t *testing.T, agent *consultest.Agent, app *sidecartest.Origin, pod string, more ...string) *sidecartest.Process {
	t.Helper()
	return sidecartest.Start(t, sidecartest.Build(t), leased, append([]string{"POD=" + pod, "APP=" + app.Address, "CONSUL=" + agent.HTTP}, more...)...)
}

// well counts the instances that callers may use.
func well(t *testing.T, agent *consultest.Agent) (n int) {
	t.Helper()
	for _, i := range agent.Instances(t, "shop") {
		if i.Status == "passing" {
			n++
		}
	}
	return n
}

// All instances of a service are told to restart at once: never more than a tenth is out, and all of them get their turn (S-136).
func TestLeases(t *testing.T) {
	agent := consultest.Dev(t)
	app := sidecartest.Answer(t, sidecartest.OK("shop"))
	const all, out = 20, 2
	told := all // that want to restart
	if os.Getenv("SIDECAR_SOAK") == "" {
		told = 6
	}
	pods := make([]*sidecartest.Process, all)
	name := func(i int) string { return fmt.Sprintf("shop-%02d", i) }
	for i := range pods {
		pods[i] = startLeased(t, agent, app, name(i))
	}
	sidecartest.Eventually(t, time.Minute, "all are registered", func() bool { return well(t, agent) == all })

	for _, p := range pods[:told] {
		p.Signal(t, syscall.SIGTERM)
	}
	back, least := 0, all
	again := make([]bool, told)
	sidecartest.Eventually(t, 5*time.Minute, "all were out, and are back", func() bool {
		if n := well(t, agent); n < least {
			least = n
		}
		for i := range told {
			select {
			case <-pods[i].Exited():
			default:
				continue
			}
			if !again[i] {
				again[i] = true
				back++
				pods[i] = startLeased(t, agent, app, name(i))
			}
		}
		return back == told && well(t, agent) == all
	})
	if least != all-out {
		t.Errorf("at one time %d of %d were well", least, all)
	}
}

// The place of one that is killed while it is out is free when its session is over; meanwhile the next one serves as ever.
func TestLeaseOfTheKilled(t *testing.T) {
	agent := consultest.Dev(t)
	app := sidecartest.Answer(t, sidecartest.OK("shop"))
	a := startLeased(t, agent, app, "shop-a", "DRAIN=5m")
	b := startLeased(t, agent, app, "shop-b")
	sidecartest.Eventually(t, 20*time.Second, "both are registered", func() bool { return well(t, agent) == 2 })
	a.Signal(t, syscall.SIGTERM)
	sidecartest.Eventually(t, 20*time.Second, "one is out", func() bool { return well(t, agent) == 1 })
	a.Signal(t, syscall.SIGKILL)
	killed := time.Now()
	b.Signal(t, syscall.SIGTERM)
	sidecartest.Eventually(t, 20*time.Second, "the other one waits", func() bool {
		return b.Metric(t, "sidecar_registration_actions_total", `action="lease"`, `result="waiting"`) == 1
	})
	if n := well(t, agent); n != 1 {
		t.Errorf("%d are well while it waits", n)
	}
	if code := b.Wait(t, 90*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(killed); took < 5*time.Second || !strings.Contains(b.Said(), "lease service=shop to=taken") {
		t.Errorf("it went after %v: %s", took, b.Said())
	}
}

// Without Consul, and where no place becomes free in time, it goes without a lease and says why.
func TestLeaseNotToBeHad(t *testing.T) {
	agent := consultest.Dev(t)
	app := sidecartest.Answer(t, sidecartest.OK("shop"))
	a := startLeased(t, agent, app, "shop-a", "WAIT=1s")
	b := startLeased(t, agent, app, "shop-b", "WAIT=1s")
	sidecartest.Eventually(t, 20*time.Second, "both are registered", func() bool { return well(t, agent) == 2 })
	var session struct{ ID string }
	agent.Call(t, "PUT", "/v1/session/create", map[string]string{"TTL": "1h"}, &session)
	agent.Call(t, "PUT", "/v1/kv/sidecar-leases/shop/0?acquire="+session.ID, "shop-z", nil)
	a.Signal(t, syscall.SIGTERM)
	if code := a.Wait(t, 40*time.Second); code != 0 || !strings.Contains(a.Said(), "lease service=shop to=timeout") {
		t.Errorf("exit code %d: %s", code, a.Said())
	}
	agent.Kill(t)
	b.Signal(t, syscall.SIGTERM)
	if code := b.Wait(t, 60*time.Second); code != 0 || !strings.Contains(b.Said(), "lease service=shop to=unavailable") {
		t.Errorf("exit code %d: %s", code, b.Said())
	}
}
