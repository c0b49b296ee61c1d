package telemetry

import (
	"slices"
	"strings"
	"sync"
)

// Protection is what keeps a service's list of one source from being used as it is.
type Protection struct {
	Source, Service string
	Mode            string         // such as half_dead; empty: none
	Endpoints       map[string]int // by reason, such as remembered, those that are used or not for another than being listed
}

// protections are the gauges of lists that were protected once.
type protections struct {
	mu   sync.Mutex
	list map[protectionKey]*Protection
}

type protectionKey struct{ source, service string }

// Protected sets what a list is protected by. The first protection of a list makes its series; they go with the service.
func (r *Recorder) Protected(v Protection) {
	p := &r.parts.protections
	p.mu.Lock()
	defer p.mu.Unlock()
	v.Source, v.Service = label(v.Source), label(v.Service)
	k := protectionKey{v.Source, v.Service}
	was := p.list[k]
	switch {
	case was == nil && v.Mode == "" && len(v.Endpoints) == 0:
		return
	case was == nil && len(p.list) >= maxListeners:
		return // the event was told all the same
	case p.list == nil:
		p.list = make(map[protectionKey]*Protection)
	}
	if was != nil {
		for why := range was.Endpoints {
			if _, ok := v.Endpoints[why]; !ok {
				if v.Endpoints == nil {
					v.Endpoints = make(map[string]int)
				}
				v.Endpoints[why] = 0
			}
		}
	}
	p.list[k] = &v
}

// SnapshotFailed counts a failure to keep endpoints on disk, or to use what was kept. Callers tell the event.
func (r *Recorder) SnapshotFailed() { r.parts.keptFailures.Add(1) }

// Gate says how to ask what the update gate is like when somebody looks: 0 open, 1 closed and our turn, 2 closed and waiting.
func (r *Recorder) Gate(state func() int) { r.parts.gate.Store(&state) }

// retain forgets the services for which live returns false.
func (p *protections) retain(live func(service string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.list {
		if !live(k.service) {
			delete(p.list, k)
		}
	}
}

// snapshot returns all, in a stable order. What they point to is not written to.
func (p *protections) snapshot() []*Protection {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*Protection, 0, len(p.list))
	for _, v := range p.list {
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b *Protection) int { return strings.Compare(a.Source+a.Service, b.Source+b.Service) })
	return all
}

// protectionModes are the modes that are shown.
var protectionModes = [...]string{"removal_protection", "half_dead", "restored"}

func (s *scrape) protections(p *protections) {
	for _, v := range p.snapshot() {
		source, service := pair("source", v.Source), pair("service", v.Service)
		for _, mode := range protectionModes {
			on := 0.0
			if v.Mode == mode {
				on = 1
			}
			s.gauge(s.d.protected, on, pair("protection", mode), service, source)
		}
		for why, n := range v.Endpoints {
			s.gauge(s.d.doubted, float64(n), service, source, pair("why", why))
		}
	}
}
