package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// doubts finds what is allowed, yet hardly meant.
func (c *Config) doubts() Errors {
	var all Errors
	for _, s := range c.ordered() {
		base := c.ServicePolicy(s)
		path := "services." + s.Name
		all = append(all, tooLong(path+".policy", &base)...)
		all = append(all, neverRetried(path+".policy", &base)...)
		all = append(all, shadowed(path, s.Routes)...)
		all = append(all, standsInFor(path, s, &base)...)
		all = append(all, c.isolationDoubts(path, s, &base)...)
		for i, r := range s.Routes {
			all = append(all, c.routeDoubts(path+".routes["+strconv.Itoa(i)+"]", s, r, &base)...)
		}
	}
	all = append(all, c.inboundDoubts()...)
	for _, name := range slices.Sorted(maps.Keys(c.Switches)) {
		w := c.Switches[name]
		if s := c.Services[w.Service]; s != nil && s.Protocol == "grpc" {
			all = append(all, mute("switches."+name, w.From, &w.Answer)...)
		}
		if w.Level == 3 && w.Enabled.Value && w.Reason == "" {
			all = append(all, w.Enabled.From.errorAt("switches."+name+".enabled", "a switch of level 3 has a large impact: say why it is turned on (reason)"))
		}
	}
	return all
}

func (c *Config) routeDoubts(path string, s *Service, r *Route, base *Policy) Errors {
	p := c.RoutePolicy(s, r)
	var all Errors
	if p.PerTryTimeout.From != base.PerTryTimeout.From || p.Timeout.From != base.Timeout.From {
		all = tooLong(path+".policy", &p)
	}
	if p.Retry.When.From != base.Retry.When.From || p.Retry.Count.From != base.Retry.Count.From || p.Idempotent.From != base.Idempotent.From {
		all = append(all, neverRetried(path+".policy", &p)...)
	}
	all = append(all, forNobody(path+".policy", &p, base)...)
	if f := p.Fallback; s.Protocol == "grpc" && f.From != base.Fallback.From {
		all = append(all, mute(path+".policy.fallback", f.From, &f.Value.Answer)...)
	}
	unsafe := slices.ContainsFunc(r.Match.Methods, func(m string) bool { return m == "POST" || m == "PATCH" || m == "CONNECT" })
	if unsafe && p.Retry.Count.Value > 0 && p.Retry.Count.From != base.Retry.Count.From && !p.Idempotent.Or(false) {
		all = append(all, p.Retry.Count.From.errorAt(path+".policy.retry", "a retry may do twice what the route's method does once; only calls that were not sent are tried again unless idempotent: true says that it is safe"))
	}
	return all
}

// forNobody tells of parts of a route's policy that only that of its service can have: the endpoints, and the connections to
// them, are those of all routes.
func forNobody(path string, p, base *Policy) Errors {
	var all Errors
	was := base.Outlier.origins()
	for i, from := range p.Outlier.origins() {
		if from != was[i] {
			all = append(all, from.errorAt(path+".outlier", "has no effect in a route: an endpoint is left out for all routes of its service, as the policy of the service says"))
			break
		}
	}
	if c := p.Limit.Connections; c.From != base.Limit.Connections.From {
		all = append(all, c.From.errorAt(path+".limit.connections", "has no effect in a route: all routes of a service share the connections to its endpoints"))
	}
	return all
}

// origins lists where each field comes from.
func (o *Outlier) origins() []Origin {
	return []Origin{
		o.Off.From, o.ConsecutiveFailures.From, o.ErrorRatio.From, o.TimeoutRatio.From, o.RequestVolume.From, o.Window.From,
		o.EjectFor.From, o.EjectMax.From, o.MaxEjected.From, o.Probe.From, o.SlowNode.From,
	}
}

// tooLong tells that an attempt may last longer than the call.
func tooLong(path string, p *Policy) Errors {
	if !p.PerTryTimeout.Set || p.Timeout.Value == 0 || p.PerTryTimeout.Value <= p.Timeout.Value {
		return nil
	}
	return Errors{p.PerTryTimeout.From.errorAt(path+".per_try_timeout", "one attempt may last "+Span(p.PerTryTimeout.Value)+", longer than the whole call ("+Span(p.Timeout.Value)+", "+place(p.Timeout.From)+")")}
}

// neverRetried tells that a status of gRPC is to be tried again, yet nobody said that calls may be made twice.
func neverRetried(path string, p *Policy) Errors {
	grpc := slices.ContainsFunc(p.Retry.When.Value, func(w string) bool { return strings.HasPrefix(w, "grpc:") })
	if !grpc || p.Retry.Count.Value == 0 || p.Idempotent.Or(false) {
		return nil
	}
	return Errors{p.Retry.When.From.errorAt(path+".retry.when", "no gRPC status is tried again unless idempotent: true says that calls may be made twice")}
}

// shadowed tells that a route comes after one that takes everything.
func shadowed(path string, routes []*Route) Errors {
	for i, r := range routes {
		if !r.Match.everything() {
			continue
		}
		var all Errors
		for j, later := range routes[i+1:] {
			all = append(all, later.From.errorAt(path+".routes["+strconv.Itoa(i+1+j)+"]", "never matches: "+strconv.Quote(r.Name)+" at "+r.From.String()+" takes everything"))
		}
		return all
	}
	return nil
}

// everything tells whether each request fits.
func (m *Match) everything() bool {
	path := m.Path.Kind == PathAny || (m.Path.Kind == PathBelow || m.Path.Kind == PathPrefix) && m.Path.Value == "/"
	return path && m.GRPC == "" && len(m.Methods)+len(m.Headers)+len(m.Query)+len(m.Cookies)+len(m.Segments)+len(m.Callers) == 0 &&
		(len(m.Hosts) == 0 || slices.Contains(m.Hosts, "*")) && (!m.HasPercent || m.Percent >= 1)
}

// standsInFor tells of fallbacks that are never used, and of those that make success of what an app says for all its methods
// and of a backup beside which everything is sent twice anyway.
func standsInFor(path string, s *Service, p *Policy) Errors {
	var all Errors
	f := p.Fallback
	if f.Value.Answer.Kind != "" && s.Critical {
		all = append(all, f.From.errorAt(path+".policy.fallback", "a critical service is not degraded by itself: only a switch with mode: fallback does it"))
	}
	if f.Value.Answer.Kind != "" && slices.ContainsFunc(f.Value.When, ofApplication) {
		all = append(all, f.From.errorAt(path+".policy.fallback.when", "an answer of the app itself becomes a success here, for every method of the service: say it in the routes that may"))
	}
	if s.Protocol == "grpc" {
		all = append(all, mute(path+".policy.fallback", f.From, &f.Value.Answer)...)
	}
	if p.DualSend.Value && p.Backup.On() {
		all = append(all, p.Backup.After.From.errorAt(path+".policy.backup", "dual_send sends everything twice: there is no backup beside it"))
	}
	return all
}

// mute tells of what cannot answer a call of gRPC.
func mute(path string, from Origin, s *StandIn) Errors {
	if s.Kind != KindLocal && s.Kind != KindStale {
		return nil
	}
	return Errors{from.errorAt(path+"."+s.Kind, "cannot answer calls of gRPC: answer and empty can")}
}

// ofApplication reports whether a word of a fallback's when is about what the app says.
func ofApplication(word string) bool { return !slices.Contains(TransportFailures(), word) }
