package snapshot

import (
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/balance"
	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/resilience"
)

// service compiles an outbound service without its routes, which may lead to services that are not compiled yet.
func (c *compiler) service(cfg *config.Service) *Service {
	set := c.mesh.Endpoints[cfg.Name]
	s := &Service{
		Name: cfg.Name, Protocol: cfg.Protocol, Listen: cfg.Listen, Config: cfg, set: set, Policy: c.cfg.ServicePolicy(cfg),
	}
	s.Web = bridged(cfg.Protocol, &cfg.GRPCWeb)
	s.Links = linksOf(cfg, s.Policy.Limit.Connections.Value)
	was := c.was(cfg.Name)
	if set != nil {
		s.Sources, s.Notes = set.Sources, set.Notes
		s.Endpoints = endpoints(s, c.subset(s, c.grouped(s, cfg, c.others(s, set.List))), was)
	}
	c.fill(s, was)
	s.view, s.programs, s.caller = c.viewOf(s), c.programs, callerOf(&c.cfg.Node)
	s.Rest = c.route(s, nil, &s.Policy, restOf(was))
	return s
}

// inboundService compiles one service of our own app, routes included.
func (c *compiler) inboundService(in *config.Inbound) *Service {
	s := &Service{
		Name: in.Service, Inbound: true, Protocol: in.Protocol, InboundConfig: in, Policy: c.cfg.InboundPolicy(in),
	}
	s.Web = bridged(in.Protocol, &in.GRPCWeb)
	var was *Service
	if c.prev != nil {
		was = c.prev.Inbound.byName[in.Service]
	}
	app := &config.Endpoint{Address: in.App, Weight: 1, From: in.From}
	s.Endpoints = endpoints(s, []*config.Endpoint{app}, was)
	c.fill(s, was)
	s.Guard = guardOf(c.sets[in.Service])
	s.Rest = c.route(s, nil, &s.Policy, restOf(was))
	if in.Admit.Concurrency.Set {
		s.Rest.Limiter = resilience.NewLimiter(resilience.LimiterConfig{
			Ranked: len(s.Policy.Limit.Priorities.Value) > 0,
			Max:    in.Admit.Concurrency.Value, Waiting: in.Admit.QueueSize.Or(0), Wait: in.Admit.QueueWait.Or(0),
			Name: resilience.LimitConcurrency,
		}).Adopt(limiterOf(restOf(was)))
	}
	c.routes(s, in.Routes)
	return s
}

// bridged returns how gRPC-Web reaches a service: one that speaks nothing but gRPC could not answer it.
func bridged(protocol string, w *config.GRPCWeb) *Web {
	if protocol != "grpc" || w.Off.Value {
		return nil
	}
	return &Web{Origins: w.Origins, Credentials: w.Credentials.Value, MaxAge: strconv.Itoa(int(w.MaxAge.Or(10*time.Minute) / time.Second))}
}

func restOf(was *Service) *Route {
	if was == nil {
		return nil
	}
	return was.Rest
}

func limiterOf(was *Route) *resilience.Limiter {
	if was == nil {
		return nil
	}
	return was.Limiter
}

// fill sets what the resolved policy says about the service as a whole.
func (c *compiler) fill(s, was *Service) {
	p := &s.Policy
	s.LimitConnections, s.LimitWaiting = p.Limit.Connections.Value, p.Limit.Waiting.Value
	s.Probe = p.Outlier.Probe.Value
	if p.Outlier.Off.Value {
		return
	}
	s.Outlier = resilience.NewOutlier(resilience.OutlierConfig{
		ConsecutiveFailures: orNever(p.Outlier.ConsecutiveFailures.Value),
		ErrorRatio:          orLeast(p.Outlier.ErrorRatio.Value),
		TimeoutRatio:        orLeast(p.Outlier.TimeoutRatio.Value),
		RequestVolume:       p.Outlier.RequestVolume.Value,
		Window:              p.Outlier.Window.Value,
		EjectFor:            p.Outlier.EjectFor.Value,
		EjectMax:            p.Outlier.EjectMax.Value,
		MaxEjected:          orLeast(p.Outlier.MaxEjected.Value),
		ProbeInterval:       s.Probe.Interval,
		Slow:                resilience.SlowNode(p.Outlier.SlowNode.Value),
	})
	if was != nil {
		s.Outlier = s.Outlier.Adopt(was.Outlier)
	}
}

// orNever and orLeast carry a 0 of the configuration, which says "not counted" of a number and "the first one" of a ratio,
// to meters that take it for "not set".
func orNever(n int) int {
	if n == 0 {
		return math.MaxInt
	}
	return n
}

func orLeast(ratio float64) float64 { return max(ratio, 1e-6) }

// endpoints turns specs into endpoints; those that were there before keep their meters and, where nothing about them
// changed, themselves.
func endpoints(s *Service, specs []*config.Endpoint, was *Service) []*Endpoint {
	pooled := was != nil && was.Protocol == s.Protocol && sameLinks(was.Links, s.Links)
	var before map[string]*Endpoint
	if was != nil {
		before = make(map[string]*Endpoint, len(was.Endpoints))
		for _, e := range was.Endpoints {
			before[e.Address] = e
		}
	}
	list := make([]*Endpoint, 0, len(specs))
	for _, spec := range specs {
		old := before[spec.Address]
		breaker := s.guarded(old)
		switch {
		case old == nil:
			list = append(list, &Endpoint{
				Address: spec.Address, Spec: spec, Service: s.Name, Meter: new(balance.Meter),
				Health: &resilience.EndpointHealth{Address: spec.Address}, Breaker: breaker,
			})
		case old.Spec == spec && pooled && old.Breaker == breaker:
			list = append(list, old)
		default:
			next := *old
			next.Spec, next.Counts, next.Breaker = spec, nil, breaker
			if !pooled {
				next.Pool = nil // connections of another protocol, or apart in another way, are of no use
			}
			list = append(list, &next)
		}
	}
	return list
}

// spec is how a policy wants a set balanced.
func (c *compiler) spec(p *config.Policy) balance.Spec {
	kind, _ := balance.ParseKind(p.LB.Value.Kind) // the loader knows the same names
	spec := balance.Spec{
		Kind: kind, PreferNear: p.Locality.Prefer.Value != "", SpillBelow: p.Locality.SpillBelow.Value,
		Warmup: p.Warmup.Value, Seed: c.seed,
	}
	if p.Panic.Value == "fail_fast" {
		spec.Panic = balance.FailFast
	}
	if a := p.LB.Value.Adaptive; kind == balance.Adaptive {
		spec.Adaptive = balance.Pacing{
			SlowFraction: a.SlowFraction, SlowWeight: uint32(a.SlowWeight), NormalWeight: uint32(a.NormalWeight), Interval: a.Interval,
		}
	}
	return spec
}

// membership is what decides how a balancer sees endpoints.
type membership struct {
	spec                balance.Spec
	prefer, group, zone string
	region              string
}

func (c *compiler) membership(p *config.Policy) membership {
	n := &c.cfg.Node
	return membership{spec: c.spec(p), prefer: p.Locality.Prefer.Value, group: n.Group, zone: n.Zone, region: n.Region}
}

// set balances a list; what must survive a change of it is taken over from prev.
func (m membership) set(list []*Endpoint, prev *balance.Set) *balance.Set {
	members := make([]balance.Endpoint, len(list))
	for i, e := range list {
		members[i] = balance.Endpoint{Key: hash64(e.Address), Weight: uint32(e.Spec.Weight), Meter: e.Meter}
		switch m.prefer {
		case "group":
			members[i].Near = m.group != "" && e.Spec.Group == m.group
		case "zone":
			members[i].Near = m.zone != "" && e.Spec.Zone == m.zone
		case "region":
			members[i].Near = m.region != "" && e.Spec.Region == m.region
		}
	}
	return balance.New(m.spec, members, prev)
}

func hash64(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // cannot fail
	return h.Sum64()
}

// targetKey tells targets apart: equal ones are shared by all routes.
type targetKey struct {
	service *Service
	labels  string
	orAny   bool
	members membership
}

// target returns the endpoints of s that carry all labels, balanced as p asks.
func (c *compiler) target(s *Service, p *config.Policy, labels map[string]string, orAny bool, prev *Target) *Target {
	key := targetKey{s, canonical(labels), orAny, c.membership(p)}
	if t := c.targetsMade[key]; t != nil {
		return t
	}
	t := &Target{Service: s, Labels: labels, Endpoints: s.Endpoints}
	if len(labels) > 0 {
		groups := c.groupsOf(s, labels["group"])
		t.Endpoints = nil
		for _, e := range s.Endpoints {
			if carries(e.Spec, labels, groups) {
				t.Endpoints = append(t.Endpoints, e)
			}
		}
		if len(t.Endpoints) == 0 && orAny {
			t.Endpoints, t.Fallback = s.Endpoints, true
		}
	}
	if prev != nil && (prev.Service.Name != s.Name || !maps.Equal(prev.Labels, labels)) {
		prev = nil
	}
	c.grey(t, key.members, prev)
	c.finish(t, key.members, prev)
	c.targetsMade[key] = t
	return t
}

// finish gives a target its balancer and its rules.
func (c *compiler) finish(t *Target, m membership, prev *Target) {
	t.Set = m.set(t.Endpoints, setOf(prev))
	if t.Service.view.Acts() {
		t.ruled = newRuled(t, m, prev)
	}
}

func setOf(t *Target) *balance.Set {
	if t == nil {
		return nil
	}
	return t.Set
}

func canonical(labels map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString(strconv.Quote(k))
		b.WriteString(strconv.Quote(labels[k]))
	}
	return b.String()
}

// carries reports whether an endpoint has all labels; of groups, it may be in any.
func carries(e *config.Endpoint, labels map[string]string, groups []string) bool {
	for k, v := range labels {
		has := labelOf(e, k)
		if has != v && (k != "group" || !slices.Contains(groups, has)) {
			return false
		}
	}
	return true
}

// labelOf is a label of an endpoint; version, group, zone and region are labels too.
func labelOf(e *config.Endpoint, key string) string {
	if v, ok := e.Labels[key]; ok {
		return v
	}
	switch key {
	case "version":
		return e.Version
	case "group":
		return e.Group
	case "zone":
		return e.Zone
	case "region":
		return e.Region
	}
	return ""
}

// sameBudget compares what a shared retry budget depends on.
func sameBudget(a, b *config.Policy) bool {
	return a.Retry.BudgetRatio.Value == b.Retry.BudgetRatio.Value &&
		a.Retry.BudgetMinPerSecond.Value == b.Retry.BudgetMinPerSecond.Value
}
