package discovery_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStaticOnlyIsReadyAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, doc(nil, map[string][]string{"a": {"10.0.0.2:1", "10.0.0.1:1", "10.0.0.2:1"}, "b": nil}))
		m := r.after(0)
		r.expect(m, "a", "10.0.0.2:1", "10.0.0.1:1") // in the order written, each once
		if m.Endpoints["b"] == nil || !r.isReady() || len(r.m.Waiting()) != 0 {
			t.Error("not ready with static endpoints alone")
		}
		if len(r.opened) != 1 {
			t.Errorf("opened %v", r.opened)
		}
	})
}

func TestFirstMesh(t *testing.T) {
	cfg := func() *config.Config {
		return doc([]string{"x", "y"}, map[string][]string{"a": {"x"}, "b": {"y", "10.0.0.9:1"}, "c": {"y"}})
	}
	bubble(t, func(t *testing.T) { // all answer
		r := start(t, cfg(), "x", "y")
		r.sources["x"].say("a", "10.0.0.1:1")
		r.sources["y"].say("b")
		if r.after(90*time.Millisecond) != nil || r.isReady() {
			t.Error("applied before all answered")
		}
		if w := r.m.Waiting(); !slices.Equal(w, []discovery.Wait{{Service: "c", Source: "y"}}) {
			t.Errorf("waiting for %v", w)
		}
		r.sources["y"].say("c") // an empty answer is an answer
		m := r.after(20 * time.Millisecond)
		r.expect(m, "a", "10.0.0.1:1")
		r.expect(m, "b", "10.0.0.9:1")
		if m.Endpoints["c"] == nil || !r.isReady() {
			t.Error("an empty answer did not count")
		}
	})
	bubble(t, func(t *testing.T) { // one registry is dead (S-24, S-26, S-49)
		r := start(t, cfg(), "x", "y")
		r.sources["x"].say("a", "10.0.0.1:1")
		if r.after(90*time.Millisecond) != nil {
			t.Error("applied while lists come")
		}
		m := r.after(20 * time.Millisecond) // no further one comes
		r.expect(m, "a", "10.0.0.1:1")
		if m.Endpoints["c"] != nil {
			t.Error("a set without an answer")
		}
		if r.after(4800 * time.Millisecond); r.isReady() {
			t.Error("ready too early")
		}
		if r.after(200 * time.Millisecond); !r.isReady() {
			t.Error("not ready after ready_wait")
		}
	})
}

// Nobody answers at all: what needs no answer is served after a second.
func TestFirstWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, doc([]string{"x"}, map[string][]string{"a": {"x"}, "b": {"10.0.0.9:1"}}), "x")
		if r.after(990*time.Millisecond) != nil {
			t.Error("applied while nobody answered")
		}
		r.expect(r.after(20*time.Millisecond), "b", "10.0.0.9:1")
	})
}

func TestFailureKeepsLastGood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, doc([]string{"x", "y"}, map[string][]string{"a": {"x"}, "b": {"y"}}), "x", "y")
		r.sources["x"].say("a", "10.0.0.1:1")
		r.sources["y"].say("b", "10.0.0.2:1")
		before := r.after(time.Second)
		r.sources["x"].out <- discovery.Update{Service: "a", Err: errors.New("leader lost")}
		r.sources["x"].out <- discovery.Update{Service: "a", Err: errors.New("leader lost again")}
		m := r.after(time.Second)
		r.expect(m, "a", "10.0.0.1:1")
		if st := m.Endpoints["a"].Sources[0]; !st.Stale || st.Err != "leader lost" || !st.Answered {
			t.Errorf("state %+v", st)
		}
		if m.Endpoints["b"] != before.Endpoints["b"] || m.Endpoints["a"].List[0] != before.Endpoints["a"].List[0] {
			t.Error("pointers of what did not change are not shared")
		}
		if m.Config.Services["a"] != before.Config.Services["a"] {
			t.Error("service pointer changed")
		}
		n := r.applies()
		r.sources["x"].say("a", "10.0.0.1:1")
		m = r.after(time.Second)
		if m.Endpoints["a"].Sources[0].Stale || r.applies() != n+1 {
			t.Error("still stale, or applied more than once")
		}
		r.sources["x"].say("a", "10.0.0.1:1")
		if r.after(time.Second); r.applies() != n+1 {
			t.Error("an answer without news was applied")
		}
	})
}

func TestSourceThatReturnsIsRunAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, doc([]string{"x"}, map[string][]string{"a": {"x"}}), "x")
		x := r.sources["x"]
		x.say("a", "10.0.0.1:1")
		r.after(time.Second)
		x.fail <- errors.New("boom")
		m := r.after(100 * time.Millisecond)
		r.expect(m, "a", "10.0.0.1:1")
		if !m.Endpoints["a"].Sources[0].Stale {
			t.Error("not stale")
		}
		r.after(2 * time.Second)
		if x.runs != 2 || !slices.Equal(x.asked(), []string{"a"}) {
			t.Errorf("%d runs, asked for %v", x.runs, x.asked())
		}
	})
}

// kind is a failure whose kind has a name.
type kind struct{ name, text string }

func (k kind) Error() string  { return k.name + ": " + k.text }
func (k kind) Reason() string { return k.name }

// What is shown of a source that goes on failing is the first failure of its kind.
func TestFailureOfAnotherKind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, doc([]string{"x"}, map[string][]string{"a": {"x"}}), "x")
		x := r.sources["x"]
		x.say("a", "10.0.0.1:1")
		first := r.after(time.Second)
		shown := func(err error, want string) {
			t.Helper()
			x.out <- discovery.Update{Service: "a", Err: err}
			m := r.after(time.Second)
			if st := m.Endpoints["a"].Sources[0]; !st.Stale || st.Err != want {
				t.Errorf("%+v, want %q", st, want)
			}
			if m.Endpoints["a"].List[0] != first.Endpoints["a"].List[0] {
				t.Error("the endpoint was not shared")
			}
		}
		shown(kind{"server_error", "HTTP 500"}, "server_error: HTTP 500")
		n := r.applies()
		shown(kind{"server_error", "HTTP 502"}, "server_error: HTTP 500")
		if r.applies() != n {
			t.Error("a failure of the same kind was applied")
		}
		shown(kind{"unreachable", "port 1"}, "unreachable: port 1")
		shown(kind{"unreachable", "port 2"}, "unreachable: port 1")
	})
}

// A source is well when nothing that is wanted of it fails: an answer about one service says nothing of another one that fails
// still.
func TestWell(t *testing.T) {
	bubble(t, func(t *testing.T) {
		both := doc([]string{"x"}, map[string][]string{"a": {"x"}, "b": {"x"}})
		r := start(t, both, "x")
		x := r.sources["x"]
		heard := func(want ...string) {
			t.Helper()
			r.after(time.Second)
			r.mu.Lock()
			defer r.mu.Unlock()
			if !slices.Equal(r.told, want) {
				t.Errorf("told %q, want %q", r.told, want)
			}
			r.told = nil
		}
		x.say("a", "10.0.0.1:1")
		x.say("b", "10.0.0.2:1")
		heard()
		x.out <- discovery.Update{Service: "a", Err: errors.New("SERVFAIL")}
		heard("failed x a: SERVFAIL")
		x.say("b", "10.0.0.2:1")
		x.out <- discovery.Update{Service: "b", Unchanged: true}
		heard()
		x.out <- discovery.Update{Service: "a", Unchanged: true}
		heard("well x")

		x.out <- discovery.Update{Err: errors.New("a bad file")}
		x.out <- discovery.Update{Service: "b", Err: errors.New("SERVFAIL")}
		heard("failed x : a bad file", "failed x b: SERVFAIL")
		x.say("b", "10.0.0.2:1")
		heard()
		x.out <- discovery.Update{}
		heard("well x")

		x.fail <- errors.New("boom")
		heard("failed x : boom")
		r.after(2 * time.Second)
		x.say("a", "10.0.0.1:1")
		heard("well x")

		x.out <- discovery.Update{Service: "a", Err: errors.New("SERVFAIL")}
		heard("failed x a: SERVFAIL")
		if err := r.m.SetConfig(t.Context(), doc([]string{"x"}, map[string][]string{"b": {"x"}})); err != nil {
			t.Fatal(err)
		}
		heard("well x")
		if err := r.m.SetConfig(t.Context(), doc(nil, map[string][]string{"c": nil})); err != nil {
			t.Fatal(err)
		}
		heard("closed x")
	})
}

// A service none of whose sources was ever heard says so: nobody could tell it from one without endpoints.
func TestNeverHeard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, doc([]string{"x"}, map[string][]string{"a": {"x"}}), "x")
		r.sources["x"].out <- discovery.Update{Service: "a", Err: errors.New("refused")}
		set := r.after(10 * time.Second).Endpoints["a"]
		if set == nil || len(set.List) != 0 || len(set.Sources) != 1 || set.Sources[0].Answered || !set.Sources[0].Stale || set.Sources[0].Err != "refused" {
			t.Fatalf("%+v", set)
		}
		r.sources["x"].say("a", "10.0.0.1:1")
		r.expect(r.after(time.Second), "a", "10.0.0.1:1")
	})
}

// What a registry lists as unfit gets no traffic, and is not forgotten as a deregistered one is: another registry may think
// better of the same address.
func TestUnfitEndpoints(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, doc([]string{"x", "y"}, map[string][]string{"a": {"x", "y"}}), "x", "y")
		say := func(source, address string, h config.Health) {
			r.sources[source].out <- discovery.Update{Service: "a", Endpoints: []*config.Endpoint{
				{Address: "10.0.0.1:1", Weight: 1}, {Address: address, Weight: 1, Health: h},
			}}
		}
		r.sources["y"].say("a")
		for _, c := range []struct {
			health config.Health
			want   []string
		}{
			{config.HealthPassing, []string{"10.0.0.1:1", "10.0.0.2:1"}},
			{config.HealthCritical, []string{"10.0.0.1:1"}},
			{config.HealthWarning, []string{"10.0.0.1:1", "10.0.0.2:1"}},
			{config.HealthMaintenance, []string{"10.0.0.1:1"}},
		} {
			say("x", "10.0.0.2:1", c.health)
			r.expect(r.after(time.Second), "a", c.want...)
		}
		r.sources["y"].say("a", "10.0.0.2:1")
		r.expect(r.after(time.Second), "a", "10.0.0.1:1", "10.0.0.2:1")
	})
}

func TestDebounce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, doc([]string{"x"}, map[string][]string{"a": {"x"}}), "x")
		r.sources["x"].say("a")
		r.after(time.Second)
		n := r.applies()
		for i := range 10 { // 10 changes, 20 ms apart: one apply
			r.sources["x"].say("a", fmt.Sprintf("10.0.0.%d:1", i))
			r.after(20 * time.Millisecond)
		}
		if r.after(time.Second); r.applies() != n+1 {
			t.Errorf("%d applies for a burst", r.applies()-n)
		}
		n = r.applies()
		for i := range 100 { // 2 s of it: every 500 ms
			r.sources["x"].say("a", fmt.Sprintf("10.0.1.%d:1", i))
			r.after(20 * time.Millisecond)
		}
		if got := r.applies() - n; got < 3 || got > 5 {
			t.Errorf("%d applies in 2 s of changes", got)
		}
	})
}

func TestUnion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, doc([]string{"x", "y"}, map[string][]string{"a": {"x", "y", "10.0.0.5:1"}}), "x", "y")
		r.sources["x"].out <- discovery.Update{Service: "a", Endpoints: []*config.Endpoint{
			{Address: "10.0.0.5:1", Weight: 9},
			{Address: "10.0.0.3:1", Weight: 3},
			{Address: "[::ffff:10.0.0.1]:1", Weight: 1},
			{Address: "10.0.0.3:1", Weight: 4},
		}}
		r.sources["y"].out <- discovery.Update{Service: "a", Endpoints: []*config.Endpoint{
			{Address: "10.0.0.3:1", Weight: 7}, {Address: "10.0.0.2:1", Weight: 2},
		}}
		m := r.after(time.Second)
		r.expect(m, "a", "10.0.0.5:1", "10.0.0.1:1", "10.0.0.3:1", "10.0.0.2:1")
		for i, w := range []int{1, 1, 3, 2} {
			if got := m.Endpoints["a"].List[i].Weight; got != w {
				t.Errorf("endpoint %d has weight %d, want %d", i, got, w)
			}
		}
	})
}

func TestNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, doc([]string{"x"}, map[string][]string{"a": {"cache.internal:80", "10.0.0.1:80"}, "b": {"x"}}), "x")
		dns := r.sources["resolver"]
		if !slices.Equal(dns.asked(), []string{"cache.internal:80"}) {
			t.Fatalf("asked for %v", dns.asked())
		}
		r.sources["x"].say("b", "db.internal:5432", "srv:_x._tcp.b.internal")
		m := r.after(time.Second) // the first mesh, without the names
		r.expect(m, "a", "10.0.0.1:80")
		if want := []string{"cache.internal:80", "db.internal:5432", "srv:_x._tcp.b.internal"}; !slices.Equal(dns.asked(), want) {
			t.Fatalf("asked for %v", dns.asked())
		}
		dns.say("cache.internal:80", "10.1.0.2:80", "10.1.0.1:80")
		dns.say("db.internal:5432", "10.2.0.1:5432")
		dns.out <- discovery.Update{Service: "srv:_x._tcp.b.internal", Endpoints: []*config.Endpoint{{Address: "10.3.0.1:99", Weight: 5}}}
		m = r.after(time.Second)
		r.expect(m, "a", "10.1.0.1:80", "10.1.0.2:80", "10.0.0.1:80")
		r.expect(m, "b", "10.2.0.1:5432", "10.3.0.1:99")
		if m.Endpoints["b"].List[1].Weight != 5 || !r.isReady() {
			t.Error("weight of the record lost, or not ready")
		}
		dns.say("cache.internal:80", "10.1.0.2:80")
		m2 := r.after(time.Second)
		r.expect(m2, "a", "10.1.0.2:80", "10.0.0.1:80")
		if m2.Endpoints["a"].List[0] != m.Endpoints["a"].List[1] || m2.Endpoints["b"] != m.Endpoints["b"] {
			t.Error("pointers of what did not change are not shared")
		}
		r.sources["x"].say("b", "10.9.0.1:1")
		r.after(time.Second)
		if !slices.Equal(dns.asked(), []string{"cache.internal:80"}) {
			t.Errorf("still asked for %v", dns.asked())
		}
	})
}

func TestReload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		services := map[string][]string{"a": {"x"}, "b": {"10.0.0.7:1"}}
		r := start(t, doc([]string{"x", "y"}, services), "x", "y")
		r.sources["x"].say("a", "10.0.0.1:1")
		before := r.after(time.Second)
		refused := errors.New("routes: bad expression")
		r.refuseWith(refused)
		if err := r.m.SetConfig(t.Context(), doc(nil, map[string][]string{"z": nil})); !errors.Is(err, refused) {
			t.Errorf("SetConfig: %v", err)
		}
		r.refuseWith(nil)
		if err := r.m.SetConfig(t.Context(), doc([]string{"unknown"}, map[string][]string{"z": {"unknown"}})); err == nil {
			t.Error("a registry that cannot be opened was taken")
		}
		bad := doc(nil, map[string][]string{"z": nil})
		bad.Services["z"].Registry = []string{"nowhere"}
		if err := r.m.SetConfig(t.Context(), bad); err == nil {
			t.Error("a registry that is not defined was taken")
		}
		r.sources["x"].say("a", "10.0.0.1:1", "10.0.0.2:1") // the old configuration is in force
		m := r.after(time.Second)
		r.expect(m, "a", "10.0.0.1:1", "10.0.0.2:1")

		next := maps.Clone(services)
		next["c"] = []string{"10.0.0.8:1"}
		if err := r.m.SetConfig(t.Context(), doc([]string{"x", "y"}, next)); err != nil {
			t.Fatal(err)
		}
		after := r.after(0)
		r.expect(after, "c", "10.0.0.8:1")
		if after.Config.Services["a"] != before.Config.Services["a"] || after.Endpoints["a"] != m.Endpoints["a"] ||
			after.Endpoints["b"] != before.Endpoints["b"] || after.Config.Services["b"] != before.Config.Services["b"] {
			t.Error("pointers of what did not change are not shared")
		}
		if after.Revision == before.Revision || before.Revision != m.Revision {
			t.Error("the revision does not follow the configuration")
		}
		if r.sources["x"].runs != 1 {
			t.Error("a source that did not change was restarted")
		}
	})
}

// From another registry: the endpoints stay until it answers (99.h), but no longer than ready_wait.
func TestReloadToAnotherRegistry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		next := map[string][]string{"a": {"x"}}
		r := start(t, doc([]string{"x", "y"}, next), "x", "y")
		r.sources["x"].say("a", "10.0.0.1:1", "10.0.0.2:1")
		r.after(time.Second)
		next["a"] = []string{"y"}
		if err := r.m.SetConfig(t.Context(), doc([]string{"x", "y"}, next)); err != nil {
			t.Fatal(err)
		}
		r.expect(r.after(time.Second), "a", "10.0.0.1:1", "10.0.0.2:1")
		r.sources["y"].say("a", "10.0.0.2:1", "10.0.0.3:1")
		r.expect(r.after(time.Second), "a", "10.0.0.2:1", "10.0.0.3:1")

		next["a"] = []string{"x"}
		if err := r.m.SetConfig(t.Context(), doc([]string{"x", "y"}, next)); err != nil {
			t.Fatal(err)
		}
		r.expect(r.after(4900*time.Millisecond), "a", "10.0.0.2:1", "10.0.0.3:1")
		if m := r.after(200 * time.Millisecond); m.Endpoints["a"] != nil {
			t.Errorf("held beyond ready_wait: %v", addresses(m, "a"))
		}
		if r.sources["x"].runs != 2 { // stopped when nobody used it, started again
			t.Errorf("x ran %d times", r.sources["x"].runs)
		}
	})
}

func TestChangedRegistryKeepsItsAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := doc([]string{"x"}, map[string][]string{"a": {"x"}})
		r := start(t, cfg, "x")
		r.sources["x"].say("a", "10.0.0.1:1")
		r.after(time.Second)
		next := doc([]string{"x"}, map[string][]string{"a": {"x"}})
		next.Registries["x"].File.Path = "/elsewhere"
		old := r.sources["x"]
		r.sources["x"] = newFake()
		if err := r.m.SetConfig(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		m := r.after(time.Second)
		r.expect(m, "a", "10.0.0.1:1")
		if !m.Endpoints["a"].Sources[0].Stale {
			t.Error("not shown as stale")
		}
		select {
		case old.out <- discovery.Update{}:
			t.Error("the old source is still running")
		default:
		}
		r.sources["x"].say("a", "10.0.0.2:1")
		r.expect(r.after(time.Second), "a", "10.0.0.2:1")
	})
}

func TestStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(t, doc([]string{"x"}, map[string][]string{"a": {"x"}}), "x")
		r.stop()
		if err := <-r.done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := r.m.SetConfig(t.Context(), doc(nil, nil)); !errors.Is(err, discovery.ErrStopped) {
			t.Errorf("SetConfig after the end: %v", err)
		}
	})
	bubble(t, func(t *testing.T) { // the first configuration is refused
		refused := errors.New("refused")
		m := discovery.New(discovery.Options{
			Open:  func(*config.Registry) (discovery.Source, error) { return newFake(), nil },
			Apply: func(*config.Mesh) error { return refused },
		})
		if err := m.Run(t.Context(), doc(nil, map[string][]string{"a": nil})); !errors.Is(err, refused) {
			t.Errorf("Run: %v", err)
		}
	})
}
