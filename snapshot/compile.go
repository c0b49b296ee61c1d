package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/route"
	"github.com/sidecar-mesh/sidecar/route/rules"
)

// Options are what compiling needs beyond the mesh.
type Options struct {
	// Seed is random and the same for the life of the process: where round robin starts.
	Seed uint64
	// Scripts compiles script rules; nil: there are none.
	Scripts route.ScriptEngine
}

// Compile turns a mesh into a snapshot. What did not change since prev (which may be nil) is shared with it, what
// changed goes on with the meters of its namesake. All mistakes are reported at once, each with the position of what it
// concerns; the caller then keeps prev.
func Compile(mesh *config.Mesh, prev *Snapshot, o Options) (*Snapshot, error) {
	c := &compiler{mesh: mesh, cfg: mesh.Config, prev: prev, seed: o.Seed, scripts: o.Scripts, targetsMade: map[targetKey]*Target{}}
	next := &Snapshot{Mesh: mesh}
	c.ruleSets(next)
	c.greyReleases(next)
	c.bulkheads = c.sharedLimits()
	next.Bulkheads = c.bulkheads
	c.degradation(next)
	next.Outbound = c.outbound()
	next.Inbound = c.inbound()
	next.Aside = c.asides()
	if len(c.errs) > 0 {
		return nil, errors.Join(c.errs...)
	}
	return next, nil
}

type compiler struct {
	mesh *config.Mesh
	cfg  *config.Config
	prev *Snapshot
	seed uint64
	made map[string]*Service // outbound services so far
	// targetsMade holds the targets so far.
	targetsMade map[targetKey]*Target
	bulkheads   map[string]*resilience.Limiter
	scripts     route.ScriptEngine
	sets        map[string]*rules.Set // rules by service
	programs    programs
	greys       []*Grey
	aside       map[string]*Service  // that no host leads to, so far
	switches    map[string][]*Switch // by the service that they degrade
	errs        []error
}

func (c *compiler) fail(at config.Origin, err error) {
	if s := at.String(); s != "" {
		err = fmt.Errorf("%s: %w", s, err)
	}
	c.errs = append(c.errs, err)
}

// outbound compiles the services that our app calls.
func (c *compiler) outbound() *Directory {
	names := slices.Sorted(maps.Keys(c.cfg.Services))
	stale := c.stale(names)
	c.made = make(map[string]*Service, len(names))
	for _, name := range names {
		if stale[name] {
			c.made[name] = c.service(c.cfg.Services[name])
		} else {
			c.made[name] = c.prev.Outbound.byName[name]
		}
	}
	hosts := map[string]*Service{}
	d := &Directory{byName: c.made, List: make([]*Service, 0, len(names))}
	for _, name := range names {
		s := c.made[name]
		d.List = append(d.List, s)
		if stale[name] {
			c.routes(s, s.Config.Routes)
		}
		for _, h := range s.Hosts() {
			hosts[h] = s
		}
	}
	if c.prev != nil && c.prev.Mesh.Config == c.cfg { // then no host can have changed
		d.hosts, d.hosted = c.prev.Outbound.hosts, make([]*Service, len(c.prev.Outbound.hosted))
		for i, s := range c.prev.Outbound.hosted {
			d.hosted[i] = c.made[s.Name]
		}
		return d
	}
	d.setHosts(c, hosts)
	return d
}

// stale says which services must be compiled: those that changed themselves, and those whose routes lead to such.
func (c *compiler) stale(names []string) map[string]bool {
	stale := make(map[string]bool)
	for _, name := range names {
		cfg := c.cfg.Services[name]
		was := c.was(name)
		if was == nil || c.prev.Mesh.Config != c.cfg || was.Config != cfg || was.set != c.mesh.Endpoints[name] {
			stale[name] = true
		}
	}
	for _, name := range names {
		if !stale[name] && slices.ContainsFunc(c.was(name).refs, func(ref string) bool { return stale[ref] }) {
			stale[name] = true
		}
	}
	return stale
}

func (c *compiler) was(name string) *Service {
	if c.prev == nil {
		return nil
	}
	return c.prev.Outbound.byName[name]
}

// inbound compiles the services of our own app.
func (c *compiler) inbound() *Directory {
	if c.prev != nil && c.prev.Mesh.Config == c.cfg {
		return c.prev.Inbound
	}
	d := &Directory{byName: map[string]*Service{}}
	hosts := map[string]*Service{}
	for _, in := range c.cfg.Inbound {
		s := c.inboundService(in)
		d.List = append(d.List, s)
		d.byName[s.Name] = s
		hosts[s.Name] = s
	}
	if len(d.List) > 0 {
		// Whatever name the caller knows us by: what fits no other service of ours is meant for the first.
		if _, taken := hosts["*"]; !taken {
			hosts["*"] = d.List[0]
		}
	}
	d.setHosts(c, hosts)
	return d
}

func (d *Directory) setHosts(c *compiler, hosts map[string]*Service) {
	ids := make(map[string]int, len(hosts))
	for _, pattern := range slices.Sorted(maps.Keys(hosts)) {
		ids[pattern] = len(d.hosted)
		d.hosted = append(d.hosted, hosts[pattern])
	}
	table, err := route.NewHosts(ids)
	if err != nil {
		c.errs = append(c.errs, err)
		return
	}
	d.hosts = table
}

// Find returns the service that takes an authority.
func (d *Directory) Find(authority string) (*Service, bool) {
	id, ok := d.hosts.Lookup(authority)
	if !ok {
		return nil, false
	}
	return d.hosted[id], true
}

// Get returns a service by its name.
func (d *Directory) Get(name string) (*Service, bool) {
	s, ok := d.byName[name]
	return s, ok
}

// Hosts returns the host patterns that a service takes.
func (s *Service) Hosts() []string {
	if s.Config != nil && len(s.Config.Hosts) > 0 {
		return s.Config.Hosts
	}
	return []string{s.Name}
}

// Match returns the route of a request, and the text of the match that fitted ("" for Rest).
func (s *Service) Match(f *route.Facts) *Route {
	if s.rules != nil {
		if i, ok := s.rules.Match(f); ok {
			return s.Routes[i]
		}
	}
	return s.Rest
}
