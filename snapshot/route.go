package snapshot

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/route"
)

// routes compiles the routes of a service whose Rest is there already.
func (c *compiler) routes(s *Service, list []*config.Route) {
	if len(list) == 0 {
		return
	}
	before := map[string]*Route{}
	if was := c.before(s); was != nil {
		for _, r := range was.Routes {
			before[r.Name] = r
		}
	}
	matches := make([]route.Match, len(list))
	s.Routes = make([]*Route, len(list))
	for i, cfg := range list {
		matches[i] = matchOf(cfg)
		s.Routes[i] = c.route(s, cfg, c.policy(s, cfg), before[cfg.Name])
	}
	rules, err := route.NewRules(matches)
	if err != nil {
		c.fail(s.origin(), err)
		return
	}
	s.rules = rules
}

func (c *compiler) before(s *Service) *Service {
	switch {
	case c.prev == nil:
		return nil
	case s.Inbound:
		return c.prev.Inbound.byName[s.Name]
	}
	return c.prev.Outbound.byName[s.Name]
}

func (s *Service) origin() config.Origin {
	if s.Inbound {
		return s.InboundConfig.From
	}
	return s.Config.From
}

// policy resolves the policy of a route; one that says nothing of its own shares that of its service.
func (c *compiler) policy(s *Service, cfg *config.Route) *config.Policy {
	if cfg.Inherited == nil && reflect.ValueOf(&cfg.Policy).Elem().IsZero() {
		return &s.Policy
	}
	var p config.Policy
	if s.Inbound {
		p = c.cfg.InboundRoutePolicy(s.InboundConfig, cfg)
	} else {
		p = c.cfg.RoutePolicy(s.Config, cfg)
	}
	return &p
}

// route compiles one route, or with a nil cfg what is left to the service as a whole. was is its namesake before.
func (c *compiler) route(s *Service, cfg *config.Route, p *config.Policy, was *Route) *Route {
	r := &Route{Service: s, Config: cfg, Policy: p, ConnectTimeout: p.ConnectTimeout.Value, IdleTimeout: bound(p.IdleTimeout.Value)}
	r.Hash = HashKey{On: p.LB.Value.HashOn, Name: p.LB.Value.HashName}
	r.Plan = resilience.Policy{
		Timeout: bound(p.Timeout.Value), PerTry: p.PerTryTimeout.Value, Retries: p.Retry.Count.Value,
		BackoffBase: p.Retry.BackoffBase.Value, BackoffMax: p.Retry.BackoffMax.Value,
	}
	on, err := resilience.ParseConditions(p.Retry.When.Value)
	if err != nil {
		c.fail(p.Retry.When.From, err)
	}
	r.Plan.On = on
	c.meters(r, was)
	c.overlap(r, was, p)
	if cfg == nil {
		c.degradable(r, was, p)
		c.mirror(r, p)
		r.Targets = []*Target{c.target(s, r.Policy, nil, false, targetOf(was, 0))}
		return r
	}
	r.Name = cfg.Name
	c.degradable(r, was, p)
	c.mirror(r, p)
	r.Respond, r.Redirect, r.Rewrite = cfg.Respond, cfg.Redirect, rewriteOf(cfg.Rewrite)
	if r.Respond == nil && r.Redirect == nil {
		c.targets(r, cfg.To, was)
	}
	return r
}

// ever stands for no bound.
const ever = 10 * 365 * 24 * time.Hour

// bound turns the 0 of the configuration, which says "no bound", into one that is never reached.
func bound(d time.Duration) time.Duration {
	if d == 0 {
		return ever
	}
	return d
}

// meters gives r its budget, breaker and limiter: those of the service, unless its own policy says something else.
func (c *compiler) meters(r, was *Route) {
	p, rest := r.Policy, r.Service.Rest
	if rest != nil && sameBudget(p, rest.Policy) {
		r.Budget = rest.Budget
	} else {
		r.Budget = resilience.NewBudget(resilience.BudgetConfig{
			Ratio: p.Retry.BudgetRatio.Value, MinPerSecond: float64(p.Retry.BudgetMinPerSecond.Value),
		})
		if was != nil {
			r.Budget = r.Budget.Adopt(was.Budget)
		}
	}
	switch cfg, off := breakerOf(p); {
	case off:
	case rest != nil && p.Breaker.Per.Value != "route" && sameBreaker(cfg, rest.Policy):
		r.Breaker = rest.Breaker
	default:
		r.Breaker = resilience.NewBreaker(cfg)
		if was != nil && (rest == nil || was.Breaker != was.Service.Rest.Breaker) { // one that was shared stays the service's
			r.Breaker = r.Breaker.Adopt(was.Breaker)
		}
	}
	r.priorities = c.prioritiesOf(p)
	name := p.Limit.Bulkhead.Value
	if rest != nil && name == rest.Policy.Limit.Bulkhead.Value && name != "" && name != config.OwnBulkhead {
		r.Limiter, r.priorities = rest.Limiter, rest.priorities
		return
	}
	if shared := c.bulkheads[name]; shared != nil {
		r.Limiter = shared
		return
	}
	if rest != nil && c.bulkheads[rest.Policy.Limit.Bulkhead.Value] == nil && (r.Service.Inbound || p.Limit.InFlight.Value == rest.Policy.Limit.InFlight.Value &&
		p.Limit.Waiting.Value == rest.Policy.Limit.Waiting.Value && slices.Equal(p.Limit.Priorities.Value, rest.Policy.Limit.Priorities.Value)) {
		r.Limiter, r.priorities = rest.Limiter, rest.priorities
		return
	}
	r.Limiter = resilience.NewLimiter(resilience.LimiterConfig{
		Max: p.Limit.InFlight.Value, Waiting: p.Limit.Waiting.Value, Name: resilience.LimitInFlight,
		Ranked: len(p.Limit.Priorities.Value) > 0,
	}).Adopt(limiterOf(was))
}

func breakerOf(p *config.Policy) (cfg resilience.BreakerConfig, off bool) {
	b := &p.Breaker
	return resilience.BreakerConfig{
		ErrorThreshold: orLeast(b.ErrorThreshold.Value), RequestVolume: b.RequestVolume.Value, Window: b.Window.Value,
		Buckets: b.Buckets.Value, SleepWindow: b.SleepWindow.Value, HalfOpenProbes: b.HalfOpenProbes.Value,
		SlowOver: b.SlowOver.Value, SlowRatio: orLeast(b.SlowRatio.Value),
	}, b.Off.Value
}

func sameBreaker(cfg resilience.BreakerConfig, p *config.Policy) bool {
	other, off := breakerOf(p)
	return !off && cfg == other
}

// targets compiles where a route leads.
func (c *compiler) targets(r *Route, to *config.To, was *Route) {
	s := r.Service
	if to == nil {
		r.Targets = []*Target{c.target(s, r.Policy, nil, false, targetOf(was, 0))}
		return
	}
	if len(to.Split) == 0 {
		if t := c.resolve(s, to.Service, r); t != nil {
			r.Targets = []*Target{c.target(t, r.Policy, to.Labels, to.Else == "any", targetOf(was, 0))}
		}
		return
	}
	weights := make([]int, len(to.Split))
	for i, branch := range to.Split {
		weights[i] = branch.Weight
		if t := c.resolve(s, branch.Service, r); t != nil {
			r.Targets = append(r.Targets, c.target(t, r.Policy, branch.Labels, to.Else == "any", targetOf(was, i)))
		}
	}
	split, err := route.NewSplit(weights)
	if err != nil {
		c.fail(r.Config.From, err)
	}
	r.Split = split
}

func targetOf(was *Route, i int) *Target {
	if was == nil || i >= len(was.Targets) {
		return nil
	}
	return was.Targets[i]
}

// resolve finds the service that a route leads to; its own when name is empty.
func (c *compiler) resolve(s *Service, name string, r *Route) *Service {
	if name == "" || name == s.Name && !s.Inbound {
		return s
	}
	t := c.made[name]
	if t == nil {
		c.fail(r.Config.From, &UnknownService{Name: name})
		return nil
	}
	s.refs = append(s.refs, name)
	return t
}

// UnknownService is a route that leads to a service that is not there.
type UnknownService struct{ Name string }

// Error implements error.
func (e *UnknownService) Error() string { return "route leads to unknown service " + e.Name }

func rewriteOf(cfg *config.Rewrite) *Rewrite {
	if cfg == nil {
		return nil
	}
	r := &Rewrite{Host: cfg.Host, Set: cfg.SetHeaders, Remove: cfg.RemoveHeaders}
	if cfg.HasPrefix || cfg.Path != "" {
		r.Path = &route.Rewrite{HasPrefix: cfg.HasPrefix, From: cfg.PrefixFrom, To: cfg.PrefixTo, Whole: cfg.Path}
	}
	return r
}

func matchOf(cfg *config.Route) route.Match {
	m := &cfg.Match
	out := route.Match{
		Name: cfg.Name, Methods: m.Methods, Path: route.Path{Kind: route.PathKind(m.Path.Kind), Value: m.Path.Value},
		Headers: valuesOf(m.Headers), Query: valuesOf(m.Query), Cookies: valuesOf(m.Cookies), Segments: valuesOf(m.Segments),
		Hosts: m.Hosts, Callers: m.Callers, Percent: m.Percent, HasPercent: m.HasPercent,
	}
	if m.GRPC != "" {
		out.Path = grpcPath(m.GRPC)
		out.Headers = append(out.Headers, route.Value{Name: "content-type", Kind: route.ValueMedia, Text: "application/grpc"})
	}
	return out
}

// grpcPath says what the paths of gRPC calls of pkg.Service/Method look like, where either side may be *.
func grpcPath(of string) route.Path {
	service, method, _ := strings.Cut(of, "/")
	switch {
	case service != "*" && method != "*":
		return route.Path{Kind: route.PathExact, Value: "/" + of}
	case service != "*":
		return route.Path{Kind: route.PathBelow, Value: "/" + service + "/"}
	case method != "*":
		return route.Path{Kind: route.PathRegex, Value: "^/[^/]+/" + regexp.QuoteMeta(method) + "$"}
	}
	return route.Path{}
}

func valuesOf(list []config.ValueMatch) []route.Value {
	if len(list) == 0 {
		return nil
	}
	values := make([]route.Value, len(list))
	for i, v := range list {
		values[i] = route.Value{
			Name: v.Name, Kind: route.ValueKind(v.Kind), Text: v.Text, In: v.In, Mod: v.Mod, Residues: v.Residues,
		}
	}
	return values
}
