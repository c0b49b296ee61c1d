package registry

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/discovery/guard"
	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// register registers endpoints of the fleet as "svc", with checks that a test sets.
func (f *fleet) register(t testing.TB, a *consultest.Agent, from, to int) {
	t.Helper()
	port, _ := strconv.Atoi(f.port)
	for i := from; i < to; i++ {
		id := f.id(i)
		a.Register(t, consultest.Service{
			ID: id, Name: "svc", Address: f.hosts[i], Port: port,
			Check: &consultest.Check{CheckID: id, TTL: "24h", Status: "passing"},
		})
	}
}

func (f *fleet) id(i int) string { return fmt.Sprintf("svc-%03d", i) }

// withConsul is a document for the agent, with more for `discovery` and for the service.
func withConsul(a *consultest.Agent, discovery, service string) string {
	return fmt.Sprintf(quiet+`
registries: {main: {consul: {address: %q}}}
discovery: {%s}
services: {svc: {from: main, policy: {retry: {count: 2, budget: {ratio: 100%%}}}%s}}`, a.HTTP, discovery, service)
}

func steady(t testing.TB, p *sidecartest.Process) *sidecartest.Load {
	return sidecartest.Steady(t, sidecartest.Call{Address: p.Outbound, Host: "svc", Path: "/", Callers: 4, Pause: 2 * time.Millisecond})
}

// TestMassCritical: 60 of 100 turn critical at once. At least 80 stay and no call fails; switched off for the service, 40
// do; when they are well again, all are used (S-41, S-42).
func TestMassCritical(t *testing.T) {
	f, agent := newFleet(t, 100), consultest.Dev(t)
	f.register(t, agent, 0, 100)
	p := sidecartest.Run(t, "%s", withConsul(agent, "snapshot_dir: none", ""))
	sees(t, p, "svc", 100, "")
	l := steady(t, p)
	for i := range 60 {
		agent.SetCheck(t, f.id(i), "critical")
	}
	sees(t, p, "svc", 80, "removal_protection")
	left := 0
	for _, e := range look(t, p, "svc").LeftOut {
		if e.Why == "unhealthy" {
			left++
		}
	}
	if left != 20 {
		t.Errorf("%d are left out as unhealthy", left)
	}
	p.Write(t, "%s", withConsul(agent, "snapshot_dir: none", ", removal_protection: none"))
	sees(t, p, "svc", 40, "")
	p.Write(t, "%s", withConsul(agent, "snapshot_dir: none", ""))
	sees(t, p, "svc", 80, "removal_protection")
	for i := range 60 {
		agent.SetCheck(t, f.id(i), "passing")
	}
	sees(t, p, "svc", 100, "")
	none(t, l)
}

// TestAlternatingConsul: all instances go and come back, over and over: no call fails, and in the end the registry is
// believed again. One that said nothing and is gone for good is dropped then (S-46 … S-48). The long form takes 2.5 min at a pace
// at which the watch, which asks once a second, sees each of both, and one more without a pause, where it sees parts of the list by chance.
func TestAlternatingConsul(t *testing.T) {
	f, agent := newFleet(t, 5), consultest.Dev(t)
	f.register(t, agent, 0, 5)
	p := sidecartest.Run(t, "%s", withConsul(agent, "snapshot_dir: none, half_dead: {hold: 2s}", ""))
	sees(t, p, "svc", 5, "")
	l := steady(t, p)
	began, rounds := time.Now(), 0
	pause := func() {
		if soak && time.Since(began) < 150*time.Second {
			<-time.After(1500 * time.Millisecond)
		}
	}
	for rounds < 4 || soak && time.Since(began) < 210*time.Second {
		rounds++
		for i := range 5 {
			agent.Deregister(t, f.id(i))
		}
		sees(t, p, "svc", 5, "half_dead")
		pause()
		f.register(t, agent, 0, 5)
		pause()
	}
	sees(t, p, "svc", 5, "")
	calls, _ := l.Count()
	t.Logf("%d times all and nothing in %v, %d calls", rounds, time.Since(began).Round(time.Second), calls)
	for i := range 3 {
		agent.Deregister(t, f.id(i))
	}
	sees(t, p, "svc", 5, "half_dead")
	f.register(t, agent, 1, 3)
	sees(t, p, "svc", 4, "")
	none(t, l)
}

// TestZombies: 4 of 10 are registered as well and are gone. Calls are retried meanwhile; then the four are out, beyond the
// share that outlier detection may take, and they are back as soon as they answer (S-28).
func TestZombies(t *testing.T) {
	f, agent := newFleet(t, 10), consultest.Dev(t)
	f.register(t, agent, 0, 10)
	for i := range 4 {
		f.origins[i].Close()
	}
	p := sidecartest.Run(t, "%s", withConsul(agent, "snapshot_dir: none", ""))
	sees(t, p, "svc", 10, "")
	warm := steady(t, p)
	sees(t, p, "svc", 6, "")
	warm.Stop()
	if warm.Failed > warm.Calls/10 {
		t.Errorf("before they were found out %d of %d calls failed: %q", warm.Failed, warm.Calls, warm.Failures)
	}
	for _, e := range look(t, p, "svc").LeftOut {
		if e.Why != "unreachable" || e.Check != "dead" {
			t.Errorf("%+v", e)
		}
	}
	l := steady(t, p)
	sidecartest.Eventually(t, 20*time.Second, "calls are made", func() bool { n, _ := l.Count(); return n > 500 })
	none(t, l)
	if n := p.Metric(t, "sidecar_events_total", `kind="zombie"`); n != 4 {
		t.Errorf("%v events", n)
	}
	for i := range 4 {
		sidecartest.AnswerAt(t, net.JoinHostPort(f.hosts[i], f.port), sidecartest.OK("back"))
	}
	for deadline := time.Now().Add(60 * time.Second); len(look(t, p, "svc").Endpoints) < 10; <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", look(t, p, "svc").LeftOut)
		}
	}
}

// TestConsulAndSidecarRestarted: Consul is dead and the sidecar was killed and started again: no call fails. Consul comes
// back empty, as one that lost its data does, and nothing is lost (S-22, S-49).
func TestConsulAndSidecarRestarted(t *testing.T) {
	f, agent, dir := newFleet(t, 4), consultest.Dev(t), filepath.Join(t.TempDir(), "kept")
	f.register(t, agent, 0, 4)
	document := withConsul(agent, fmt.Sprintf("snapshot_dir: %q, half_dead: {hold: 2s}", dir), "")
	binary := sidecartest.Build(t)
	p := sidecartest.Start(t, binary, document)
	sees(t, p, "svc", 4, "")
	kept(t, dir)
	agent.Kill(t)
	p.Signal(t, syscall.SIGKILL)
	<-p.Exited()
	p = sidecartest.Start(t, binary, document)
	l := steady(t, p)
	sees(t, p, "svc", 4, "restored")
	sidecartest.Eventually(t, 20*time.Second, "calls are made", func() bool { n, _ := l.Count(); return n > 500 })
	agent.Restart(t)
	for i := range 4 {
		agent.Deregister(t, f.id(i))
	}
	sidecartest.Eventually(t, 20*time.Second, "the short list is doubted", func() bool {
		d := look(t, p, "svc") // one may have failed its check between the two, which is believed
		return len(d.Endpoints) >= 3 && d.protection() == "half_dead"
	})
	f.register(t, agent, 0, 3)
	sees(t, p, "svc", 3, "")
	none(t, l)
}

// TestUpdateGate: a key of Consul closes the gate of a sidecar whose turn is far away: changes wait. Opened by the
// same key, they are in force at once (S-40).
func TestUpdateGate(t *testing.T) {
	f, agent := newFleet(t, 5), consultest.Dev(t)
	f.register(t, agent, 0, 4)
	gate := guard.Gate{Closed: true, Share: 0.001, Epoch: time.Hour}
	id := 0
	for { // one in a thousand would have its turn now
		if open, until := gate.Turn(time.Now(), fmt.Sprint("/", id)); !open && time.Until(until) > gate.Epoch {
			break
		}
		id++
	}
	p := sidecartest.Run(t, "node: {id: \"%d\"}\nconfig_center: {consul: {registry: main}}\n%s", id, withConsul(agent, "snapshot_dir: none", ""))
	sees(t, p, "svc", 4, "")
	agent.PutKV(t, "sidecar/update_gate", "{enabled: true, percent: 0.1%, epoch: 1h}")
	sidecartest.Eventually(t, 10*time.Second, "the gate is closed", func() bool { return p.Metric(t, "sidecar_discovery_update_gate") == 2 })
	agent.SetCheck(t, f.id(0), "critical") // the query that is under way still answers
	sees(t, p, "svc", 3, "")
	agent.SetCheck(t, f.id(0), "passing")
	f.register(t, agent, 4, 5)
	sidecartest.Never(t, time.Second, "the closed gate lets a pull through", func() bool { return len(look(t, p, "svc").Endpoints) != 3 })
	agent.PutKV(t, "sidecar/update_gate", "{enabled: false}")
	sees(t, p, "svc", 5, "")
}
