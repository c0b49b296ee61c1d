package config

// Resolve lays policies over each other, the strongest first, and what is built in below them all. Each field keeps the
// origin of the layer it comes from. A nil layer is skipped. Fields of a breaker or outlier turn it on again where a
// weaker layer said none.
func Resolve(layers ...*Policy) Policy {
	var p Policy
	for _, l := range layers {
		if l != nil {
			p.over(l)
		}
	}
	b := BuiltIn()
	p.over(&b)
	return p
}

// ServicePolicy is what holds for calls to s: its own fields, the policy it uses, the defaults, and what is built in.
func (c *Config) ServicePolicy(s *Service) Policy {
	return c.resolve(s.Critical, &s.Policy, s.Inherited)
}

// RoutePolicy is what holds for calls that match r of s.
func (c *Config) RoutePolicy(s *Service, r *Route) Policy {
	return c.resolve(s.Critical, &r.Policy, &s.Policy, r.Inherited, s.Inherited)
}

// InboundPolicy is what holds for calls to our own app.
func (c *Config) InboundPolicy(in *Inbound) Policy { return c.resolve(false, &in.Policy) }

// InboundRoutePolicy is what holds for calls to our own app that match r.
func (c *Config) InboundRoutePolicy(in *Inbound, r *Route) Policy {
	return c.resolve(false, &r.Policy, &in.Policy)
}

// resolve lays each policy over the one it uses, then over the next; the defaults are last. Of a call that is the caller's
// method, the caller's service, the provider's method, the provider's service, the defaults of the mesh.
func (c *Config) resolve(critical bool, layers ...*Policy) Policy {
	var p Policy
	for _, l := range layers {
		c.chain(l, func(l *Policy) { p.over(l) })
	}
	c.chain(&c.Defaults, func(l *Policy) { p.over(l) })
	b := BuiltIn()
	if critical {
		b = BuiltInCritical()
	}
	p.over(&b)
	return p
}

// chain calls each with p, with the policy that p uses, and so on; a circle ends it.
func (c *Config) chain(p *Policy, each func(*Policy)) {
	for n := 0; p != nil && n <= len(c.Policies); n++ {
		each(p)
		if !p.Use.Set {
			return
		}
		p = c.Policies[p.Use.Value]
	}
}

// over fills what p leaves open from the weaker policy l.
func (p *Policy) over(l *Policy) {
	inherit(&p.Use, &l.Use)
	inherit(&p.Timeout, &l.Timeout)
	p.perTryOver(l)
	inherit(&p.TellDeadline, &l.TellDeadline)
	inherit(&p.ConnectTimeout, &l.ConnectTimeout)
	inherit(&p.IdleTimeout, &l.IdleTimeout)
	inherit(&p.Idempotent, &l.Idempotent)
	inherit(&p.Retry.Count, &l.Retry.Count)
	inherit(&p.Retry.When, &l.Retry.When)
	inherit(&p.Retry.BackoffBase, &l.Retry.BackoffBase)
	inherit(&p.Retry.BackoffMax, &l.Retry.BackoffMax)
	inherit(&p.Retry.BudgetRatio, &l.Retry.BudgetRatio)
	inherit(&p.Retry.BudgetMinPerSecond, &l.Retry.BudgetMinPerSecond)
	p.Backup.over(&l.Backup)
	inherit(&p.DualSend, &l.DualSend)
	inherit(&p.Fallback, &l.Fallback)
	inherit(&p.Mirror, &l.Mirror)
	inherit(&p.LB, &l.LB)
	inherit(&p.Locality.Prefer, &l.Locality.Prefer)
	inherit(&p.Locality.SpillBelow, &l.Locality.SpillBelow)
	inherit(&p.Warmup, &l.Warmup)
	p.Breaker.over(&l.Breaker)
	p.Outlier.over(&l.Outlier)
	inherit(&p.Limit.Connections, &l.Limit.Connections)
	inherit(&p.Limit.InFlight, &l.Limit.InFlight)
	inherit(&p.Limit.Waiting, &l.Limit.Waiting)
	inherit(&p.Limit.Priorities, &l.Limit.Priorities)
	inherit(&p.Limit.Bulkhead, &l.Limit.Bulkhead)
	inherit(&p.Panic, &l.Panic)
}

func (b *Breaker) over(l *Breaker) {
	if b.Per.Set || b.ErrorThreshold.Set || b.RequestVolume.Set || b.Window.Set || b.Buckets.Set || b.SleepWindow.Set || b.HalfOpenProbes.Set ||
		b.SlowOver.Set || b.SlowRatio.Set {
		inherit(&b.Off, &Opt[bool]{Set: true}) // a stronger layer has fields: a none further down does not count
	}
	inherit(&b.Per, &l.Per)
	inherit(&b.ErrorThreshold, &l.ErrorThreshold)
	inherit(&b.RequestVolume, &l.RequestVolume)
	inherit(&b.Window, &l.Window)
	inherit(&b.Buckets, &l.Buckets)
	inherit(&b.SleepWindow, &l.SleepWindow)
	inherit(&b.HalfOpenProbes, &l.HalfOpenProbes)
	inherit(&b.SlowOver, &l.SlowOver)
	inherit(&b.SlowRatio, &l.SlowRatio)
	inherit(&b.Off, &l.Off)
}

func (o *Outlier) over(l *Outlier) {
	if o.ConsecutiveFailures.Set || o.ErrorRatio.Set || o.TimeoutRatio.Set || o.RequestVolume.Set || o.Window.Set ||
		o.EjectFor.Set || o.EjectMax.Set || o.MaxEjected.Set || o.Probe.Set || o.SlowNode.Set {
		inherit(&o.Off, &Opt[bool]{Set: true})
	}
	inherit(&o.ConsecutiveFailures, &l.ConsecutiveFailures)
	inherit(&o.ErrorRatio, &l.ErrorRatio)
	inherit(&o.TimeoutRatio, &l.TimeoutRatio)
	inherit(&o.RequestVolume, &l.RequestVolume)
	inherit(&o.Window, &l.Window)
	inherit(&o.EjectFor, &l.EjectFor)
	inherit(&o.EjectMax, &l.EjectMax)
	inherit(&o.MaxEjected, &l.MaxEjected)
	inherit(&o.Probe, &l.Probe)
	inherit(&o.SlowNode, &l.SlowNode)
	inherit(&o.Off, &l.Off)
}

// inherit takes the weaker value where the stronger is not set.
func inherit[T any](o, weaker *Opt[T]) {
	if !o.Set {
		*o = *weaker
	}
}
