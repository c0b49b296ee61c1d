package discovery_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
	"github.com/sidecar-mesh/sidecar/discovery/guard"
)

// told notes in a rig what the observer hears of guards.
type told struct{ r *rig }

func (o told) Updated(string, string, int, bool) {}
func (o told) Failed(source, service string, err error) {
	o.r.note("failed %s %s: %v", source, service, err)
}
func (o told) Well(source string)                       { o.r.note("well %s", source) }
func (o told) Closed(source string)                     { o.r.note("closed %s", source) }
func (o told) Applied(*config.Mesh, int, time.Duration) {}
func (o told) Refused(error)                            {}
func (o told) Forgot(source, service string, err error) {
	o.r.note("forgot %s %s: %v", source, service, err)
}

func (o told) Guarded(src, svc string, was, is guard.Decision) {
	if was.Mode != is.Mode {
		o.r.note("%s %s: %s", src, svc, is.Mode)
	}
}

func (r *rig) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, fmt.Sprintf(format, args...))
}

func (r *rig) kill(addresses ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range addresses {
		r.dead[a] = true
	}
}

func (r *rig) revive() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.dead)
}

// guarded is a configuration with the default protections, and services from DNS registries: files mean what they say.
func guarded(services map[string][]string) *config.Config {
	c := doc([]string{"x"}, services)
	c.Registries["x"].File, c.Registries["x"].DNS = nil, &config.DNSRegistry{}
	c.Discovery = config.Default().Discovery
	return c
}

func numbered(n int) []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("10.0.0.%d:80", 100+i))
	}
	return list
}

func count(m *config.Mesh) int { return len(m.Endpoints["a"].List) }

func (r *rig) expectCount(m *config.Mesh, n int) {
	r.t.Helper()
	if got := count(m); got != n {
		r.t.Errorf("%d endpoints, want %d", got, n)
	}
}

// ill says a list of which the first n are critical.
func (f *fake) ill(n int, addresses ...string) {
	u := discovery.Update{Service: "a"}
	for i, a := range addresses {
		e := &config.Endpoint{Address: a, Weight: 1}
		if i < n {
			e.Health = config.HealthCritical
		}
		u.Endpoints = append(u.Endpoints, e)
	}
	f.out <- u
}

// 60 of 100 critical at once: 80 stay, and those that checks do not reach go; switched off for the service 40 stay (S-41).
func TestMassCritical(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := guarded(map[string][]string{"a": {"x"}})
		r := start(t, cfg, "x")
		x, all := r.sources["x"], numbered(100)
		x.say("a", all...)
		r.expectCount(r.after(time.Second), 100)
		x.ill(60, all...)
		m := r.after(time.Second)
		r.expectCount(m, 80)
		if st := m.Endpoints["a"].Sources[0]; st.Protection != "removal_protection" || st.Known != 100 {
			t.Errorf("%+v", st)
		}
		if n := m.Endpoints["a"].Notes; len(n) != 60 || n[0].Why != "unhealthy" || n[0].Used || n[59].Why != "retained" || n[59].Check != "alive" {
			t.Errorf("%d notes: %+v", len(n), n)
		}
		r.kill(all[59])
		r.expectCount(r.after(11*time.Second), 79)

		off := guarded(map[string][]string{"a": {"x"}})
		off.Services["a"].RemovalProtection.Off = config.Opt[bool]{Value: true, Set: true}
		if err := r.m.SetConfig(t.Context(), off); err != nil {
			t.Fatal(err)
		}
		r.expectCount(r.after(time.Second), 40)
	})
}

// A registry that alternates between all and nothing for minutes: the endpoints do not even move (S-46).
func TestAlternatingRegistry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, guarded(map[string][]string{"a": {"x"}}), "x")
		x, all := r.sources["x"], numbered(5)
		x.say("a", all...)
		r.expectCount(r.after(time.Second), 5)
		for range 60 {
			x.say("a")
			m := r.after(3 * time.Second)
			r.expect(m, "a", all...)
			if st := m.Endpoints["a"].Sources[0]; st.Protection != "half_dead" || st.Listed != 0 || st.Known != 5 {
				t.Fatalf("%+v", st)
			}
			x.say("a", all...)
			r.expect(r.after(3*time.Second), "a", all...)
		}
		// It recovers with one less: that is believed after the hold.
		x.say("a", all[1:]...)
		r.expect(r.after(20*time.Second), "a", all...)
		m := r.after(20 * time.Second)
		r.expect(m, "a", all[1:]...)
		if st := m.Endpoints["a"].Sources[0]; st.Protection != "" || len(m.Endpoints["a"].Notes) > 0 {
			t.Errorf("%+v", st)
		}
	})
}

// What is remembered and does not answer is thrown away (S-47).
func TestRememberedIsChecked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, guarded(map[string][]string{"a": {"x"}}), "x")
		x, all := r.sources["x"], numbered(5)
		x.say("a", all...)
		r.after(time.Second)
		r.kill(all[0], all[1])
		x.say("a")
		r.expect(r.after(time.Second), "a", all[2:]...)
		r.kill(all[2])
		r.expect(r.after(11*time.Second), "a", all[3:]...)
		r.revive()
		r.expect(r.after(time.Minute), "a", all...)
	})
}

// A registry is only a list where the consumer decides who lives (S-44).
func TestConsumerLiveness(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := guarded(map[string][]string{"a": {"x"}})
		cfg.Services["a"].Liveness = "consumer"
		r := start(t, cfg, "x")
		x, all := r.sources["x"], numbered(4)
		x.ill(4, all...)
		r.expect(r.after(time.Second), "a", all...)
		r.kill(all[1])
		r.m.Suspect("a", all[1])
		r.expect(r.after(3*time.Second), "a", all[0], all[2], all[3])
		r.revive()
		r.expect(r.after(30*time.Second), "a", all...)
	})
}

// A drain notice is believed at once, whatever the list says.
func TestLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, guarded(map[string][]string{"a": {"x"}}), "x")
		x, all := r.sources["x"], numbered(3)
		x.say("a", all...)
		r.after(time.Second)
		r.m.Left("a", all[0])
		r.m.Left("a", all[1])
		r.m.Left("nobody", all[2])
		r.expect(r.after(time.Second), "a", all...)
		x.say("a")
		r.expect(r.after(time.Second), "a", all[2])
		x.say("a", all...)
		r.expect(r.after(time.Second), "a", all...)
	})
}

// disk is a Memory that holds what a test wants.
type disk struct {
	kept  map[string][]*config.Endpoint
	saves int
	err   error
	dead  []string // from the start
}

func (d *disk) Load(_ *config.Registry, service string) ([]*config.Endpoint, time.Time, error) {
	return slices.Clone(d.kept[service]), time.Unix(1, 0), d.err
}

func (d *disk) Save(_ *config.Registry, service string, list []*config.Endpoint) {
	d.saves++
	d.kept[service] = list
}

func endpoints(addresses ...string) []*config.Endpoint {
	var list []*config.Endpoint
	for _, a := range addresses {
		list = append(list, &config.Endpoint{Address: a, Weight: 1})
	}
	return list
}

// From the disk it serves at once, with those that a check reaches; the registry that comes back half dead changes nothing,
// and what it says in the end counts (S-21, S-22, S-49).
func TestServesFromDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		all := numbered(4)
		d := &disk{kept: map[string][]*config.Endpoint{"a": endpoints(all...)}}
		r := startWith(t, d, guarded(map[string][]string{"a": {"x"}}), "x")
		m := r.after(20 * time.Millisecond)
		r.expect(m, "a", all...)
		if st := m.Endpoints["a"].Sources[0]; st.Protection != "restored" || !st.Stale || !strings.Contains(st.Err, "disk") {
			t.Errorf("%+v", st)
		}
		if !r.isReady() {
			t.Error("not ready")
		}
		r.sources["x"].out <- discovery.Update{Service: "a", Err: errors.New("no leader")}
		if st := r.after(time.Second).Endpoints["a"].Sources[0]; !strings.Contains(st.Err, "no leader") {
			t.Errorf("%+v", st)
		}
		r.sources["x"].say("a")
		r.expect(r.after(time.Minute), "a", all...)
		if d.saves == 0 || len(d.kept["a"]) != 4 {
			t.Errorf("kept %d after %d saves", len(d.kept["a"]), d.saves)
		}
		r.sources["x"].say("a", all[:3]...)
		r.expect(r.after(time.Minute), "a", all[:3]...)
		if len(d.kept["a"]) != 3 {
			t.Errorf("kept %d", len(d.kept["a"]))
		}
	})
}

// Nothing of the disk is used before a check has reached it; what cannot be read is told and no obstacle.
func TestDiskIsMistrusted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		all := numbered(2)
		d := &disk{kept: map[string][]*config.Endpoint{"a": endpoints(all...)}, err: errors.New("one is damaged")}
		r := startWith(t, d, guarded(map[string][]string{"b": {"x"}}), "x")
		r.kill(all[0])
		if err := r.m.SetConfig(t.Context(), guarded(map[string][]string{"a": {"x"}, "b": {"x"}})); !errors.Is(err, nil) {
			t.Fatal(err)
		}
		m := r.after(time.Second)
		r.expect(m, "a", all[1])
		if n := m.Endpoints["a"].Notes; len(n) != 2 || n[0].Why != "from_disk" || n[0].Used || n[0].Check != "dead" || n[0].Err != "refused" {
			t.Errorf("%+v", n)
		}
		if !slices.ContainsFunc(r.told, func(s string) bool { return strings.Contains(s, "damaged") }) {
			t.Errorf("told %q", r.told)
		}
	})
}

// One dead endpoint in a restored list does not hold the start up; with none alive the service is there and empty.
func TestDiskWithNobodyAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		all := numbered(2)
		d := &disk{kept: map[string][]*config.Endpoint{"a": endpoints(all...)}}
		d.dead = all
		s := startWith(t, d, guarded(map[string][]string{"a": {"x"}}), "x")
		m := s.after(20 * time.Millisecond)
		if m == nil || count(m) != 0 || !s.isReady() {
			t.Fatalf("mesh %v, ready %t", m, s.isReady())
		}
		s.revive()
		s.expect(s.after(2*time.Second), "a", all...)
	})
}
