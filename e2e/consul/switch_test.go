package consul

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// One key turns a service off in every sidecar that follows the config centre, and its end turns it on again (S-165).
func TestSwitch(t *testing.T) {
	agent := consultest.Dev(t)
	origin := who(t, "origin")
	put(t, agent, "policies/reads", "timeout: 1s") // so that the store is not empty afterwards
	var both []*sidecartest.Process
	for range 2 {
		both = append(both, sidecartest.Run(t, `
registries: {main: {consul: {address: %q}}}
config_center: {consul: {registry: main}}
services: {reviews: {endpoints: [%q]}}`, agent.HTTP, origin.Address))
	}
	each := func(within time.Duration, body string) {
		t.Helper()
		for _, p := range both {
			seen(t, p, "reviews", within, body)
		}
	}
	each(soon, "origin")
	put(t, agent, "switches/no-reviews", `{service: reviews, enabled: true, answer: {body: "[]"}}`)
	each(soon, "[]")
	for _, p := range both {
		if n := p.Metric(t, "sidecar_switch_state", `switch="no-reviews"`); n != 1 {
			t.Errorf("the state is %v", n)
		}
	}
	put(t, agent, "switches/no-reviews", `{service: reviews, enabled: false, answer: {body: "[]"}}`)
	each(soon, "origin")
	put(t, agent, "switches/no-reviews", `{service: reviews, enabled: true, answer: {body: "[]"}}`)
	each(soon, "[]")
	if out, ok := config(t, agent, "", "delete", "switches/no-reviews"); !ok {
		t.Errorf("delete: %s", out)
	}
	each(soon, "origin")
}

// A switch that a file has is turned by a key, too, in a sidecar that starts later as well: the latest write counts (S-165). Level 3
// wants a confirmation and a reason (S-159), and what the file wins over is warned of.
func TestSwitchOfAFile(t *testing.T) {
	agent := consultest.Dev(t)
	origin := who(t, "origin")
	text := fmt.Sprintf(`
registries: {main: {consul: {address: %q}}}
config_center: {consul: {registry: main}}
services: {reviews: {endpoints: [%q]}}
switches: {away: {service: reviews, level: 3, answer: {body: "[]"}}}`, agent.HTTP, origin.Address)
	file := filepath.Join(t.TempDir(), "sidecar.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(text string, args ...string) (string, bool) {
		cmd := exec.Command(sidecartest.Build(t), append([]string{"config", "put", "-c", file}, args...)...)
		cmd.Stdin = strings.NewReader(text)
		out, err := cmd.CombinedOutput()
		return string(out), err == nil
	}
	early := sidecartest.Run(t, "%s", text)
	seen(t, early, "reviews", soon, "origin")
	const on = `{service: reviews, enabled: true, answer: {body: "not this"}, reason: fire}`
	for _, c := range []struct {
		text string
		args []string
	}{
		{on, []string{"switches/away"}},
		{strings.Replace(on, ", reason: fire", "", 1), []string{"switches/away", "--confirm"}},
	} {
		if out, ok := write(c.text, c.args...); ok || !strings.Contains(out, "level 3") {
			t.Errorf("%s is written: %s", c.text, out)
		}
	}
	if out, ok := write(on, "switches/away", "--confirm"); !ok || !strings.Contains(out, "only enabled and reason count") {
		t.Fatal(out)
	}
	late := sidecartest.Run(t, "%s", text)
	for _, p := range []*sidecartest.Process{early, late} {
		seen(t, p, "reviews", soon, "[]")
	}
	if out, ok := write("endpoints: ['10.0.0.1:80']", "services/reviews"); !ok || !strings.Contains(out, "win over services/reviews") {
		t.Errorf("%s", out)
	}
	if out, ok := write(strings.Replace(on, "true", "false", 1), "switches/away"); !ok {
		t.Fatal(out)
	}
	for _, p := range []*sidecartest.Process{early, late} {
		seen(t, p, "reviews", soon, "origin")
	}
}

// `consul maint` for a node or for one service takes the instances out, whatever their checks say, until it is over (S-208).
func TestMaintenance(t *testing.T) {
	agent := consultest.Dev(t)
	a, b := who(t, "a"), who(t, "b")
	id := agent.RegisterAt(t, "web", a.Address)
	agent.RegisterAt(t, "web", b.Address)
	agent.RegisterAt(t, "other", b.Address)
	p := sidecartest.Run(t, `
registries: {main: {consul: {address: %q}}}
services: {web: {from: main}, other: {from: main}}`, agent.HTTP)
	seen(t, p, "web", soon, "a", "b")
	maint := func(args ...string) {
		t.Helper()
		run(t, consultest.Binary(t), append([]string{"maint", "-http-addr=" + agent.HTTP}, args...)...)
	}
	maint("-enable", "-service", id, "-reason", "disk")
	seen(t, p, "web", soon, "b")
	maint("-disable", "-service", id)
	seen(t, p, "web", soon, "a", "b")
	// The node: all of it, though that leaves none (an operator means it, and no protection holds it up).
	maint("-enable", "-reason", "kernel")
	seen(t, p, "other", soon, "503")
	seen(t, p, "web", soon, "503")
	maint("-disable")
	seen(t, p, "web", soon, "a", "b")
	seen(t, p, "other", soon, "b")
}

// run runs a command, which must succeed.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}
