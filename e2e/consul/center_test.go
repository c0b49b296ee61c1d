package consul

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// config runs `sidecar config` against an agent, and returns what it printed and whether it succeeded.
func config(t *testing.T, agent *consultest.Agent, stdin string, args ...string) (string, bool) {
	t.Helper()
	cmd := exec.Command(sidecartest.Build(t), append(append([]string{"config"}, args...), "--consul", agent.HTTP)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// put writes a document, which must succeed.
func put(t *testing.T, agent *consultest.Agent, name, text string, args ...string) string {
	t.Helper()
	out, ok := config(t, agent, text, append([]string{"put", name}, args...)...)
	if !ok {
		t.Fatalf("put %s: %s", name, out)
	}
	return out
}

// Services, policies and group switches from Consul's keys: in force while it runs, below the local file, each on its own (S-125).
func TestConfigCenter(t *testing.T) {
	agent := consultest.Dev(t)
	a, b, local := who(t, "a"), who(t, "b"), who(t, "local")
	put(t, agent, "services/web", "endpoints: ["+a.Address+"]")
	put(t, agent, "services/mine", "endpoints: ["+a.Address+"]")
	p := sidecartest.Run(t, `
registries: {main: {consul: {address: %q}}}
config_center: {consul: {registry: main}}
services: {mine: {endpoints: [%q]}}`, agent.HTTP, local.Address)
	seen(t, p, "web", soon, "a") // at the start already
	seen(t, p, "mine", soon, "local")

	put(t, agent, "services/web", "endpoints: ["+b.Address+"]")
	seen(t, p, "web", soon, "b")

	// What is wrong is not written; what somebody else wrote wrong is not in force, and its neighbours are.
	if out, ok := config(t, agent, "endpoints: nonsense", "put", "services/web"); ok || !strings.Contains(out, "services.web.endpoints") {
		t.Errorf("put: %s", out)
	}
	agent.PutKV(t, "sidecar/services/web", "endpoints: ["+a.Address+"]\npolicy: {timeout: 5}")
	put(t, agent, "services/other", "endpoints: ["+a.Address+"]")
	seen(t, p, "other", soon, "a")
	seen(t, p, "web", soon, "b")
	if n := p.Metric(t, "sidecar_config_documents", `state="kept"`); n != 1 {
		t.Errorf("%v documents are kept", n)
	}
	p.Says(t, "kv main:sidecar/services/web@", "services.web.policy.timeout")
	// Two that want the same host: one of them counts.
	agent.PutKV(t, "sidecar/services/third", "hosts: other\nendpoints: ["+b.Address+"]")
	sidecartest.Eventually(t, soon, "the conflict shows", func() bool {
		return p.Metric(t, "sidecar_config_documents", `state="refused"`) == 1
	})
	seen(t, p, "other", soon, "a")
	p.Says(t, "kv main:sidecar/services/third@", "services.third.hosts", "services.other")

	// A mended document is in force; a deleted one is gone.
	put(t, agent, "services/web", "endpoints: ["+a.Address+"]")
	seen(t, p, "web", soon, "a")
	if out, ok := config(t, agent, "", "delete", "services/web"); !ok {
		t.Errorf("delete: %s", out)
	}
	seen(t, p, "web", soon, "404")

	// explain says where it is written.
	explain := exec.Command(sidecartest.Build(t), "explain", "--admin", p.Admin, "http://other/")
	if out, err := explain.CombinedOutput(); err != nil || !strings.Contains(string(out), "kv main:sidecar/services/other@") {
		t.Errorf("%v: %s", err, out)
	}
}

// Without Consul the files are in force; the documents follow when it is there.
func TestConfigCenterDown(t *testing.T) {
	agent := consultest.Dev(t)
	a, local := who(t, "a"), who(t, "local")
	put(t, agent, "services/web", "endpoints: ["+a.Address+"]")
	agent.Kill(t)
	p := sidecartest.Run(t, `
registries: {main: {consul: {address: %q}}}
config_center: {consul: {registry: main}}
services: {mine: {endpoints: [%q]}}`, agent.HTTP, local.Address)
	seen(t, p, "mine", soon, "local")
	sidecartest.Eventually(t, soon, "the failure shows", func() bool {
		return p.Metric(t, "sidecar_discovery_failing", `source="config_center"`) == 1
	})
	agent.Restart(t)
	seen(t, p, "web", 20*time.Second, "a")
	agent.Kill(t)
	seen(t, p, "web", soon, "a")
}

// The last document of all is deleted: that is obeyed at once. A store that was lost is not: what it said stays for a while.
func TestConfigCenterEmptied(t *testing.T) {
	agent := consultest.Dev(t)
	a := who(t, "a")
	put(t, agent, "services/web", "endpoints: ["+a.Address+"]")
	p := sidecartest.Run(t, "registries: {main: {consul: {address: %q}}}\nconfig_center: {consul: {registry: main}}", agent.HTTP)
	seen(t, p, "web", soon, "a")
	agent.DeleteKV(t, "sidecar/services/web")
	seen(t, p, "web", soon, "404")
	put(t, agent, "services/web", "endpoints: ["+a.Address+"]")
	seen(t, p, "web", soon, "a")

	agent.Kill(t)
	agent.Lose(t)
	agent.Restart(t)
	sidecartest.Eventually(t, 20*time.Second, "the store's emptiness is noticed", func() bool {
		return strings.Contains(p.Said(), "the config centre is empty at once")
	})
	seen(t, p, "web", soon, "a")
}

// The commands on documents.
func TestConfigCommands(t *testing.T) {
	agent := consultest.Dev(t)
	if out := put(t, agent, "policies/reads", "timeout: 1s", "--cas", "0"); !strings.Contains(out, "policies/reads: written, revision ") {
		t.Errorf("%s", out)
	}
	if out, ok := config(t, agent, "timeout: 2s", "put", "policies/reads", "--cas", "0"); ok || !strings.Contains(out, "changed meanwhile") {
		t.Errorf("%s", out)
	}
	file := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(file, []byte("timeout: 3s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	put(t, agent, "policies/reads", "", file)
	if out, ok := config(t, agent, "", "get", "policies/reads"); !ok || out != "timeout: 3s\n" {
		t.Errorf("%q", out)
	}
	if out, ok := config(t, agent, "", "list"); !ok || !strings.HasPrefix(out, "policies/reads\trevision ") {
		t.Errorf("%q", out)
	}
	for _, bad := range [][]string{{"put", "nodes/x"}, {"put", "services/a/b"}, {"get", "policies/none"}, {"delete", "policies/none"}, {"put", "services/web"}} {
		if out, ok := config(t, agent, "no: sense", bad...); ok {
			t.Errorf("%v was taken: %s", bad, out)
		}
	}
	// What refers to a registry of the files can be checked only with them.
	put(t, agent, "services/web", "from: main")
	watch := exec.Command(sidecartest.Build(t), "config", "watch", "--consul", agent.HTTP)
	pipe, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = watch.Process.Kill()
		_ = watch.Wait()
	})
	text := make([]byte, 4096)
	n, err := pipe.Read(text)
	if err != nil || !strings.Contains(string(text[:n]), "policies/reads revision ") {
		t.Errorf("%s %v", text[:n], err)
	}
}

// A provider publishes how it is to be called; a caller whose configuration is silent does so, and says where it has it
// from (S-8), and counts what it has from there, so that the last who goes by it can be found (S-12).
func TestPublishedPolicy(t *testing.T) {
	agent := consultest.Dev(t)
	a := who(t, "a")
	provider := filepath.Join(t.TempDir(), "provider.yaml")
	text := `
registries: {main: {consul: {address: "` + agent.HTTP + `"}}}
config_center: {consul: {registry: main}}
inbound: [{service: web, app: "127.0.0.1:1", policy: {timeout: 1234ms}, routes: [{name: save, match: POST /save, policy: {retry: 0, timeout: 4321ms}}]}]`
	if err := os.WriteFile(provider, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := sidecartest.Run(t, `
registries: {main: {consul: {address: %q}}}
config_center: {consul: {registry: main}}
services: {web: {endpoints: [%q]}}`, agent.HTTP, a.Address)
	publish := func() string {
		out, err := exec.Command(sidecartest.Build(t), "config", "publish", "--methods", "-c", provider).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if out := publish(); out != "published/web: written\n" {
		t.Errorf("%q", out)
	}
	sidecartest.Eventually(t, soon, "the caller inherits", func() bool {
		return p.Metric(t, "sidecar_policy_inherited_fields", `service="web"`, `route="save"`) == 2
	})
	out, err := exec.Command(sidecartest.Build(t), "explain", "--admin", p.Admin, "-X", "POST", "http://web/save").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "4321ms") && !strings.Contains(string(out), "4.321s") || !strings.Contains(string(out), "kv main:sidecar/published/web@") {
		t.Errorf("%v: %s", err, out)
	}
	// Nothing changed: nothing is written. Endpoints that come and go touch no document.
	if out := publish(); out != "published/web: says so already\n" {
		t.Errorf("%q", out)
	}
	// It is taken back: who relies on it keeps it, and says so; who starts afterwards does not have it (S-13).
	put(t, agent, "policies/reads", "timeout: 1s") // so that the store is not empty
	if out, ok := config(t, agent, "", "delete", "published/web"); !ok || out != "published/web: deleted\n" {
		t.Errorf("%q", out)
	}
	sidecartest.Eventually(t, soon, "the caller says that it keeps it", func() bool {
		return p.Metric(t, "sidecar_config_documents", `state="kept"`) == 1
	})
	if n := p.Metric(t, "sidecar_policy_inherited_fields", `service="web"`, `route="save"`); n != 2 {
		t.Errorf("%v fields are inherited", n)
	}
	later := sidecartest.Run(t, `
registries: {main: {consul: {address: %q}}}
config_center: {consul: {registry: main}}
services: {web: {endpoints: [%q]}}`, agent.HTTP, a.Address)
	if n := later.Metric(t, "sidecar_policy_inherited_fields", `service="web"`); n != 0 {
		t.Errorf("%v fields are inherited by one that starts now", n)
	}
}

// A provider that says publish_policy: none publishes nothing, by no command; one that says nothing may do so by hand, and method is
// the routes too (S-8 … S-13).
func TestPublishPolicyNone(t *testing.T) {
	t.Parallel()
	agent := consultest.Dev(t)
	file := filepath.Join(t.TempDir(), "provider.yaml")
	const routes = `policy: {timeout: 1s}, routes: [{name: save, match: POST /save, policy: {timeout: 2s}}]`
	write := func(inbound ...string) {
		t.Helper()
		text := "registries: {main: {consul: {address: " + strconv.Quote(agent.HTTP) + "}}}\nconfig_center: {consul: {registry: main}}\ninbound:\n"
		for _, in := range inbound {
			if !strings.Contains(in, "routes:") {
				in += ", " + routes
			}
			text += "  - {" + in + "}\n"
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(ok bool, args ...string) string {
		t.Helper()
		out, err := exec.Command(sidecartest.Build(t), append(append([]string{"config"}, args...), "-c", file)...).CombinedOutput()
		if (err == nil) != ok {
			t.Errorf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	has := func(service string, parts ...string) {
		t.Helper()
		text, found := agent.KV(t, "sidecar/published/"+service)
		if found != (len(parts) > 0) {
			t.Errorf("%s: published %t: %s", service, found, text)
		}
		for _, p := range parts {
			if !strings.Contains(text, p) {
				t.Errorf("%s: %s without %s", service, text, p)
			}
		}
	}

	const none = `service: web, app: "127.0.0.1:1", register: {to: main, publish_policy: none}`
	write(none)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("policy: {timeout: 3s}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"publish"}, {"publish", "--methods"}, {"put", "published/web", policy}} {
		out := run(false, args...)
		for _, part := range []string{"web is not published", "inbound.web.register", "provider.yaml:", "publish_policy: none"} {
			if !strings.Contains(out, part) {
				t.Errorf("%v does not say %q: %s", args, part, out)
			}
		}
		has("web")
	}
	write(none,
		`service: hand, app: "127.0.0.1:2", register: {to: main}`,
		`service: whole, app: "127.0.0.1:3", register: {to: main, publish_policy: service}`,
		`service: each, app: "127.0.0.1:4", register: {to: main, publish_policy: method}`,
		`service: apart, app: "127.0.0.1:5"`)
	if out := run(true, "publish"); !strings.Contains(out, "warning: web is not published") || strings.Count(out, ": written") != 4 {
		t.Errorf("%s", out)
	}
	has("web")
	for _, service := range []string{"hand", "whole", "each", "apart"} {
		has(service, `"timeout":"1s"`)
		text, _ := agent.KV(t, "sidecar/published/"+service)
		if strings.Contains(text, "save") != (service == "each") {
			t.Errorf("%s: %s", service, text)
		}
	}
	// What many methods cost is told.
	var methods []string
	for i := range 1500 {
		methods = append(methods, fmt.Sprintf("{name: method-%d, match: POST /method-%d, policy: {timeout: 1s}}", i, i))
	}
	write(`service: large, app: "127.0.0.1:6", routes: [` + strings.Join(methods, ", ") + "]")
	if out := run(true, "publish", "--methods"); !strings.Contains(out, "warning: published/large has ") || !strings.Contains(out, "published/large: written") {
		t.Errorf("%s", out)
	}

	p := sidecartest.Run(t, "node: {id: pod}\nregistries: {main: {consul: {address: %q}}}\nconfig_center: {consul: {registry: main}}\ninbound: [{%s, policy: {timeout: 1s}}]", agent.HTTP, none)
	sidecartest.Eventually(t, soon, "it is registered", func() bool { return len(agent.Instances(t, "web")) == 1 })
	sidecartest.Never(t, time.Second, "something is published", func() bool { _, found := agent.KV(t, "sidecar/published/web"); return found })
	if n := p.Metric(t, "sidecar_registration_actions_total", `action="publish"`); n != 0 {
		t.Errorf("it tried %v times", n)
	}
}

// One command bans a caller for a while, and one ends that; what other rules there are stays (S-120).
func TestBan(t *testing.T) {
	agent := consultest.Dev(t)
	app := who(t, "app")
	put(t, agent, "rules/web", "[{name: other, when: {host: 10.9.9.9}, forbid: true}]")
	p := sidecartest.Run(t, `
node: {service: shop, address: 10.1.1.1}
registries: {main: {consul: {address: %q}}}
config_center: {consul: {registry: main}}
services: {web: {endpoints: [%q]}}`, agent.HTTP, app.Address)
	ban := func(args ...string) (string, bool) {
		t.Helper()
		out, err := exec.Command(sidecartest.Build(t), append([]string{"ban", "web", "10.1.1.1", "--consul", agent.HTTP}, args...)...).CombinedOutput()
		return string(out), err == nil
	}
	becomes := func(want int) {
		t.Helper()
		sidecartest.Eventually(t, soon, "the status is "+strconv.Itoa(want), func() bool {
			return sidecartest.Dial(t, p.Outbound).Ask(t, "GET / HTTP/1.1\r\nHost: web\r\n\r\n").Status() == want
		})
	}
	becomes(200)
	if out, ok := ban("--for", "1h"); !ok || !strings.HasPrefix(out, "rules/web: written, revision ") {
		t.Fatalf("%s", out)
	}
	becomes(403)
	if out, ok := ban("--lift"); !ok {
		t.Fatalf("%s", out)
	}
	becomes(200)
	if out, ok := ban("--lift"); ok || !strings.Contains(out, "10.1.1.1 is not banned from web") {
		t.Errorf("%s", out)
	}
	if out, ok := ban("--for", "5s"); !ok {
		t.Fatalf("%s", out)
	}
	becomes(403)
	becomes(200) // by itself
	if out, _ := config(t, agent, "", "get", "rules/web"); !strings.Contains(out, "name: other") {
		t.Errorf("%s", out)
	}
	sidecartest.Eventually(t, soon, "the end is told", func() bool {
		return strings.Contains(p.Said(), "ban 10.1.1.1: refuses callers until")
	})
}
