package discovery

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

// plan is one configuration with the endpoints of its services: the current one, or the candidate of a reload, which is
// thrown away when it is refused.
type plan struct {
	cfg      *config.Config
	revision string
	resolver string // key of the feed that resolves names
	members  map[string]*member
	users    map[ask]map[*member]struct{} // who needs an answer
	sets     map[string]*config.EndpointSet
	holding  map[*member]struct{}
	waiting  int  // members that wait for an answer
	moved    bool // what they wait for changed
}

// ask is one name that one feed is asked for.
type ask struct{ feed, name string }

// member is a service of a plan.
type member struct {
	service *config.Service
	fixed   []*config.Endpoint // its own endpoints, with the pointers of before where they did not change
	asks    []ask              // of its registries, in order
	names   []ask              // of the names in its addresses now
	derived map[derivation]*config.Endpoint
	set     *config.EndpointSet
	pending []Wait
	waiting bool // counted in plan.waiting

	// held is the list of the moment when something new was needed that has not answered; it is served along with what is
	// known until that answers or holdEnd has come, so that changing where endpoints come from drops none meanwhile.
	held    []*config.Endpoint
	holdEnd time.Time
}

// derivation is an endpoint with a name, at one of the addresses behind it.
type derivation struct {
	entry   *config.Endpoint
	address string
	weight  int
}

// newPlan lays out cfg, taking over from prev (which may be nil) what did not change.
func newPlan(cfg *config.Config, prev *plan) (*plan, error) {
	p := &plan{
		members: make(map[string]*member, len(cfg.Services)),
		users:   make(map[ask]map[*member]struct{}),
		holding: make(map[*member]struct{}),
		moved:   true,
		sets:    make(map[string]*config.EndpointSet, len(cfg.Services)),
	}
	if prev != nil {
		cfg = share(cfg, prev.cfg)
	}
	p.cfg, p.revision, p.resolver = cfg, revision(cfg), resolverOf(cfg)
	for name, s := range cfg.Services {
		mb := &member{service: s, fixed: s.Endpoints}
		for _, r := range s.Registry {
			reg, ok := cfg.Registries[r]
			if !ok {
				return nil, fmt.Errorf("services.%s.from: no registry is called %q", name, r)
			}
			mb.asks = append(mb.asks, ask{feed: r, name: askedName(s, reg)})
		}
		if prev != nil && prev.members[name] != nil {
			old := prev.members[name]
			mb.derived, mb.set, mb.held, mb.holdEnd, mb.pending = old.derived, old.set, old.held, old.holdEnd, old.pending
			if mb.fixed = old.fixed; s != old.service {
				mb.fixed = shareEndpoints(s.Endpoints, old.fixed)
			}
		}
		p.members[name] = mb
		p.use(mb, mb.asks)
	}
	return p, nil
}

// resolverOf says which registry resolves names in addresses: the DNS registry called "dns", else the first one in the
// order of names, else none of the configured ones.
func resolverOf(cfg *config.Config) string {
	if r := cfg.Registries["dns"]; r != nil && r.DNS != nil {
		return "dns"
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Registries)) {
		if cfg.Registries[name].DNS != nil {
			return name
		}
	}
	return resolverKey
}

// askedName is what a registry is asked for a service: its name; for a DNS registry its first host that is no pattern, as
// an SRV record alone where neither a port is given nor one can be assumed.
func askedName(s *config.Service, reg *config.Registry) string {
	if reg.DNS == nil {
		return s.Name
	}
	host := s.Name
	for _, h := range s.Hosts {
		if h != "" && h[0] != '*' {
			host = h
			break
		}
	}
	if _, _, err := net.SplitHostPort(host); err != nil && s.Protocol == "tcp" {
		return "srv:" + host
	}
	return host
}

func (p *plan) use(mb *member, asks []ask) {
	for _, a := range asks {
		users := p.users[a]
		if users == nil {
			users = make(map[*member]struct{}, 1)
			p.users[a] = users
		}
		users[mb] = struct{}{}
	}
}

func (p *plan) unuse(mb *member, asks []ask) {
	for _, a := range asks {
		delete(p.users[a], mb)
		if len(p.users[a]) == 0 {
			delete(p.users, a)
		}
	}
}

// wants lists the names wanted of every feed, sorted.
func (p *plan) wants() map[string][]string {
	w := make(map[string][]string)
	for a := range p.users {
		w[a.feed] = append(w[a.feed], a.name)
	}
	for _, names := range w {
		slices.Sort(names)
	}
	return w
}

// feedKeys lists the sources that the plan may need.
func (p *plan) feedKeys() map[string]struct{} {
	keys := map[string]struct{}{p.resolver: {}}
	for _, mb := range p.members {
		for _, a := range mb.asks {
			keys[a.feed] = struct{}{}
		}
	}
	return keys
}
