// Package demo tells, line by line, what a sidecar does with a real Consul: `make demo-consul`. What it tells it checks, so it
// is a test like any other. The configurations are those of examples/consul.
package demo

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

func TestMain(m *testing.M) { sidecartest.Main(m) }

const (
	patience = 30 * time.Second // for what must happen: far more than it needs, for machines that are busy
	outage   = 8 * time.Second
	glance   = time.Second // for what one should see going on
)

// TestConsul is the whole story; its acts build on each other.
func TestConsul(t *testing.T) {
	s := open(t)
	s.discovery()
	s.outage()
	s.massCritical()
	s.drain()
	s.groupSwitch()
	s.keySwitch()
	s.halfDead()
	s.deadStart()
	s.end()
}

// story is told line by line. A claim that does not hold ends it.
type story struct {
	t           *testing.T
	began       time.Time
	consul      *consultest.Agent
	caller      *sidecartest.Process
	pods        []*pod   // of shop
	catalog     []string // ids of its instances, which have no sidecar: they were registered by hand
	services    []string
	catalogApps []*sidecartest.Origin
	loads       map[string]*sidecartest.Load // by service
}

// pod is one instance of shop: an app and the sidecar before it.
type pod struct {
	group   string
	sidecar *sidecartest.Process
	app     *sidecartest.Origin
}

// act begins a chapter.
func act(title string) { fmt.Printf("\n%s\n", title) }

// say tells what happens.
func (s *story) say(format string, args ...any) {
	fmt.Printf("%6.1fs %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// awaits tells that something is so as soon as it is, and how long that took.
func (s *story) awaits(what string, holds func() bool) {
	s.t.Helper()
	from := time.Now()
	sidecartest.Eventually(s.t, patience, what, holds)
	fmt.Printf("    ok  %s (after %d ms)\n", what, time.Since(from).Milliseconds())
}

// claim tells that something is so, if it is.
func (s *story) claim(is bool, format string, args ...any) {
	s.t.Helper()
	text := fmt.Sprintf(format, args...)
	if !is {
		s.t.Fatalf("FAIL %s", text)
	}
	fmt.Printf("    ok  %s\n", text)
}

// watched makes a change under the eyes of the callers: they go on for a while after it, and not one call fails.
func (s *story) watched(change func()) {
	s.t.Helper()
	before := map[string]int{}
	for name, l := range s.loads {
		before[name], _ = l.Count()
	}
	change()
	<-time.After(glance)
	for _, name := range s.services {
		s.unharmed(name, before[name], "meanwhile")
	}
}

// unharmed tells that a service was called since it had been called so often, and that no call failed.
func (s *story) unharmed(name string, before int, when string) {
	s.t.Helper()
	l := s.loads[name]
	calls, failed := l.Count()
	if failed > 0 {
		l.Stop()
		s.t.Logf("calls to %s failed: %q", name, l.Failures)
	}
	s.claim(failed == 0 && calls > before+20, "%d calls to %s %s, %d failed", calls-before, name, when, failed)
}

// example reads a configuration of examples/consul.
func example(t testing.TB, name string) string {
	t.Helper()
	for _, root := range []string{".", "../.."} { // where the command runs, and where the test does
		if text, err := os.ReadFile(filepath.Join(root, "examples/consul", name)); err == nil {
			return string(text)
		}
	}
	t.Fatalf("no examples/consul/%s here", name)
	return ""
}

// newPod starts an app and its sidecar.
func (s *story) newPod(group string) *pod {
	s.t.Helper()
	name := fmt.Sprintf("shop-%d", len(s.pods)+1)
	p := &pod{group: group, app: sidecartest.Answer(s.t, sidecartest.OK(name))}
	p.sidecar = sidecartest.Start(s.t, sidecartest.Build(s.t), example(s.t, "provider.yaml"),
		"POD="+name, "GROUP="+group, "APP="+p.app.Address, "CONSUL="+s.consul.HTTP)
	s.pods = append(s.pods, p)
	return p
}

// register writes an instance of catalog to Consul, as any program may.
func (s *story) register() {
	s.t.Helper()
	app := sidecartest.Answer(s.t, sidecartest.OK("catalog"))
	s.catalogApps = append(s.catalogApps, app)
	host, port, err := net.SplitHostPort(app.Address)
	if err != nil {
		s.t.Fatal(err)
	}
	number, _ := strconv.Atoi(port)
	id := fmt.Sprintf("catalog-%02d", len(s.catalog)+1) // not by port: two hosts may have drawn the same
	s.consul.Register(s.t, consultest.Service{
		ID: id, Name: "catalog", Address: host, Port: number,
		Check: &consultest.Check{CheckID: id, TTL: "24h", Status: "passing"},
	})
	s.consul.SetCheck(s.t, id, "passing") // what an agent stores is what was said of a check, not how it began
	s.catalog = append(s.catalog, id)
}

// open starts Consul, the services and their sidecars, and the caller's.
func open(t *testing.T) *story {
	t.Helper()
	s := &story{t: t, began: time.Now(), loads: map[string]*sidecartest.Load{}, services: []string{"shop", "catalog"}}
	act("Start")
	s.consul = consultest.Dev(t)
	s.say("Consul runs at %s", s.consul.HTTP)
	for _, group := range []string{"bj", "bj", "bj", "sh", "sh"} {
		s.newPod(group)
	}
	s.say("five apps of shop run, three in the group bj and two in sh, each behind a sidecar that registers it (examples/consul/provider.yaml)")
	for range 20 {
		s.register()
	}
	s.say("twenty instances of catalog are registered by hand, as any program may")
	s.caller = sidecartest.Start(t, sidecartest.Build(t), example(t, "consumer.yaml"),
		"CONSUL="+s.consul.HTTP, "SNAPSHOTS="+filepath.Join(t.TempDir(), "kept"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what the caller's sidecar has: shop %+v, catalog %+v; Consul: %+v", s.look("shop"), s.look("catalog"), s.consul.Instances(t, "shop"))
		}
	})
	s.say("the caller's sidecar runs (examples/consul/consumer.yaml): shop of the group bj and catalog, by name; no retry at all")
	return s
}

// end stops the callers and counts.
func (s *story) end() {
	s.t.Helper()
	act("End")
	for _, name := range s.services {
		s.loads[name].Stop()
		s.unharmed(name, 0, "in all")
	}
	s.say("everything above held")
}
