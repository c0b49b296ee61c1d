package snapshot

import (
	"maps"
	"slices"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/route"
)

// Link is a class of calls that have connections of their own to each endpoint (S-185).
type Link struct {
	Name        string
	SizeOver    int64
	Connections int // bound at each endpoint
	routes      []string
	services    []string
	priorities  []string
}

// Call is what decides to which class a call belongs.
type Call struct {
	Service string // by whose name it is made; where its routes lead to another, not that one
	Route   string
	GRPC    string // path of a gRPC call, /pkg.Service/Method; empty: it is none
	Length  int64  // of the body; negative: not known
	Fields  route.Fields
}

// linksOf compiles the links of a service.
func linksOf(cfg *config.Service, limit int) []Link {
	var list []Link
	for _, l := range cfg.Links {
		list = append(list, Link{Name: l.Name, SizeOver: l.SizeOver, Connections: l.Connections.Or(limit), routes: l.Routes, services: l.Services, priorities: l.Priorities})
	}
	return list
}

// sameLinks reports whether connections of two versions of a service belong to the same classes.
func sameLinks(a, b []Link) bool {
	return slices.EqualFunc(a, b, func(x, y Link) bool { return x.Name == y.Name })
}

// Link returns the class of a call: 0 for none, else 1 + the index in Links. The first that fits counts.
func (s *Service) Link(c *Call) int {
	for i := range s.Links {
		l := &s.Links[i]
		if l.SizeOver > 0 && c.Length > l.SizeOver || c.Service == s.Name && slices.Contains(l.routes, c.Route) || l.serves(c) || l.prioritized(c.Fields) {
			return i + 1
		}
	}
	return 0
}

// serves reports whether the class is for calls of that service.
func (l *Link) serves(c *Call) bool {
	for _, name := range l.services {
		if name == c.Service {
			return true
		}
		if n := len(name) + 1; len(c.GRPC) > n && c.GRPC[n] == '/' && c.GRPC[1:n] == name {
			return true
		}
	}
	return false
}

// prioritized reports whether the fields say one of the priorities of the class.
func (l *Link) prioritized(fields route.Fields) bool {
	if len(l.priorities) == 0 {
		return false
	}
	priority, ok := fields.Get(config.PriorityHeader)
	return ok && slices.Contains(l.priorities, priority)
}

// Rank is the rank of a call with fields in the queue of the limiter.
func (r *Route) Rank(fields route.Fields) uint8 {
	if len(r.priorities) == 0 {
		return 0
	}
	word, _ := fields.Get(config.PriorityHeader)
	rest := len(r.priorities)
	for i, p := range r.priorities {
		switch p {
		case word:
			return uint8(i)
		case config.OtherPriority:
			rest = i
		}
	}
	return uint8(rest)
}

// prioritiesOf is what the queue of a limit goes by that a policy asks for: that of its bulkhead, or its own.
func (c *compiler) prioritiesOf(p *config.Policy) []string {
	if b := c.cfg.Bulkheads[p.Limit.Bulkhead.Value]; b != nil {
		return b.Priorities
	}
	return p.Limit.Priorities.Value
}

// sharedLimits makes the bulkheads; each goes on with what runs and waits in its namesake.
func (c *compiler) sharedLimits() map[string]*resilience.Limiter {
	if c.prev != nil && c.prev.Mesh.Config.SameBulkheads(c.cfg) {
		return c.prev.Bulkheads
	}
	all := map[string]*resilience.Limiter{}
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Bulkheads)) {
		b := c.cfg.Bulkheads[name]
		all[name] = resilience.NewLimiter(resilience.LimiterConfig{
			Max: b.InFlight, Waiting: b.Waiting, Wait: b.Wait, Ranked: len(b.Priorities) > 0, Name: resilience.LimitBulkhead,
		})
		if c.prev != nil {
			all[name] = all[name].Adopt(c.prev.Bulkheads[name])
		}
	}
	return all
}
