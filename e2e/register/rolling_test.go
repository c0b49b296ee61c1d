package register

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// pod is a sidecar before an app.
type pod struct {
	sidecar *sidecartest.Process
	app     *sidecartest.Origin
}

func newPod(t testing.TB, consul *consultest.Agent, n int) *pod {
	t.Helper()
	app := sidecartest.Answer(t, sidecartest.OK(fmt.Sprint(n)))
	return &pod{app: app, sidecar: sidecartest.Run(t, `
node: {service: shop, id: pod-%d}
limits: {drain_grace: 1s, drain_timeout: 12s}
registries: {main: {consul: {address: %q}}}
inbound: [{app: %q, health: {interval: 200ms}, register: {to: main, ttl: 12s}}]
telemetry: {access_log: {format: none}}`, n, consul.HTTP, app.Address)}
}

// passing returns how many instances are well.
func passing(t testing.TB, consul *consultest.Agent) int {
	t.Helper()
	n := 0
	for _, i := range consul.Instances(t, "shop") {
		if i.Status == "passing" {
			n++
		}
	}
	return n
}

// fleet starts providers, and a consumer that finds them.
func fleet(t testing.TB, n int, policy string) (*consultest.Agent, []*pod, *sidecartest.Process) {
	t.Helper()
	consul := consultest.Dev(t)
	pods := make([]*pod, n)
	for i := range pods {
		pods[i] = newPod(t, consul, i)
	}
	sidecartest.Eventually(t, time.Minute, "all are registered", func() bool { return passing(t, consul) == n })
	consumer := sidecartest.Run(t, `
registries: {main: {consul: {address: %q}}}
services: {shop: {from: main, policy: {%s}}}
telemetry: {access_log: {format: none}}`, consul.HTTP, policy)
	return consul, pods, consumer
}

// TestRollingRestart (S-228 … S-230): ten providers are replaced one after the other by SIGTERM, under load and without any
// retry, and nobody notices.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	const n = 10
	consul, pods, consumer := fleet(t, n, "retry: 0")
	load := sidecartest.Steady(t, sidecartest.Call{Address: consumer.Outbound, Host: "shop", Path: "/", Callers: 4, Pause: 2 * time.Millisecond})
	for i, old := range pods {
		old.sidecar.Signal(t, syscall.SIGTERM)
		newPod(t, consul, n+i)
		sidecartest.Eventually(t, 40*time.Second, "the next one is registered and the old one is not", func() bool {
			return passing(t, consul) == n && len(consul.Instances(t, "shop")) == n
		})
	}
	for _, old := range pods {
		sidecartest.Eventually(t, 40*time.Second, "nobody is let in any more", func() bool { return sidecartest.Refuses(old.sidecar.Inbound) })
		old.app.Close()
		if code := old.sidecar.Wait(t, 30*time.Second); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	load.Stop()
	calls, failed := load.Count()
	t.Logf("%d calls, p99 %v, told by %v answers", calls, load.Quantile(0.99), consumer.Metric(t, "sidecar_offline_notices_total"))
	if failed > 0 || calls < 500 {
		t.Errorf("%d of %d calls failed: %v", failed, calls, load.Failures)
	}
}

// TestKilled (S-228, S-231): an app that is killed, and a whole node, cost no call that may be retried; the registry knows of the
// app within a probe interval, and is told of it by its sidecar.
func TestKilled(t *testing.T) {
	t.Parallel()
	consul, pods, consumer := fleet(t, 4, "retry: {count: 1, budget: {ratio: 100%, min_per_second: 100}}")
	load := sidecartest.Steady(t, sidecartest.Call{Address: consumer.Outbound, Host: "shop", Path: "/", Callers: 4, Pause: 2 * time.Millisecond})
	began := time.Now()
	pods[0].app.Close()
	sidecartest.Eventually(t, soon, "the dead app is critical", func() bool { return passing(t, consul) == 3 })
	t.Logf("critical after %v", time.Since(began))
	pods[1].sidecar.Signal(t, syscall.SIGKILL)
	pods[1].app.Close()
	sidecartest.Eventually(t, time.Minute, "the dead node is critical", func() bool { return passing(t, consul) == 2 })
	t.Logf("the node after %v", time.Since(began))
	load.Stop()
	if calls, failed := load.Count(); failed > 0 || calls < 100 {
		t.Errorf("%d of %d calls failed: %v", failed, calls, load.Failures)
	}
}
