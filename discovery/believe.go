package discovery

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/guard"
)

// healthPath is the label of an endpoint that says where it answers for its health. Since the address may belong to
// somebody else by now, a path that names the service tells more than a connection (S-47).
const healthPath = "health_path"

const (
	maxChecks = 32  // direct checks that run at a time
	maxTips   = 256 // tips that wait; more are dropped, and come again with the next failure
)

// checked is how a direct check ended.
type checked struct {
	from    *feed
	ask     ask
	address string
	problem string // empty: it lives
}

// tip is something that the data plane noticed of an endpoint.
type tip struct {
	service, address string
	left             bool // it said that it will go; else calls to it fail
}

// Suspect tells that calls to an endpoint of a service fail: it is checked directly, and left out while nothing reaches
// it, if others are there. It never blocks.
func (m *Merger) Suspect(service, address string) { m.tip(tip{service: service, address: address}) }

// Left tells that an endpoint of a service said itself that it will go (S-229): when it leaves the list, no protection
// keeps it. Registries that can are asked anew at once. It never blocks.
func (m *Merger) Left(service, address string) {
	m.tip(tip{service: service, address: address, left: true})
}

func (m *Merger) tip(t tip) {
	select {
	case m.tips <- t:
	default:
	}
}

// take hands a tip to the guards of all lists that the service has the endpoint from.
func (m *Merger) take(ctx context.Context, t tip) {
	mb := m.plan.members[t.service]
	if mb == nil {
		return
	}
	now := time.Now()
	for _, a := range slices.Concat(mb.asks, mb.names) {
		k := m.known(a)
		if k == nil || k.guard.Endpoint(t.address) == nil {
			continue
		}
		if t.left {
			k.guard.Left(now, t.address)
			if r, ok := m.feeds[a.feed].source.(Refresher); ok {
				r.Refresh(a.name)
			}
		} else {
			k.guard.Suspect(now, t.address)
		}
		m.decide(ctx, now, a)
	}
}

func (m *Merger) known(a ask) *known {
	if f := m.feeds[a.feed]; f != nil {
		return f.sets[a.name]
	}
	return nil
}

// known returns a list with the pointers of endpoints that are remembered and did not change.
func (k *known) known(list []*config.Endpoint) []*config.Endpoint {
	if !k.guard.Remembers() {
		return list // those that are listed still have theirs
	}
	for i, e := range list {
		if old := k.guard.Endpoint(e.Address); old != nil && old != e && sameEndpoint(old, e) {
			list[i] = old
		}
	}
	return list
}

// rules are what the services that use a list say of it: of several the first by name.
func (p *plan) rules(a ask) guard.Rules {
	s := p.user(a)
	if s == nil {
		return guard.Rules{}
	}
	v := p.cfg.ServiceProtection(s)
	r := guard.Rules{
		MinKnown: v.HalfDead.MinKnown.Value, Hold: v.HalfDead.Hold.Value, Memory: v.HalfDead.Memory.Value,
		Consumer: s.Liveness == "consumer",
	}
	if !v.RemovalProtection.Off.Value && v.RemovalProtection.MaxRatio.Set {
		const least = 1e-9 // 0 is no bound to a guard; to a person it is the smallest
		r.MaxRemoval = max(least, v.RemovalProtection.MaxRatio.Value)
	}
	if !v.HalfDead.Off.Value {
		r.Below = v.HalfDead.Below.Value
	}
	if reg := p.cfg.Registries[a.feed]; reg != nil && reg.File != nil {
		r.Meant = true // whoever edits a file means it, unless nothing is left in it
	}
	return r
}

// user is the first service by name that uses a list.
func (p *plan) user(a ask) *config.Service {
	var s *config.Service
	for mb := range p.users[a] {
		if s == nil || mb.service.Name < s.Name {
			s = mb.service
		}
	}
	return s
}

// decide asks the guard of a list what is used of it, and does what it says.
func (m *Merger) decide(ctx context.Context, now time.Time, a ask) {
	f := m.feeds[a.feed]
	k := m.known(a)
	if k == nil || !k.answered || k.carried {
		delete(m.watched, a)
		return
	}
	was := k.decision
	d := k.guard.Decide(now, m.plan.rules(a))
	k.decision = d
	if d.Next.IsZero() && len(d.Due) == 0 && len(d.Notes) == 0 {
		delete(m.watched, a)
	} else {
		m.watched[a] = d.Next
	}
	for _, e := range d.Due {
		m.check(ctx, f, a, e)
	}
	used := !slices.Equal(k.list, d.Use)
	if used {
		k.list = d.Use
	}
	if used || d.Mode != was.Mode || d.Until != was.Until || d.Known != was.Known || !slices.EqualFunc(d.Notes, was.Notes, sameNote) {
		m.touchUsers(a)
		if s := m.plan.user(a); s != nil {
			m.o.Observer.Guarded(f.name, s.Name, was, d)
		}
		if m.o.Memory != nil && !k.restored && keeps(f.reg) {
			m.o.Memory.Save(f.reg, a.name, worthKeeping(&d))
		}
	}
}

// sameNote compares all but when the next check is.
func sameNote(a, b guard.Note) bool {
	a.Until, b.Until = time.Time{}, time.Time{}
	return a == b
}

// decideDue asks the guards whose time has come.
func (m *Merger) decideDue(ctx context.Context, now time.Time) {
	for a, at := range m.watched {
		if !at.IsZero() && !now.Before(at) {
			m.decide(ctx, now, a)
		}
	}
}

// decideAll asks all guards, after the rules may have changed.
func (m *Merger) decideAll(ctx context.Context) {
	now := time.Now()
	for key, f := range m.feeds {
		for name := range f.sets {
			m.decide(ctx, now, ask{feed: key, name: name})
		}
	}
}

// proving reports whether endpoints wait for their first check that are of no use before.
func (m *Merger) proving() bool {
	for a := range m.watched {
		if k := m.known(a); k != nil && k.restored && k.decision.Pending > 0 {
			return true
		}
	}
	return false
}

// check asks an endpoint whether it lives. A name is not asked: the addresses behind it are lists of their own.
func (m *Merger) check(ctx context.Context, f *feed, a ask, e *config.Endpoint) {
	c := Check{Address: e.Address}
	if s := m.plan.user(a); s != nil {
		policy := m.plan.cfg.ServicePolicy(s)
		c.Service, c.Probe = s.Name, policy.Outlier.Probe.Value
	}
	if path := e.Labels[healthPath]; strings.HasPrefix(path, "/") {
		c.Probe.HTTP, c.Probe.GRPC = path, false
	}
	m.running.Go(func() {
		done := checked{from: f, ask: a, address: e.Address}
		select {
		case m.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if m.o.Check != nil && !named(e.Address) {
			if err := m.o.Check(ctx, c); err != nil {
				done.problem = err.Error()
			}
		}
		<-m.slots
		select {
		case m.checks <- done:
		case <-ctx.Done():
		}
	})
}

// checkEnded takes in how a check ended.
func (m *Merger) checkEnded(ctx context.Context, c checked) {
	if m.feeds[c.ask.feed] != c.from {
		return
	}
	k := m.known(c.ask)
	if k == nil {
		return
	}
	now := time.Now()
	k.guard.Checked(now, c.address, c.problem)
	m.decide(ctx, now, c.ask)
}

// keeps reports whether lists of a registry are kept on disk: a file is there already.
func keeps(reg *config.Registry) bool { return reg.File == nil }

// worthKeeping is what a later run should know: who is used, and who would be if a check succeeded.
func worthKeeping(d *guard.Decision) []*config.Endpoint {
	list := d.Use
	for _, n := range d.Notes {
		if !n.Used && n.Check != guard.Dead && (n.Why == guard.Retained || n.Why == guard.Remembered) {
			list = append(slices.Clip(list), n.Endpoint)
		}
	}
	return list
}

// recall fills what nothing is known of from the disk, so that it is there at once (S-21, X-4).
func (m *Merger) recall(ctx context.Context, f *feed) {
	if m.o.Memory == nil || !keeps(f.reg) {
		return
	}
	now := time.Now()
	for _, name := range f.wanted {
		if f.sets[name] != nil || f.recalled[name] {
			continue
		}
		if f.recalled == nil {
			f.recalled = make(map[string]bool)
		}
		f.recalled[name] = true
		list, saved, err := m.o.Memory.Load(f.reg, name)
		if err != nil {
			m.o.Observer.Forgot(f.name, name, err)
		}
		list, _ = refresh(nil, list)
		if len(list) == 0 {
			continue
		}
		k := &known{
			answered: true, restored: true, stale: true, since: saved,
			err: "not heard since the start: endpoints are those of the disk",
		}
		k.guard.Restore(now, list)
		f.sets[name] = k
		a := ask{feed: f.key, name: name}
		m.touchUsers(a)
		m.decide(ctx, now, a)
	}
}
