package config

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// claimKind says what a name refers to, or takes for itself.
type claimKind uint8

const (
	claimPolicy   claimKind = iota // refers to a named policy
	claimService                   // refers to a service
	claimRegistry                  // refers to a registry
	claimConsul                    // refers to a registry that is a Consul
	claimHost                      // takes a host
	claimListen                    // takes an address to listen on
	claimInbound                   // takes the name of an inbound service
	claimBulkhead                  // refers to a bulkhead
)

// claim is a name whose meaning depends on the rest of the configuration, with its place. Claims of a service stay with
// it, so that they are looked at again when sources are merged.
type claim struct {
	kind       claimKind
	name, path string
	from       Origin
}

// claim notes that the value at n refers to, or takes, name.
func (d *decoder) claim(kind claimKind, n *yaml.Node, name string) {
	d.claims = append(d.claims, claim{kind: kind, name: name, path: d.pathText(), from: d.origin(n)})
}

// claimed notes the text read as a claim.
func claimed(kind claimKind, v value[string]) value[string] {
	return then(v, func(d *decoder, n *yaml.Node, out *string) bool {
		d.claim(kind, n, *out)
		return true
	})
}

// checker holds what was taken so far.
type checker struct {
	config  *Config
	errors  Errors
	hosts   map[string]claim
	inbound map[string]claim
	ports   map[string][]claim // by port
}

// check looks at what concerns more than one part: references, hosts and ports.
func (c *Config) check() Errors {
	k := checker{config: c, hosts: map[string]claim{}, inbound: map[string]claim{}, ports: map[string][]claim{}}
	for _, l := range c.listeners() {
		k.listen(l)
	}
	for _, cl := range c.claims {
		k.one(cl)
	}
	for _, s := range c.ordered() {
		for _, cl := range s.claims {
			k.one(cl)
		}
	}
	k.loops()
	k.switches()
	k.policies()
	k.breakers()
	k.errors = append(k.errors, append(c.groupCircles(), c.rulesTwice()...)...)
	k.registrations()
	return k.errors
}

// ordered gives the services by rank, then by the place they are written at: of two that want the same, the later one
// is told.
func (c *Config) ordered() []*Service {
	return slices.SortedFunc(maps.Values(c.Services), func(a, b *Service) int {
		x, y := a.From.source(), b.From.source()
		return cmp.Or(
			cmp.Compare(y.Rank, x.Rank), strings.Compare(x.Name, y.Name),
			cmp.Compare(a.From.Line, b.From.Line), cmp.Compare(a.From.Col, b.From.Col), strings.Compare(a.Name, b.Name),
		)
	})
}

func (k *checker) fail(c claim, msg string) {
	k.errors = append(k.errors, c.from.errorAt(c.path, msg))
}

func (k *checker) one(c claim) {
	switch c.kind {
	case claimPolicy:
		if k.config.Policies[c.name] == nil {
			k.fail(c, "there is no policy "+strconv.Quote(c.name)+" under policies"+hint(c.name, k.config.Policies))
		}
	case claimService:
		if k.config.Services[c.name] == nil {
			k.fail(c, "there is no service "+strconv.Quote(c.name)+hint(c.name, k.config.Services))
		}
	case claimRegistry:
		if k.config.Registries[c.name] == nil {
			k.fail(c, "there is no registry "+strconv.Quote(c.name)+" under registries"+hint(c.name, k.config.Registries))
		}
	case claimBulkhead:
		if c.name != OwnBulkhead && k.config.Bulkheads[c.name] == nil {
			k.fail(c, "there is no bulkhead "+strconv.Quote(c.name)+" under bulkheads"+hint(c.name, k.config.Bulkheads))
		}
	case claimConsul:
		switch r := k.config.Registries[c.name]; {
		case r == nil:
			k.fail(c, "there is no registry "+strconv.Quote(c.name)+" under registries"+hint(c.name, k.config.Registries))
		case r.Consul == nil:
			k.fail(c, "the registry "+strconv.Quote(c.name)+" is no Consul")
		}
	case claimHost:
		k.take(k.hosts, c, "the host ")
	case claimInbound:
		k.take(k.inbound, c, "the inbound service ")
	case claimListen:
		k.listen(c)
	}
}

func (k *checker) take(taken map[string]claim, c claim, what string) {
	if first, twice := taken[c.name]; twice {
		k.fail(c, what+strconv.Quote(c.name)+" is taken by "+first.path+" at "+first.from.String())
		return
	}
	taken[c.name] = c
}

func hint[T any](name string, known map[string]T) string {
	if near := nearest(name, slices.Sorted(maps.Keys(known))); near != "" {
		return ", did you mean " + near + "?"
	}
	return ""
}

// listeners gives the process's own addresses as claims.
func (c *Config) listeners() []claim {
	var all []claim
	for _, l := range []struct{ name, address string }{
		{"outbound", c.Listen.Outbound},
		{"inbound", c.Listen.Inbound},
		{"admin", c.Listen.Admin},
		{"health", c.Listen.Health},
		{"metrics", c.Listen.Metrics},
	} {
		if l.address != "" {
			all = append(all, claim{kind: claimListen, name: l.address, path: "listen." + l.name, from: c.listenFrom[l.name]})
		}
	}
	return all
}

// listen takes a port. Port 0 is chosen by the system and never clashes; all addresses of a port hold each of them.
func (k *checker) listen(c claim) {
	i := strings.LastIndexByte(c.name, ':')
	if i < 0 || c.name[i+1:] == "0" {
		return
	}
	port := strings.TrimLeft(c.name[i+1:], "0")
	for _, other := range k.ports[port] {
		if overlap(c.name[:i], other.name[:strings.LastIndexByte(other.name, ':')]) {
			at, first := c, other
			if at.from.Source == nil {
				at, first = other, c
			}
			k.fail(at, "the address "+at.name+" is taken by "+first.path+" ("+first.name+"), "+place(first.from))
			return
		}
	}
	k.ports[port] = append(k.ports[port], c)
}

func place(o Origin) string {
	if o.Source == nil {
		return "built in"
	}
	return "at " + o.String()
}

// overlap tells whether two hosts cannot share a port.
func overlap(a, b string) bool {
	x, y := listenIP(a), listenIP(b)
	return x == y || x.IsUnspecified() && (x.Is6() || y.Is4()) || y.IsUnspecified() && (y.Is6() || x.Is4())
}

// listenIP takes a host of a listen address to an IP address; none means all.
func listenIP(host string) netip.Addr {
	switch host {
	case "":
		return netip.IPv6Unspecified()
	case "localhost":
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap()
}

// policies looks for circles of named policies; that their names exist was claimed by none.
func (k *checker) policies() {
	c := k.config
	for _, name := range slices.Sorted(maps.Keys(c.Policies)) {
		p := c.Policies[name]
		k.use("policies."+name+".use", p.Use)
		seen := map[string]bool{name: true}
		for at := p; at != nil && at.Use.Set; at = c.Policies[at.Use.Value] {
			if at.Use.Value == name {
				k.fail(claim{path: "policies." + name + ".use", from: p.Use.From}, "the policy uses itself, in a circle")
			}
			if seen[at.Use.Value] {
				break
			}
			seen[at.Use.Value] = true
		}
	}
	k.use("defaults.use", c.Defaults.Use)
}

// switches looks for the services and routes that switches name.
func (k *checker) switches() {
	for _, name := range slices.Sorted(maps.Keys(k.config.Switches)) {
		w := k.config.Switches[name]
		for _, cl := range w.claims {
			k.one(cl)
		}
		s := k.config.Services[w.Service]
		if s != nil && s.Protocol == "tcp" && (w.Mode == ModeFallback || w.Answer.Kind == KindLocal) {
			k.fail(claim{path: "switches." + name, from: w.From}, "protocol tcp has no answers that another could stand in for: mode shield with empty, answer or error is possible")
		}
		if s == nil || w.Route == "" {
			continue
		}
		if !slices.ContainsFunc(s.Routes, func(r *Route) bool { return r.Name == w.Route }) {
			k.fail(claim{path: "switches." + name + ".route", from: w.From}, "the service "+strconv.Quote(w.Service)+" has no route "+strconv.Quote(w.Route))
		}
	}
}

// breakers looks for routes that want breakers for endpoints where the service has none: its routes share them.
func (k *checker) breakers() {
	for _, s := range k.config.ordered() {
		for i, r := range s.Routes {
			if !r.Policy.Breaker.Per.Set && !r.Policy.Use.Set {
				continue
			}
			per := k.config.RoutePolicy(s, r).Breaker.Per
			if per.Value != "endpoint" || k.config.ServicePolicy(s).Breaker.Per.Value == "endpoint" {
				continue
			}
			path := "services." + s.Name + ".routes[" + strconv.Itoa(i) + "].policy.breaker.per"
			k.fail(claim{path: path, from: per.From}, "endpoint is for the policy of the service: its routes share its endpoints")
		}
	}
}

func (k *checker) use(path string, use Opt[string]) {
	if use.Set {
		k.one(claim{kind: claimPolicy, name: use.Value, path: path, from: use.From})
	}
}
