package snapshot

import (
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

// Mirror copies a share of requests to another service, whose answers nobody waits for. It has connections and limits of its
// own, so that it takes nothing from those who call that service.
type Mirror struct {
	Ratio   float64
	To      *Target
	Timeout time.Duration
	Connect time.Duration
	Most    int64        // copies under way at one time
	Running atomic.Int64 // of them
}

// mirrorTimeout bounds one copy.
const mirrorTimeout = 5 * time.Second

// mirror compiles where a route's copies go. was is its namesake before.
func (c *compiler) mirror(r *Route, p *config.Policy) {
	m := &p.Mirror.Value
	cfg := c.cfg.Services[m.Service]
	if m.Service == "" || cfg == nil || r.Service.Inbound { // the loader has seen to the rest
		return
	}
	s := c.shadow(cfg)
	r.Service.refs = append(r.Service.refs, m.Service)
	r.Mirror = &Mirror{
		Ratio: m.Ratio, To: s.Rest.Targets[0], Most: int64(m.InFlight), Timeout: mirrorTimeout, Connect: s.Policy.ConnectTimeout.Value,
	}
	if t := s.Policy.Timeout.Value; t > 0 {
		r.Mirror.Timeout = min(t, mirrorTimeout)
	}
}

// shadow is a service once more, with endpoints that have connections and meters of their own.
func (c *compiler) shadow(cfg *config.Service) *Service {
	name, set := "mirror/"+cfg.Name, c.mesh.Endpoints[cfg.Name]
	if s := c.aside[name]; s != nil && s.set == set {
		return s
	}
	var was *Service
	if c.prev != nil {
		was = c.prev.Aside.byName[name]
	}
	p := c.cfg.ServicePolicy(cfg)
	p.Outlier.Off.Value, p.Breaker.Off.Value, p.Mirror.Value, p.Fallback.Value = true, true, config.Mirror{}, config.Fallback{}
	s := &Service{Name: name, Protocol: cfg.Protocol, Policy: p, set: set}
	if set != nil {
		s.Endpoints = endpoints(s, c.grouped(s, cfg, c.others(s, set.List)), was)
	}
	c.aside[name] = s
	c.fill(s, was)
	s.Rest = c.route(s, nil, &s.Policy, restOf(was))
	return s
}
