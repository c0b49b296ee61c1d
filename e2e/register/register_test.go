// Package register tests, with a real Consul and real processes, how services of our own app come into a registry, how
// they follow their app, and how they leave without anybody noticing.
package register

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

func TestMain(m *testing.M) { sidecartest.Main(m) }

// soon bounds what is to happen at once. It is shorter than the ttl of what is registered: what the registry would find out by
// itself is too late.
const soon = 10 * time.Second

// provider is a document of a sidecar that registers its app.
func provider(consul *consultest.Agent, app, more string) string {
	return fmt.Sprintf(`
node: {service: shop, id: pod, group: core, version: v3, zone: z1}
limits: {drain_grace: 200ms, drain_timeout: 20s}
registries: {main: {consul: {address: %q}}}
inbound: [{app: %q, health: {http: /, interval: 200ms}, register: {to: main, tags: [blue], ttl: 12s, %s}}]`, consul.HTTP, app, more)
}

// state is the state of the only instance of a service in the catalogue; empty if there is none.
func state(t testing.TB, a *consultest.Agent, service string) string {
	t.Helper()
	list := a.Instances(t, service)
	if len(list) != 1 {
		return ""
	}
	return list[0].Status
}

func becomes(t testing.TB, a *consultest.Agent, service, want string, within time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	sidecartest.Eventually(t, within, service+" is "+want, func() bool { return state(t, a, service) == want })
	return time.Since(began)
}

// get asks an address for JSON.
func get(t testing.TB, address, path string, out any) (status int) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(body, out); err != nil {
			t.Fatalf("%s: %v in %s", path, err, body)
		}
	}
	return resp.StatusCode
}

// TestLife: critical until the app is there, passing with it, critical within an interval of its death, back with it; lost by
// the agent and told again; gone from the catalogue at the end.
func TestLife(t *testing.T) {
	t.Parallel()
	consul := consultest.Dev(t)
	app := sidecartest.NewEndpoint(t)
	app.Kill()
	p := sidecartest.Run(t, "%s", provider(consul, app.Address, "meta: {team: web}"))
	becomes(t, consul, "shop", "critical", soon)
	app.Start(t)
	becomes(t, consul, "shop", "passing", soon)
	i := consul.Instances(t, "shop")[0]
	if i.Address != p.Inbound || strings.Join(i.Tags, " ") != "blue" || i.Meta["group"] != "core" || i.Meta["version"] != "v3" || i.Meta["team"] != "web" {
		t.Errorf("%+v", i)
	}
	app.Kill()
	t.Logf("critical %v after the app's death", becomes(t, consul, "shop", "critical", soon))
	app.Start(t)
	becomes(t, consul, "shop", "passing", soon)

	// Between the two it may be gone for too short a time to be seen.
	registered := func() float64 {
		return p.Metric(t, "sidecar_registration_actions_total", `action="register"`, `result="ok"`)
	}
	before := registered()
	consul.Deregister(t, i.ID)
	sidecartest.Eventually(t, soon, "it is registered again", func() bool { return registered() > before })
	becomes(t, consul, "shop", "passing", soon)

	var v struct {
		Registrations []struct{ Registry, ID, State string }
	}
	sidecartest.Eventually(t, soon, "the sidecar says so", func() bool {
		get(t, p.Admin, "/services/shop", &v)
		return len(v.Registrations) == 1 && v.Registrations[0].State == "passing" && v.Registrations[0].ID == i.ID &&
			p.Metric(t, "sidecar_registration_state", `service="shop"`, `state="passing"`) == 1
	})
	p.Signal(t, syscall.SIGTERM)
	t.Logf("gone %v after SIGTERM", becomes(t, consul, "shop", "", soon))
	app.Kill()
	if code := p.Wait(t, 15*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestRefused: three refusals, in order, each with its reason; the pod is not ready and nothing is written. Then it may.
func TestRefused(t *testing.T) {
	t.Parallel()
	consul := consultest.Dev(t)
	app := sidecartest.NewEndpoint(t)
	consul.PutKV(t, "rules/allow", "10.0.0.0/8 # the others\n")
	consul.PutKV(t, "rules/catalogue/pay", "core\n")
	p := sidecartest.Launch(t, sidecartest.Build(t), provider(consul, app.Address, "rules: rules"))
	refused := func(reason string) {
		t.Helper()
		var v struct{ Reason, Detail string }
		sidecartest.Eventually(t, 40*time.Second, "refused: "+reason, func() bool {
			return sidecartest.Dials(p.Health) && get(t, p.Health, "/ready", &v) == 503 && v.Reason == "registration" && strings.Contains(v.Detail, reason+": ")
		})
		if got := consul.Instances(t, "shop"); len(got) != 0 {
			t.Errorf("refused and written: %+v", got)
		}
	}
	refused("not_allowed")
	consul.PutKV(t, "rules/allow", "127.0.0.0/8\n")
	refused("unknown_service")
	consul.PutKV(t, "rules/catalogue/shop", "blue\ngreen\n")
	refused("unknown_group")
	consul.PutKV(t, "rules/catalogue/shop", "blue\ncore\n")
	becomes(t, consul, "shop", "passing", 40*time.Second)
	sidecartest.Eventually(t, soon, "ready", func() bool { return get(t, p.Health, "/ready", nil) == 200 })

	consul.PutKV(t, "rules/offline/shop", "planned work")
	becomes(t, consul, "shop", "", 20*time.Second)
	var v struct {
		Registrations []struct{ State, Reason string }
	}
	sidecartest.Eventually(t, soon, "the sidecar says so", func() bool {
		get(t, p.Admin, "/services/shop", &v)
		return len(v.Registrations) == 1 && v.Registrations[0].State == "offline" && v.Registrations[0].Reason == "planned work"
	})
	consul.DeleteKV(t, "rules/offline/shop")
	becomes(t, consul, "shop", "passing", 20*time.Second)
}
