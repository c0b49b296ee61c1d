package simulate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/guard"
)

// Statement is what the registry says about a service, be it true or not. The zero Statement is the truth: all nodes are
// there and well.
type Statement struct {
	Class    string `yaml:"class"`    // of which nodes it does not say the truth; empty: of any
	Nodes    int    `yaml:"nodes"`    // how many of those, from the first on; 0: Lose or Critical says which share
	Lose     Share  `yaml:"lose"`     // they are missing
	Critical Share  `yaml:"critical"` // they are listed, and their health check fails
}

// list is the list that the registry gives, by address.
func (s *Statement) list(all []*node) []*config.Endpoint {
	var gone, sick []*node
	if s != nil {
		switch {
		case s.Critical > 0:
			sick = chosen(all, s.Class, s.Nodes, float64(s.Critical))
		case s.Lose > 0 || s.Nodes > 0:
			gone = chosen(all, s.Class, s.Nodes, float64(s.Lose))
		}
	}
	var list []*config.Endpoint
	for _, n := range all {
		switch {
		case slices.Contains(gone, n):
		case slices.Contains(sick, n):
			list = append(list, n.sick)
		default:
			list = append(list, n.spec)
		}
	}
	slices.SortFunc(list, func(a, b *config.Endpoint) int { return cmp.Compare(a.Address, b.Address) })
	return list
}

// listed is what a sidecar makes of a registry's list of one service, as discovery does.
type listed struct {
	guard guard.Guard
	use   []*config.Endpoint
	mode  guard.Mode
	next  time.Time // when to decide again
}

// answer takes in what the registry says.
func (c *sidecar) answer(service string, list []*config.Endpoint) {
	c.lists[service].guard.Answer(c.sim.now, list)
	c.decide(service)
}

// decide asks the guard how far the registry is believed, and makes the direct checks that it wants.
func (c *sidecar) decide(service string) {
	l, sim := c.lists[service], c.sim
	d := l.guard.Decide(sim.now, rulesOf(c.config, service))
	if d.Mode != l.mode {
		sim.record.event(c, "protection", service, "", l.mode.String()+" → "+d.Mode.String())
		l.mode = d.Mode
	}
	l.use = d.Use
	for _, e := range d.Due {
		n := sim.byName[e.Address]
		sim.after(n.class.Network, func() {
			problem := ""
			if n.refuses() || n.silent() {
				problem = "connect failed"
			}
			l.guard.Checked(sim.now, e.Address, problem)
			c.redecide(service)
		})
	}
	if !d.Next.IsZero() && d.Next != l.next && d.Next.Sub(sim.start) < sim.scenario.Duration {
		l.next = d.Next
		sim.on(d.Next.Sub(sim.start), func() {
			if l.next == d.Next {
				l.next = time.Time{}
				c.redecide(service)
			}
		})
	}
}

// redecide decides again, and puts the outcome in force if it is another.
func (c *sidecar) redecide(service string) {
	was := c.lists[service].use
	c.decide(service)
	if slices.Equal(was, c.lists[service].use) {
		return
	}
	if err := c.apply(c.config); err != nil && c.sim.err == nil {
		c.sim.err = err
	}
}

// rulesOf are the bounds of a service's list, as discovery derives them.
func rulesOf(cfg *config.Config, service string) guard.Rules {
	s := cfg.Services[service]
	if s == nil {
		return guard.Rules{}
	}
	v := cfg.ServiceProtection(s)
	r := guard.Rules{
		MinKnown: v.HalfDead.MinKnown.Value, Hold: v.HalfDead.Hold.Value, Memory: v.HalfDead.Memory.Value,
		Consumer: strings.EqualFold(s.Liveness, "consumer"),
	}
	if !v.RemovalProtection.Off.Value && v.RemovalProtection.MaxRatio.Set {
		const least = 1e-9
		r.MaxRemoval = max(least, v.RemovalProtection.MaxRatio.Value)
	}
	if !v.HalfDead.Off.Value {
		r.Below = v.HalfDead.Below.Value
	}
	return r
}
