// Package registrar tells registries about the services of our own app: it does what discovery/registration decides, for
// each service and each registry apart, so that one that fails never holds another up (S-25). It owns one goroutine for
// each of them while Run runs, and no connection: registries are opened by a function that the composition root hands in. Beside
// that it has the policy published that a service has for its callers, which no registration waits for.
// Tests: scripted registries in bubbles of virtual time.
package registrar

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/registration"
)

// Registry is where instances are registered. Each call is bounded by its context.
type Registry interface {
	// Check asks what the rules say about an instance.
	Check(ctx context.Context, i *registration.Instance) registration.Result
	// Register writes the instance, or writes it anew, in critical state unless it is well.
	Register(ctx context.Context, i *registration.Instance, well bool) registration.Result
	// Report says how its app is doing. Where the agent asks the app, it only finds out whether the instance is there.
	Report(ctx context.Context, i *registration.Instance, well bool, note string) registration.Result
	// Deregister takes it away; that it is not there is fine.
	Deregister(ctx context.Context, i *registration.Instance) registration.Result
	// Verify asks whether anybody still lists it.
	Verify(ctx context.Context, i *registration.Instance) registration.Result
	// Sweep takes away, in one go, all instances that a node has registered, but those to keep (S-27).
	Sweep(ctx context.Context, node string, keep func(id string) bool) (removed []string, err error)
	Close()
}

// Observer is told what happens. It must not block.
type Observer interface {
	// Changed tells that a service went from one state to another in a registry.
	Changed(service, registry string, from, to registration.State, why string)
	// Tried tells how an action ended.
	Tried(registry string, verb registration.Verb, result registration.Kind)
	// Forgotten tells that a service that is no longer wanted has left a registry.
	Forgotten(service, registry string)
	// Swept tells that instances of an earlier life were taken away.
	Swept(registry string, ids []string)
	// Published tells how a try to publish the policy of a service ended: it was written, it was there already, or it failed;
	// again, as the try before.
	Published(service, registry string, written bool, err error, again bool)
}

// Options says how a Registrar works. All fields are required.
type Options struct {
	// Open prepares a registry, without I/O.
	Open     func(*config.Registry) (Registry, error)
	Observer Observer
	// Policy writes what callers are to know of a service, with the policies of its routes too; nil: there is nothing to say.
	Policy func(in *config.Inbound, routes bool) ([]byte, error)
	// Publish writes a document, unless it is there already.
	Publish func(ctx context.Context, p *Publication) (written bool, err error)
}

// bound is how long one call of a registry may take.
const bound = 5 * time.Second

// Registrar keeps registries informed. Make it with New and run it with Run, once.
type Registrar struct {
	o Options

	mu        sync.Mutex
	ctx       context.Context // of Run; nil before
	entries   map[key]*entry
	opened    map[*config.Registry]*opened
	listening bool
	leaving   bool
	apps      map[string]app
	work      sync.WaitGroup
	swept     map[string]bool // registries that were asked for what an earlier life left behind

	registered   map[string]bool         // services that have been in a registry
	publications map[string]*publication // by service
}

type key struct{ service, registry string }

// app is how an app is doing.
type app struct {
	well bool
	note string
}

// opened is a registry and how many entries use it.
type opened struct {
	Registry
	users int
}

// New returns a registrar that knows of no service yet.
func New(o Options) *Registrar {
	return &Registrar{
		o: o, entries: map[key]*entry{}, opened: map[*config.Registry]*opened{}, apps: map[string]app{}, swept: map[string]bool{},
		registered: map[string]bool{}, publications: map[string]*publication{},
	}
}

// Run serves until ctx ends. It takes nothing away: that is what Leave is for.
func (r *Registrar) Run(ctx context.Context) error {
	r.mu.Lock()
	r.ctx = ctx
	for _, e := range r.entries {
		r.startLocked(e)
	}
	r.mu.Unlock()
	<-ctx.Done()
	r.work.Wait()
	return nil
}

// SetConfig registers what a configuration asks for, and takes away what it no longer does.
func (r *Registrar) SetConfig(cfg *config.Config) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaving {
		return nil
	}
	wanted, err := r.wantedLocked(cfg)
	if err != nil {
		return err
	}
	for k, e := range r.entries {
		next := wanted[k]
		switch {
		case next != nil && next.same(e):
			delete(wanted, k)
			r.releaseLocked(next)
		case next != nil && next.instance.ID == e.instance.ID:
			e.abandon() // written over
		default:
			delete(r.entries, k)
			e.leave()
		}
	}
	for k, e := range wanted {
		r.entries[k] = e
		if r.ctx != nil {
			r.startLocked(e)
		}
	}
	r.setPublicationsLocked(cfg)
	return nil
}

// wantedLocked makes the entries of a configuration.
func (r *Registrar) wantedLocked(cfg *config.Config) (map[key]*entry, error) {
	wanted := map[key]*entry{}
	for _, in := range cfg.Inbound {
		if in.Register == nil {
			continue
		}
		for _, name := range in.Register.To {
			reg := cfg.Registries[name]
			o, err := r.openLocked(reg)
			if err != nil {
				for _, e := range wanted {
					r.releaseLocked(e)
				}
				return nil, err
			}
			i := instance(cfg, in)
			e := &entry{
				r: r, service: in.Service, reg: reg, at: o, instance: i, machine: registration.New(i), wake: make(chan struct{}, 1),
				done: make(chan struct{}), changed: time.Now(),
			}
			if r.listening {
				e.machine.Listening()
			}
			if a, known := r.apps[in.Service]; known {
				e.machine.App(a.well, a.note)
			}
			wanted[key{in.Service, name}] = e
		}
	}
	return wanted, nil
}

func (r *Registrar) openLocked(reg *config.Registry) (*opened, error) {
	if o := r.opened[reg]; o != nil {
		o.users++
		return o, nil
	}
	opn, err := r.o.Open(reg)
	if err != nil {
		return nil, err
	}
	o := &opened{Registry: opn, users: 1}
	r.opened[reg] = o
	return o, nil
}

// releaseLocked gives an entry's registry back.
func (r *Registrar) releaseLocked(e *entry) {
	if e.at.users--; e.at.users == 0 {
		e.at.Close()
		delete(r.opened, e.reg)
	}
}

func (r *Registrar) startLocked(e *entry) {
	r.work.Go(func() {
		e.run(r.ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.releaseLocked(e)
		if k := (key{e.service, e.reg.Name}); r.entries[k] == nil {
			r.o.Observer.Forgotten(k.service, k.registry)
		}
	})
	if name := e.reg.Name; !r.swept[name] && e.instance.Node != "" {
		r.swept[name] = true
		r.work.Go(func() { r.sweep(r.ctx, e) })
	}
}

// sweep takes away what an earlier life of this node left behind (S-28): it crashed, and its configuration has changed.
func (r *Registrar) sweep(ctx context.Context, e *entry) {
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		bounded, cancel := context.WithTimeout(ctx, bound)
		ids, err := e.at.Sweep(bounded, e.instance.Node, func(id string) bool { return r.wants(e.reg.Name, id) })
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			if len(ids) > 0 {
				r.o.Observer.Swept(e.reg.Name, ids)
			}
			return
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// wants reports whether an instance is meant to be in a registry.
func (r *Registrar) wants(registry, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, e := range r.entries {
		if k.registry == registry && e.instance.ID == id {
			return true
		}
	}
	return false
}

// Listening says that we take connections for our apps.
func (r *Registrar) Listening() {
	r.each(func(e *entry) { e.machine.Listening() }, func() { r.listening = true })
}

// App says how the app of a service is doing.
func (r *Registrar) App(service string, well bool, note string) {
	r.each(func(e *entry) {
		if e.service == service {
			e.machine.App(well, note)
		}
	}, func() { r.apps[service] = app{well, note} })
}

// each does something with all entries and wakes them.
func (r *Registrar) each(f func(*entry), first func()) {
	r.mu.Lock()
	first()
	list := make([]*entry, 0, len(r.entries))
	for _, e := range r.entries {
		list = append(list, e)
	}
	r.mu.Unlock()
	for _, e := range list {
		e.mu.Lock()
		f(e)
		e.mu.Unlock()
		e.wakeUp()
	}
}

// Leave takes all instances away, all at once, and verifies that they are gone. It returns when they are or when ctx
// ends, and says what was not taken away then.
func (r *Registrar) Leave(ctx context.Context) error {
	var list []*entry
	r.each(func(e *entry) { list = append(list, e); e.machine.Leave() }, func() {
		r.leaving = true
		for _, p := range r.publications {
			p.cancel()
		}
	})
	var errs []error
	for _, e := range list {
		select {
		case <-e.done:
		case <-ctx.Done():
			if s, why := e.view(); s != registration.Left {
				errs = append(errs, errors.New(e.service+" in "+e.reg.Name+": "+s.String()+", "+why))
			}
		}
	}
	return errors.Join(errs...)
}

// Any reports whether there is anything to take away.
func (r *Registrar) Any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.entries) > 0
}

// Status is where one service stands in one registry.
type Status struct {
	Service, Registry, ID string
	State                 registration.State
	Why                   string
	Since                 time.Time
	Refused               bool
}

// Status returns where all services stand, by service and registry.
func (r *Registrar) Status() []Status {
	r.mu.Lock()
	list := make([]*entry, 0, len(r.entries))
	for _, e := range r.entries {
		list = append(list, e)
	}
	r.mu.Unlock()
	out := make([]Status, len(list))
	for i, e := range list {
		out[i] = e.status()
	}
	slices.SortFunc(out, func(a, b Status) int {
		return cmpOr(a.Service, b.Service, a.Registry, b.Registry)
	})
	return out
}

func chance() float64 { return rand.Float64() }
