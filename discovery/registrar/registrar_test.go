package registrar_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/registrar"
	"github.com/sidecar-mesh/sidecar/discovery/registration"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a registry whose answers a test sets; it writes down what it was asked.
type fake struct {
	name string

	mu   sync.Mutex
	said []string
	has  map[string]*registration.Instance
	well map[string]bool
	next map[registration.Verb]registration.Result // instead of what it would answer
	hang bool                                      // until its caller gives up
}

func newFake(name string) *fake {
	return &fake{name: name, has: map[string]*registration.Instance{}, well: map[string]bool{}, next: map[registration.Verb]registration.Result{}}
}

func (f *fake) do(ctx context.Context, v registration.Verb, i *registration.Instance, good func() registration.Result) registration.Result {
	f.mu.Lock()
	hang := f.hang
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
		return registration.Result{Kind: registration.Failed, Text: "timeout"}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = append(f.said, v.String()+" "+i.ID)
	if r, ok := f.next[v]; ok {
		return r
	}
	return good()
}

func (f *fake) Check(ctx context.Context, i *registration.Instance) registration.Result {
	return f.do(ctx, registration.Check, i, func() registration.Result { return registration.Result{} })
}

func (f *fake) Register(ctx context.Context, i *registration.Instance, _ bool) registration.Result {
	return f.do(ctx, registration.Register, i, func() registration.Result {
		f.has[i.ID], f.well[i.ID] = i, false
		return registration.Result{}
	})
}

func (f *fake) Report(ctx context.Context, i *registration.Instance, well bool, _ string) registration.Result {
	return f.do(ctx, registration.Report, i, func() registration.Result {
		if f.has[i.ID] == nil {
			return registration.Result{Kind: registration.Lost}
		}
		f.well[i.ID] = well
		return registration.Result{}
	})
}

func (f *fake) Deregister(ctx context.Context, i *registration.Instance) registration.Result {
	return f.do(ctx, registration.Deregister, i, func() registration.Result {
		delete(f.has, i.ID)
		delete(f.well, i.ID)
		return registration.Result{}
	})
}

func (f *fake) Verify(ctx context.Context, i *registration.Instance) registration.Result {
	return f.do(ctx, registration.Verify, i, func() registration.Result { return registration.Result{} })
}

func (f *fake) Sweep(_ context.Context, node string, keep func(string) bool) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var removed []string
	for id, i := range f.has {
		if i.Node == node && !keep(id) {
			delete(f.has, id)
			removed = append(removed, id)
		}
	}
	return removed, nil
}

func (f *fake) Close() {}

// state says what is there: + for those that get calls.
func (f *fake) state() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []string
	for id := range f.has {
		mark := "-"
		if f.well[id] {
			mark = "+"
		}
		list = append(list, mark+id)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// calls returns what it was asked so far.
func (f *fake) calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.said)
}

// set changes how it behaves.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// log is an observer that writes down changes.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) Changed(service, registry string, from, to registration.State, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, strings.TrimSpace(fmt.Sprintf("%s in %s: %s → %s %s", service, registry, from, to, why)))
}

func (l *log) Tried(string, registration.Verb, registration.Kind) {}

func (l *log) Forgotten(service, registry string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, "forgotten: "+service+" in "+registry)
}

func (l *log) Swept(registry string, ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprint("swept in ", registry, ": ", ids))
}

func (l *log) Published(service, registry string, written bool, err error, again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf("published %s in %s: %t %v again=%t", service, registry, written, err, again))
}

func (l *log) has(line string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.lines, line)
}

// cfg is a configuration in which services are registered with registries.
func cfg(services map[string][]string, change ...func(*config.Register)) *config.Config {
	c := config.Default()
	c.Node.ID = "pod"
	c.Listen.Inbound = "10.0.0.1:80"
	for service, to := range services {
		r := &config.Register{To: to, TTL: 15 * time.Second, Weight: 1}
		for _, f := range change {
			f(r)
		}
		for _, name := range to {
			if c.Registries[name] == nil {
				c.Registries[name] = &config.Registry{Name: name}
			}
		}
		c.Inbound = append(c.Inbound, &config.Inbound{Service: service, App: "127.0.0.1:8080", Protocol: "http", Register: r})
	}
	return c
}

// rig is a registrar over registries main and old.
type rig struct {
	*registrar.Registrar
	main, old *fake
	center    *center
	log       *log
}

// run runs a test in virtual time.
func run(t *testing.T, test func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{main: newFake("main"), old: newFake("old"), center: &center{has: map[string]string{}}, log: &log{}}
		r.Registrar = registrar.New(registrar.Options{Observer: r.log, Policy: policy, Publish: r.center.publish, Open: func(reg *config.Registry) (registrar.Registry, error) {
			switch reg.Name {
			case "main":
				return r.main, nil
			case "old":
				return r.old, nil
			}
			return nil, errors.New("no registry " + reg.Name)
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		test(t, r)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (r *rig) want(t *testing.T, f *fake, state string) {
	t.Helper()
	synctest.Wait()
	if got := f.state(); got != state {
		t.Errorf("%s after %v: %q, want %q", f.name, time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)), got, state)
	}
}

// TestLife: critical, then passing with the app, critical when it dies, back with it, and gone for good at the end.
func TestLife(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		if err := r.SetConfig(cfg(map[string][]string{"shop": {"main"}})); err != nil {
			t.Fatal(err)
		}
		r.want(t, r.main, "-shop-pod-80")
		r.Listening()
		r.want(t, r.main, "-shop-pod-80")
		r.App("shop", true, "")
		r.App("other", false, "x")
		r.want(t, r.main, "+shop-pod-80")
		r.App("shop", false, "refused")
		r.want(t, r.main, "-shop-pod-80")
		r.App("shop", true, "")
		r.want(t, r.main, "+shop-pod-80")
		time.Sleep(time.Minute)
		if n := len(r.main.calls()); n < 12 || n > 20 {
			t.Errorf("%d calls in a minute", n)
		}
		if err := r.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		r.want(t, r.main, "")
		if s := r.Status(); len(s) != 1 || s[0].State != registration.Left {
			t.Errorf("%+v", s)
		}
		for _, line := range []string{"shop in main: registering → critical the sidecar does not listen yet", "shop in main: passing → critical refused", "shop in main: leaving → left"} {
			if !r.log.has(line) {
				t.Errorf("%q was not told: %q", line, r.log.lines)
			}
		}
	})
}

// TestSeveral: one registry that hangs holds neither another up nor the end.
func TestSeveral(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.old.set(func() { r.old.hang = true })
		r.Listening()
		r.App("shop", true, "")
		if err := r.SetConfig(cfg(map[string][]string{"shop": {"old", "main"}, "pay": {"main"}})); err != nil {
			t.Fatal(err)
		}
		r.App("pay", true, "")
		r.want(t, r.main, "+pay-pod-80 +shop-pod-80")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		err := r.Leave(ctx)
		if err == nil || !strings.Contains(err.Error(), "shop in old: leaving") || strings.Contains(err.Error(), "main") {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it took %v", took)
		}
		r.want(t, r.main, "")
	})
}

// TestLost: an agent that has forgotten everything is told again within a third of the TTL.
func TestLost(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		_ = r.SetConfig(cfg(map[string][]string{"shop": {"main"}}))
		r.Listening()
		r.App("shop", true, "")
		r.want(t, r.main, "+shop-pod-80")
		r.main.set(func() { clear(r.main.has) })
		time.Sleep(5 * time.Second)
		r.want(t, r.main, "+shop-pod-80")
	})
}

// TestReload: what is no longer wanted is taken away, what changed is written anew, and the rest is left alone.
func TestReload(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		_ = r.SetConfig(cfg(map[string][]string{"shop": {"main"}, "pay": {"main"}, "old": {"main"}}))
		r.Listening()
		for _, s := range []string{"shop", "pay", "old"} {
			r.App(s, true, "")
		}
		r.want(t, r.main, "+old-pod-80 +pay-pod-80 +shop-pod-80")
		next := cfg(map[string][]string{"shop": {"main"}, "pay": {"main", "old"}})
		for _, in := range next.Inbound {
			if in.Service == "pay" {
				in.Register.Tags = []string{"v2"}
			}
		}
		before := len(r.main.calls())
		if err := r.SetConfig(next); err != nil {
			t.Fatal(err)
		}
		r.want(t, r.main, "+pay-pod-80 +shop-pod-80")
		r.want(t, r.old, "+pay-pod-80")
		if !r.log.has("forgotten: old in main") {
			t.Errorf("%q", r.log.lines)
		}
		if got := r.main.has["pay-pod-80"].Tags; !slices.Equal(got, []string{"v2"}) {
			t.Errorf("tags %v", got)
		}
		for _, said := range r.main.calls()[before:] {
			if strings.Contains(said, "shop") {
				t.Errorf("%s although nothing changed", said)
			}
		}
		if err := r.SetConfig(cfg(map[string][]string{"shop": {"nowhere"}})); err == nil {
			t.Error("a registry that cannot be opened was taken")
		}
		r.want(t, r.main, "+pay-pod-80 +shop-pod-80")
	})
}

// TestRefused: nothing is written, and it shows.
func TestRefused(t *testing.T) {
	for _, kind := range []registration.Kind{registration.NotAllowed, registration.UnknownService, registration.UnknownGroup} {
		run(t, func(t *testing.T, r *rig) {
			r.main.set(func() { r.main.next[registration.Check] = registration.Result{Kind: kind, Text: "no"} })
			_ = r.SetConfig(cfg(map[string][]string{"shop": {"main"}}, func(c *config.Register) { c.Rules = "rules" }))
			r.Listening()
			r.App("shop", true, "")
			time.Sleep(time.Minute)
			r.want(t, r.main, "")
			s := r.Status()
			if len(s) != 1 || !s[0].Refused || s[0].Why != kind.String()+": no" {
				t.Errorf("%+v", s)
			}
			for _, said := range r.main.calls() {
				if !strings.HasPrefix(said, "check") {
					t.Errorf("it was asked to %s", said)
				}
			}
		})
	}
}

// TestSweep: what an earlier life of the same node left behind is taken away, and nothing else.
func TestSweep(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.main.has["gone-pod-80"] = &registration.Instance{ID: "gone-pod-80", Node: "pod:80"}
		r.main.has["other"] = &registration.Instance{ID: "other", Node: "pod:81"}
		_ = r.SetConfig(cfg(map[string][]string{"shop": {"main"}}))
		r.want(t, r.main, "-other -shop-pod-80")
		if !r.log.has("swept in main: [gone-pod-80]") {
			t.Errorf("%q", r.log.lines)
		}
	})
}
