package discovery_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
)

// fake is a source that says what a test tells it to say.
type fake struct {
	out    chan discovery.Update
	mu     sync.Mutex
	wanted []string
	runs   int
	fail   chan error
}

func newFake() *fake {
	return &fake{out: make(chan discovery.Update), fail: make(chan error)}
}

func (f *fake) Run(ctx context.Context, want <-chan []string, report func(discovery.Update)) error {
	f.mu.Lock()
	f.runs++
	f.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return nil
		case names := <-want:
			f.mu.Lock()
			f.wanted = names
			f.mu.Unlock()
		case u := <-f.out:
			report(u)
		case err := <-f.fail:
			return err
		}
	}
}

func (f *fake) say(service string, addresses ...string) {
	u := discovery.Update{Service: service, Endpoints: []*config.Endpoint{}}
	for _, a := range addresses {
		u.Endpoints = append(u.Endpoints, &config.Endpoint{Address: a, Weight: 1})
	}
	f.out <- u
}

func (f *fake) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wanted
}

// rig is a merger in a synctest bubble with fake sources by registry name.
type rig struct {
	t       *testing.T
	m       *discovery.Merger
	sources map[string]*fake
	stop    context.CancelFunc
	done    chan error

	mu     sync.Mutex      // guards what follows
	dead   map[string]bool // addresses that no check reaches
	checks int
	told   []string // by the observer
	meshes []*config.Mesh
	refuse error
	opened []string
}

func start(t *testing.T, cfg *config.Config, names ...string) *rig {
	t.Helper()
	return startWith(t, nil, cfg, names...)
}

func startWith(t *testing.T, memory discovery.Memory, cfg *config.Config, names ...string) *rig {
	t.Helper()
	r := &rig{t: t, sources: make(map[string]*fake), done: make(chan error, 1), dead: make(map[string]bool)}
	if d, ok := memory.(*disk); ok {
		r.kill(d.dead...)
	}
	for _, n := range append(names, "resolver") {
		r.sources[n] = newFake()
	}
	r.m = discovery.New(discovery.Options{
		Memory: memory, Observer: told{r},
		Check: func(_ context.Context, c discovery.Check) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.checks++
			if r.dead[c.Address] {
				return errors.New("refused")
			}
			return nil
		},
		Open: func(reg *config.Registry) (discovery.Source, error) {
			f, ok := r.sources[reg.Name]
			if !ok {
				return nil, errors.New("no such source")
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.opened = append(r.opened, reg.Name)
			return f, nil
		},
		Apply: func(m *config.Mesh) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.refuse != nil {
				return r.refuse
			}
			r.meshes = append(r.meshes, m)
			return nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = cancel
	go func() { r.done <- r.m.Run(ctx, cfg) }()
	t.Cleanup(func() { cancel(); synctest.Wait() })
	synctest.Wait()
	return r
}

// after lets d pass and returns the newest mesh.
func (r *rig) after(d time.Duration) *config.Mesh {
	r.t.Helper()
	time.Sleep(d) // of the bubble: no time passes outside
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.meshes) == 0 {
		return nil
	}
	return r.meshes[len(r.meshes)-1]
}

func (r *rig) applies() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.meshes)
}

func (r *rig) refuseWith(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = err
}

func (r *rig) isReady() bool {
	select {
	case <-r.m.Ready():
		return true
	default:
		return false
	}
}

func addresses(m *config.Mesh, service string) []string {
	if m == nil || m.Endpoints[service] == nil {
		return nil
	}
	var all []string
	for _, e := range m.Endpoints[service].List {
		all = append(all, e.Address)
	}
	return all
}

func (r *rig) expect(m *config.Mesh, service string, want ...string) {
	r.t.Helper()
	if got := addresses(m, service); !slices.Equal(got, want) {
		r.t.Errorf("%s: %v, want %v", service, got, want)
	}
}

// doc makes a configuration: registries by name, services as name → registries and fixed addresses (those with a colon).
func doc(registries []string, services map[string][]string) *config.Config {
	c := &config.Config{
		Discovery:  config.Discovery{ReadyWait: 5 * time.Second},
		Registries: make(map[string]*config.Registry),
		Services:   make(map[string]*config.Service),
	}
	for _, r := range registries {
		c.Registries[r] = &config.Registry{Name: r, File: &config.FileRegistry{Path: "/" + r}}
	}
	for name, parts := range services {
		s := &config.Service{Name: name, Protocol: "http", Hosts: []string{name}}
		for _, p := range parts {
			if _, ok := c.Registries[p]; ok {
				s.Registry = append(s.Registry, p)
			} else {
				s.Endpoints = append(s.Endpoints, &config.Endpoint{Address: p, Weight: 1})
			}
		}
		c.Services[name] = s
	}
	return c
}

func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}
