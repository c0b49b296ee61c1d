package consul

import (
	"os/exec"
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
