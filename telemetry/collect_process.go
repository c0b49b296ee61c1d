package telemetry

import (
	"maps"
	"slices"
	"time"
)

// process shows what belongs to no service.
func (s *scrape) process(r *Recorder, now time.Time) {
	d, p := s.d, &r.parts
	s.ours(&r.own)
	s.listeners(p)
	s.documents(p)
	s.inherited(p)
	s.sources(p, now)
	s.protections(&p.protections)
	s.count(d.keptFailures, p.keptFailures.Load())
	gate := 0
	if state := p.gate.Load(); state != nil {
		gate = (*state)()
	}
	s.gauge(d.gate, float64(gate))
	for i, result := range []string{"failed", "ok"} {
		s.count(d.reloads, p.reloads[i].Load(), pair("result", result))
		if at := p.reloadAt[i].Load(); at != 0 {
			s.gauge(d.reloadTime, float64(at)/1e9, pair("result", result))
		}
	}
	s.gauge(d.reloadSeconds, float64(p.reloadTook.Load())/1e9)
	s.gauge(d.revision, float64(p.revision.Load()))
	s.count(d.scripts, p.scripts.Load())
	for i, side := range []string{"downstream", "upstream"} {
		p.retired[i].each(func(why string, n uint64) { s.count(d.retired, n, pair("side", side), pair("why", why)) })
	}
	p.abuse.each(func(dir Direction, what string, n uint64) {
		s.count(d.abuse, n, pair("direction", dir.String()), pair("what", what))
	})
	if turns := p.moderated.Load(); turns != nil {
		s.gauge(d.moderated, float64((*turns)()))
	}
	if used := p.windows.Load(); used != nil {
		s.gauge(d.windows, float64((*used)()))
	}
	if list := p.rules.Load(); list != nil {
		for _, v := range *list {
			s.gauge(d.rules, float64(v.Rules), pair("rank", v.Rank), pair("service", label(v.Service)))
		}
	}
	p.switches.each(func(name string, state int) { s.gauge(d.switches, float64(state), pair("switch", name)) })
	p.limits.each(func(limit string, n uint64) { s.count(d.limits, n, pair("limit", limit), pair("service", "")) })

	s.count(d.logLines, r.log.lines.Load())
	s.count(d.logDropped, r.log.dropped.Load())
	s.count(d.logErrors, r.log.errors.Load())
	r.events.kinds.each(func(kind string, n uint64) { s.count(d.events, n, pair("kind", kind)) })
	s.count(d.evLost, r.events.lostCount())
	s.gauge(d.series, float64(r.registry.size()))
	s.count(d.seriesOverflow, r.registry.dropped.Load())
}

// documents shows how the documents of the config centre are doing, where there is one.
func (s *scrape) documents(p *parts) {
	for i, state := range []string{"in_force", "kept", "refused", "restored"} {
		if n := p.documents[i].Load(); n > 0 {
			s.gauge(s.d.documents, float64(n), pair("state", state))
		}
	}
}

func (s *scrape) listeners(p *parts) {
	p.mu.Lock()
	list := slices.Collect(maps.Values(p.listeners))
	p.mu.Unlock()
	for _, l := range list {
		dir, name := pair("direction", l.dir.String()), pair("listener", l.name)
		s.gauge(s.d.downOpen, float64(max(l.open.Load(), 0)), dir, name)
		s.count(s.d.downTotal, l.total.Load(), dir, name)
		l.refused.each(func(limit string, n uint64) { s.count(s.d.downRefused, n, dir, pair("limit", limit), name) })
	}
}

func (s *scrape) sources(p *parts, now time.Time) {
	p.mu.Lock()
	list := slices.Collect(maps.Values(p.sources))
	p.mu.Unlock()
	for _, v := range list {
		name := pair("source", v.name)
		s.count(s.d.updates, v.updates.Load(), name)
		v.failures.each(func(reason string, n uint64) { s.count(s.d.updateFailures, n, pair("reason", reason), name) })
		heard := p.started // never heard: as old as we are
		if at := v.confirmed.Load(); at != 0 {
			heard = time.Unix(0, at)
		}
		s.gauge(s.d.age, max(now.Sub(heard).Seconds(), 0), name)
		failing := 0.0
		if v.failing.Load() {
			failing = 1
		}
		s.gauge(s.d.failing, failing, name)
	}
}
