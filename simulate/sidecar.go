package simulate

import (
	"slices"
	"time"

	"github.com/sidecar-mesh/sidecar/balance"
	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// sidecar is one proxy: its snapshot, and what it was told.
type sidecar struct {
	sim    *simulation
	id     int
	seed   uint64
	config *config.Config
	lists  map[string]*listed // what it makes of the registry's lists, by service
	sets   map[string]*config.EndpointSet
	snap   *snapshot.Snapshot
	probes bool // a look at the probes is planned
	aside  dice // of what has no bearing on which endpoint a call goes to: switches and mirrors
}

// apply puts a configuration in force, with the endpoints that the registry says there are.
func (c *sidecar) apply(cfg *config.Config) error {
	c.config = cfg
	mesh := &config.Mesh{Config: cfg, Endpoints: map[string]*config.EndpointSet{}}
	for _, name := range c.sim.scenario.services() {
		use := c.lists[name].use
		if was := c.sets[name]; was != nil && slices.Equal(was.List, use) {
			mesh.Endpoints[name] = was
			continue
		}
		mesh.Endpoints[name] = &config.EndpointSet{List: use, Sources: []config.SourceState{{Name: "registry", Answered: true}}}
	}
	next, err := snapshot.Compile(mesh, c.snap, snapshot.Options{Seed: c.seed})
	if err != nil {
		return err
	}
	c.sets = mesh.Endpoints
	was := c.snap
	c.snap = next
	c.settle(was)
	return nil
}

// settle tells outlier detection how many endpoints there are, as the proxy does when a snapshot is in force.
func (c *sidecar) settle(was *snapshot.Snapshot) {
	c.settleSwitches(was)
	for _, s := range c.snap.Outbound.List {
		var before *snapshot.Service
		if was != nil {
			before, _ = was.Outbound.Get(s.Name)
		}
		if before == s {
			continue
		}
		for _, e := range s.Endpoints {
			e.Shut(c.sim.now)
		}
		c.resize(s)
		for w := s.Rest.Limiter.Grant(c.sim.now); w != nil; w = s.Rest.Limiter.Grant(c.sim.now) {
			w.Wake()
		}
		if before == nil {
			continue
		}
		here := map[string]*snapshot.Endpoint{}
		for _, e := range s.Endpoints {
			here[e.Address] = e
			if joined := len(before.Endpoints) > 0 && e.Meter.Since.Load() == 0 && !had(before, e.Address); joined {
				e.Meter.Since.Store(c.sim.now.UnixNano())
			}
		}
		for _, e := range before.Endpoints {
			if here[e.Address] == nil {
				before.Outlier.Forget(c.sim.now, e.Health)
			}
		}
	}
}

// resize tells outlier detection that another number of endpoints can be used.
func (c *sidecar) resize(s *snapshot.Service) {
	for _, h := range s.Outlier.SetSize(c.sim.now, len(s.Endpoints), s.Available()) {
		c.readmit(s, h)
	}
}

// endpointBreaker takes down that the breaker of an endpoint changed.
func (c *sidecar) endpointBreaker(s *snapshot.Service, e *snapshot.Endpoint, change resilience.BreakerChange) {
	if change == resilience.Unchanged {
		return
	}
	c.sim.record.event(c, "breaker "+change.String(), s.Name, e.Address, change.Why())
	if change != resilience.HalfOpened {
		c.resize(s)
	}
}

func had(s *snapshot.Service, address string) bool {
	for _, e := range s.Endpoints {
		if e.Address == address {
			return true
		}
	}
	return false
}

// hear takes in a change.
func (c *sidecar) hear(ch *Change) error {
	if next := ch.configs[c.sim.variant.Name]; next != nil {
		c.config = next
	}
	for _, name := range c.sim.scenario.services() {
		if s, ok := ch.Registry[name]; ok {
			c.answer(name, s.list(c.sim.nodesOf(name)))
		}
	}
	if err := c.apply(c.config); err != nil {
		return err
	}
	c.write(ch)
	return nil
}

// ejected keeps calls away from an endpoint, and plans its probes.
func (c *sidecar) ejected(s *snapshot.Service, e *snapshot.Endpoint, v resilience.EjectVerdict) {
	if v.Act != resilience.Eject {
		return
	}
	e.Eject()
	c.sim.record.event(c, "ejected", s.Name, e.Address, v.Reason.String())
	c.probeAt(v.Until)
}

func (c *sidecar) probeAt(at time.Time) {
	if !c.probes {
		c.probes = true
		c.sim.on(at.Sub(c.sim.start), c.probe)
	}
}

// probe tries the ejected endpoints that are due.
func (c *sidecar) probe() {
	c.probes = false
	next := time.Time{}
	for _, s := range c.snap.Outbound.List {
		due, at := s.Outlier.ProbesDue(c.sim.now, nil)
		for _, h := range due {
			n := c.sim.byName[h.Address]
			well := n != nil && !n.refuses() && !n.silent() && (s.Probe.HTTP == "" || !n.hangs() && n.status() < 400)
			if s.Outlier.ProbeResult(c.sim.now, h, well).Act == resilience.Readmit {
				c.readmit(s, h)
			}
		}
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if !next.IsZero() && c.sim.at() < c.sim.scenario.Duration {
		c.probeAt(next)
	}
}

func (c *sidecar) readmit(s *snapshot.Service, h *resilience.EndpointHealth) {
	for _, e := range s.Endpoints {
		if e.Health == h {
			e.Readmit(c.sim.now)
			c.sim.record.event(c, "readmitted", s.Name, e.Address, "")
		}
	}
}

// hint is what a balancer is told of a call.
func (c *sidecar) hint(h *balance.Hint, tried []int) {
	h.Now, h.Rand, h.Tried = c.sim.now, c.sim.dice.next(), tried
}

// hintAside is what a balancer is told of a copy.
func (c *sidecar) hintAside() balance.Hint {
	return balance.Hint{Now: c.sim.now, Rand: c.aside.next()}
}
