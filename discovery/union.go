package discovery

import (
	"slices"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/guard"
)

// static is the name of the source that a service's own endpoints are.
const static = "static"

// build recomputes the endpoints of one service. It reports whether its set changed and whether it needs other names
// resolved than before.
func (p *plan) build(mb *member, feeds map[string]*feed, now time.Time, hold time.Duration) (changed, names bool) {
	u := union{plan: p, member: mb, feeds: feeds}
	if len(mb.fixed) > 0 || len(mb.asks) == 0 {
		u.states = append(u.states, config.SourceState{Name: static, Answered: true})
		u.remember()
		u.add(mb.fixed)
	}
	for i, a := range mb.asks {
		if i > 0 {
			u.remember()
		}
		if k := u.answer(a, a.feed); k != nil {
			u.add(k.list)
		}
	}
	u.holdBack(now, hold)

	names = !slices.Equal(mb.names, u.names)
	if names {
		p.unuse(mb, slices.DeleteFunc(mb.names, func(a ask) bool { return slices.Contains(mb.asks, a) }))
		mb.names = u.names
		p.use(mb, mb.names)
	}
	p.moved = p.moved || !slices.Equal(mb.pending, u.pending)
	mb.derived, mb.pending = u.derived, u.pending
	if mb.held != nil {
		p.holding[mb] = struct{}{}
	} else {
		delete(p.holding, mb)
	}
	if waiting := len(u.pending) > 0; waiting != mb.waiting {
		mb.waiting = waiting
		if waiting {
			p.waiting++
		} else {
			p.waiting--
		}
	}
	return u.settle(), names
}

// union gathers the endpoints of one service from its sources, in order; the first one to name an address wins.
type union struct {
	plan   *plan
	member *member
	feeds  map[string]*feed

	list    []*config.Endpoint
	seen    map[string]struct{} // addresses of list; nil while they cannot repeat
	states  []config.SourceState
	notes   []config.EndpointNote
	names   []ask
	pending []Wait
	derived map[derivation]*config.Endpoint
}

// remember makes the union check from now on whether an address is there already; one registry's answer never repeats.
func (u *union) remember() {
	if u.seen != nil {
		return
	}
	u.seen = make(map[string]struct{}, len(u.list))
	for _, e := range u.list {
		u.seen[e.Address] = struct{}{}
	}
}

// answer looks up what a feed last said about a name, and notes how it is doing. It is nil before the first answer.
func (u *union) answer(a ask, source string) *known {
	var k *known
	if f := u.feeds[a.feed]; f != nil {
		k = f.sets[a.name]
	}
	st := config.SourceState{Name: source}
	if k != nil {
		st.Answered, st.Stale, st.Since, st.Err = k.answered, k.stale, k.since, k.err
		u.guarded(&st, k)
	}
	u.states = append(u.states, st)
	if !st.Answered {
		u.pending = append(u.pending, Wait{Service: u.member.service.Name, Source: source, Err: st.Err})
		return nil
	}
	return k
}

// guarded writes down what the guard of a list decided.
func (u *union) guarded(st *config.SourceState, k *known) {
	d := &k.decision
	if d.Mode != guard.Believed {
		st.Protection, st.ProtectedSince, st.ProtectedUntil = d.Mode.String(), d.Since, d.Until
		st.Listed, st.Known = d.Listed, d.Known
	}
	for _, n := range d.Notes {
		v := config.EndpointNote{
			Address: n.Endpoint.Address, Source: st.Name, Used: n.Used, Why: n.Why.String(), Since: n.Since, Err: n.Err,
		}
		if n.Watched {
			v.Check = n.Check.String()
		}
		u.notes = append(u.notes, v)
	}
}

// add takes the endpoints of one source.
func (u *union) add(list []*config.Endpoint) {
	if u.list == nil && len(list) > 0 {
		u.list = make([]*config.Endpoint, 0, len(list))
	}
	for _, e := range list {
		if named(e.Address) {
			u.addNamed(e)
			continue
		}
		if a := canonical(e.Address); a != e.Address {
			e = u.derive(e, &config.Endpoint{Address: a})
		}
		u.put(e)
	}
}

// addNamed takes the addresses behind an endpoint's name.
func (u *union) addNamed(e *config.Endpoint) {
	u.remember()
	a := ask{feed: u.plan.resolver, name: e.Address}
	if slices.Contains(u.names, a) {
		return // the first entry of a name counts, as of an address
	}
	u.names = append(u.names, a)
	k := u.answer(a, "name "+e.Address)
	if k == nil {
		return
	}
	for _, at := range k.list {
		u.put(u.derive(e, at))
	}
}

// derive returns the endpoint for one address behind entry: the same pointer for as long as both stay the same.
func (u *union) derive(entry, at *config.Endpoint) *config.Endpoint {
	if u.derived == nil {
		u.derived = make(map[derivation]*config.Endpoint)
	}
	d := derivation{entry: entry, address: at.Address, weight: at.Weight}
	e := u.member.derived[d]
	if e == nil {
		e = resolved(entry, at)
	}
	u.derived[d] = e
	return e
}

func (u *union) put(e *config.Endpoint) {
	if u.seen != nil {
		if _, dup := u.seen[e.Address]; dup {
			return
		}
		u.seen[e.Address] = struct{}{}
	}
	u.list = append(u.list, e)
}

// holdBack keeps what was served before while something newly needed has not answered, for at most hold.
func (u *union) holdBack(now time.Time, hold time.Duration) {
	mb := u.member
	if len(u.pending) == 0 {
		mb.held = nil
		return
	}
	news := slices.ContainsFunc(u.pending, func(w Wait) bool {
		return !slices.ContainsFunc(mb.pending, func(old Wait) bool { return old.Source == w.Source })
	})
	switch {
	case news && mb.set != nil && len(mb.set.List) > 0:
		mb.held, mb.holdEnd = mb.set.List, now.Add(hold)
	case mb.held != nil && !now.Before(mb.holdEnd):
		mb.held = nil
	}
	if mb.held != nil {
		u.remember()
		for _, e := range mb.held {
			u.put(e)
		}
	}
}

// settle makes the set, keeping the pointers of before where nothing changed, and reports whether something did.
func (u *union) settle() bool {
	name, prev := u.member.service.Name, u.member.set
	if u.member.held == nil && !slices.ContainsFunc(u.states, func(s config.SourceState) bool { return s.Answered || s.Err != "" }) {
		u.member.set = nil
		delete(u.plan.sets, name)
		return prev != nil
	}
	if prev != nil && slices.Equal(prev.List, u.list) {
		if slices.Equal(prev.Sources, u.states) && slices.Equal(prev.Notes, u.notes) {
			u.plan.sets[name] = prev
			return false
		}
		u.list = prev.List
	}
	u.member.set = &config.EndpointSet{List: u.list, Sources: u.states, Notes: u.notes}
	u.plan.sets[name] = u.member.set
	return true
}
