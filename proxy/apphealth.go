package proxy

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/resilience"
)

// AppStatus is how the app behind an inbound service is doing, as active probes see it.
type AppStatus struct {
	Service string
	Known   bool // it was asked
	Well    bool
	Why     string // it is not
	Since   time.Time
}

// startEvery is how often an app is asked that was never well: it is just starting.
const startEvery = 250 * time.Millisecond

// apps are the probes of our own apps.
type apps struct {
	mu      sync.Mutex
	ctx     context.Context // of Run; nil before
	running map[string]*appProbe
	work    sync.WaitGroup
}

// appProbe asks one app.
type appProbe struct {
	app    string
	health config.AppHealth
	stop   context.CancelFunc

	mu     sync.Mutex
	status AppStatus // guarded by mu
}

// Apps returns how the apps are doing that are asked, by service.
func (p *Proxy) Apps() []AppStatus {
	p.apps.mu.Lock()
	defer p.apps.mu.Unlock()
	list := make([]AppStatus, 0, len(p.apps.running))
	for _, a := range p.apps.running {
		a.mu.Lock()
		list = append(list, a.status)
		a.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b AppStatus) int { return cmp.Compare(a.Service, b.Service) })
	return list
}

// runApps starts the probes; they end with ctx.
func (p *Proxy) runApps(ctx context.Context) {
	p.apps.mu.Lock()
	p.apps.ctx = ctx
	p.apps.mu.Unlock()
	if s := p.store.Load(); s != nil {
		p.watchApps(s.Mesh.Config)
	}
}

// stopApps waits for the probes, whose context has ended, and lets nobody start another.
func (p *Proxy) stopApps() {
	p.apps.mu.Lock()
	p.apps.ctx = nil
	p.apps.mu.Unlock()
	p.apps.work.Wait()
}

// watchApps sees to it that the apps are asked as a configuration wants it. What did not change goes on.
func (p *Proxy) watchApps(c *config.Config) {
	p.apps.mu.Lock()
	defer p.apps.mu.Unlock()
	if p.apps.ctx == nil { // not yet, or no longer
		return
	}
	wanted := map[string]*config.Inbound{}
	for _, in := range c.Inbound {
		if in.Health != nil {
			wanted[in.Service] = in
		}
	}
	for name, a := range p.apps.running {
		if in := wanted[name]; in == nil || a.app != in.App || a.health != *in.Health {
			a.stop()
			delete(p.apps.running, name)
			p.o.Recorder.AppForgotten(name)
			p.probed(name, true)
		}
	}
	for name, in := range wanted {
		if p.apps.running[name] != nil {
			continue
		}
		ctx, stop := context.WithCancel(p.apps.ctx)
		a := &appProbe{app: in.App, health: *in.Health, stop: stop, status: AppStatus{Service: name, Since: time.Now()}}
		p.apps.running[name] = a
		p.apps.work.Go(func() { p.askApp(ctx, a) })
	}
}

// askApp asks an app until ctx ends.
func (p *Proxy) askApp(ctx context.Context, a *appProbe) {
	var verdict resilience.AppHealth
	often := resilience.AppConfig{UnhealthyAfter: a.health.UnhealthyAfter, HealthyAfter: a.health.HealthyAfter}
	everWell := false
	for {
		began := time.Now()
		err := a.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		p.o.Recorder.AppProbed(a.status.Service, err == nil)
		if verdict.Told(often, err == nil, absent(err)) {
			p.appChanged(a, err)
		}
		everWell = everWell || err == nil
		every := a.health.Interval
		if !everWell {
			every = min(every, startEvery)
		}
		if !wait(ctx, time.Until(began.Add(every))) {
			return
		}
	}
}

// ask asks once.
func (a *appProbe) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.health.Timeout)
	defer cancel()
	return reach(ctx, a.app, a.status.Service, a.health.Probe)
}

// absent reports whether nobody listens, which is not the answer of an app that has too much to do.
func absent(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
}

// probed notes at the endpoint of an inbound service what probes say.
func (p *Proxy) probed(service string, well bool) {
	if s, ok := p.store.Load().Inbound.Get(service); ok {
		for _, e := range s.Endpoints {
			e.Probed(time.Now(), well)
		}
		p.gauge(s)
	}
}

// appChanged tells everybody what has become of an app.
func (p *Proxy) appChanged(a *appProbe, err error) {
	now, why := time.Now(), ""
	if err != nil {
		why = err.Error()
	}
	a.mu.Lock()
	a.status.Known, a.status.Well, a.status.Why, a.status.Since = true, err == nil, why, now
	name := a.status.Service
	a.mu.Unlock()
	p.probed(name, err == nil)
	p.o.Recorder.AppChanged(name, err == nil, why)
	if p.o.App != nil {
		p.o.App(name, err == nil, why)
	}
}
