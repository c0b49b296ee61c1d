package config

import (
	"strconv"
	"strings"
)

// isolationDoubts finds bounds, orders and links of a service that can have no effect.
func (c *Config) isolationDoubts(path string, s *Service, base *Policy) Errors {
	all := unheeded(path+".policy.limit", &s.Policy.Limit, &base.Limit)
	if n := base.Limit.Connections; s.Preconnect > n.Value && n.Value > 0 {
		all = append(all, s.From.errorAt(path+".preconnect", strconv.Itoa(s.Preconnect)+" connections are more than limit.connections allows ("+strconv.Itoa(n.Value)+"): no more are opened"))
	}
	for i, l := range s.Links {
		for _, name := range l.Services {
			if c.Center == nil && c.Services[name] == nil && (s.Protocol == "http" || !strings.Contains(name, ".")) {
				all = append(all, l.From.errorAt(path+".links["+strconv.Itoa(i)+"].match.service", "no call fits: there is no service "+strconv.Quote(name)+" by whose name this one could be called, and no gRPC service is called so here"))
			}
		}
	}
	return all
}

// unheeded tells of parts of a service's own limit that something else takes the place of. Beside a bulkhead waiting still bounds
// who waits for a connection.
func unheeded(path string, own, base *Limit) Errors {
	var all Errors
	tell := func(name string, set bool, from Origin, why string) {
		if set {
			all = append(all, from.errorAt(path+"."+name, "has no effect: "+why))
		}
	}
	if b := base.Bulkhead.Value; b != "" && b != OwnBulkhead {
		tell("in_flight", own.InFlight.Set, own.InFlight.From, "the bound is that of bulkheads."+b+"; bulkhead: own gives the service its own")
		tell("priorities", own.Priorities.Set, own.Priorities.From, "the order is that of bulkheads."+b+"; bulkhead: own gives the service its own")
	} else if base.Waiting.Set && base.Waiting.Value == 0 {
		tell("priorities", own.Priorities.Set, own.Priorities.From, "nobody waits, since limit.waiting is 0")
	}
	return all
}
