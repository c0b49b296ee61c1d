package telemetry

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// own is what is known of the services of our own app beside their exchanges.
type own struct {
	mu   sync.Mutex
	apps map[string]*app // guarded by mu, as the rest

	states  map[[2]string]string // of registrations, by service and registry
	actions map[[3]string]uint64 // at registries, by action, registry and result
}

// ownDescriptions are the metrics of that.
type ownDescriptions struct{ healthy, probes, registered, registering *prometheus.Desc }

func (d *descriptions) ours() {
	d.own.healthy = d.add("app_healthy", "1 while the app behind an inbound service answers its probes well.", "service")
	d.own.probes = d.add("app_probes_total", "Answers of the app behind an inbound service to probes.", "result", "service")
	d.own.registered = d.add("registration_state", "1 for the state of each service of ours in each registry.",
		"registry", "service", "state")
	d.own.registering = d.add("registration_actions_total", "What was done at registries about services of ours, and how it ended.",
		"action", "registry", "result")
}

// app counts what is known of the app behind one inbound service.
type app struct {
	service string
	probes  [2]atomic.Uint64 // failed, ok
	well    atomic.Int32     // 0: not known, 1: no, 2: yes
}

// app returns the counters of an app, the same ones for the same name. Names come from configuration.
func (r *Recorder) app(service string) *app {
	p := &r.own
	p.mu.Lock()
	defer p.mu.Unlock()
	name := label(service)
	if a := p.apps[name]; a != nil {
		return a
	}
	if len(p.apps) >= maxListeners {
		name = overflow
		if a := p.apps[name]; a != nil {
			return a
		}
	}
	if p.apps == nil {
		p.apps = map[string]*app{}
	}
	a := &app{service: name}
	p.apps[name] = a
	return a
}

// AppProbed counts an answer of the app behind an inbound service.
func (r *Recorder) AppProbed(service string, ok bool) {
	i := 0
	if ok {
		i = 1
	}
	r.app(service).probes[i].Add(1)
}

// AppChanged tells that an app became well or ill; why says why it is ill.
func (r *Recorder) AppChanged(service string, well bool, why string) {
	state, to := int32(1), "ill"
	if well {
		state, to = 2, "well"
	}
	r.app(service).well.Store(state)
	r.events.Add(Event{Kind: EventApp, Service: service, To: to, Detail: why})
}

// AppForgotten tells that an app is not asked any more.
func (r *Recorder) AppForgotten(service string) {
	p := &r.own
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.apps, label(service))
}

func (s *scrape) ours(p *own) {
	p.mu.Lock()
	list := slices.Collect(maps.Values(p.apps))
	p.mu.Unlock()
	for _, a := range list {
		svc := pair("service", a.service)
		if well := a.well.Load(); well > 0 {
			s.gauge(s.d.own.healthy, float64(well-1), svc)
		}
		for i, result := range []string{"failed", "ok"} {
			s.count(s.d.own.probes, a.probes[i].Load(), pair("result", result), svc)
		}
	}
	s.registrations(p)
}
