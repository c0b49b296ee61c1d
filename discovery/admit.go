package discovery

import (
	"context"
	"errors"
	"time"
)

// admit takes an answer into what is known and marks the services it concerns. It reports whether anything changed. The
// guard of the list compares it with what was known before anyone sees it.
func (m *Merger) admit(ctx context.Context, r report) bool {
	f := r.from
	if m.feeds[f.key] != f {
		return false // of a source that was replaced
	}
	if r.stopped {
		f.fails(stopped)
		m.o.Observer.Failed(f.name, "", r.Err)
		changed := false
		for _, name := range f.wanted {
			changed = m.failed(ctx, f, name, r.Err) || changed
		}
		return changed
	}
	if r.Service == "" {
		m.besides(f, r.Err)
		return false
	}
	a := ask{feed: f.key, name: r.Service}
	if len(m.plan.users[a]) == 0 {
		return false // no longer wanted
	}
	if r.Err != nil {
		f.fails(r.Service)
		m.o.Observer.Failed(f.name, r.Service, r.Err)
		return m.failed(ctx, f, r.Service, r.Err)
	}
	k := f.sets[r.Service]
	if k == nil {
		k = &known{}
		f.sets[r.Service] = k
	}
	if r.Unchanged && !k.answered {
		return false // it was forgotten meanwhile
	}
	list, changed := k.raw, false
	if !r.Unchanged {
		list, changed = refresh(k.raw, r.Endpoints)
	}
	changed = changed || !k.answered || k.restored
	m.o.Observer.Updated(f.name, r.Service, len(list), changed)
	back, well := f.recovered(stopped), f.recovered(r.Service)
	if back || well {
		m.o.Observer.Well(f.name)
	}
	if !changed && !k.stale {
		return false
	}
	now := time.Now()
	if !k.answered || k.stale {
		k.since = now
	}
	k.raw, k.answered, k.restored, k.carried, k.stale, k.err = k.known(list), true, false, false, false, ""
	k.guard.Answer(now, k.raw)
	m.touchUsers(a)
	m.decide(ctx, now, a)
	return true
}

// besides takes note of what is wrong with a source beside its services; nil: nothing any more.
func (m *Merger) besides(f *feed, err error) {
	switch {
	case err != nil:
		f.fails(aside)
		m.o.Observer.Failed(f.name, "", err)
	case f.recovered(aside):
		m.o.Observer.Well(f.name)
	}
}

// failed notes that an attempt went wrong; only the first failure in a row, and the first of another kind, changes what is shown.
func (m *Merger) failed(ctx context.Context, f *feed, name string, err error) bool {
	k := f.sets[name]
	if k == nil {
		k = &known{}
		f.sets[name] = k
	}
	if k.stale {
		text := "not heard since the start, endpoints are those of the disk: " + err.Error()
		switch {
		case k.restored && k.err != text:
			k.err, k.kind = text, Reason(err)
		case !k.restored && k.kind != Reason(err):
			k.err, k.kind = err.Error(), Reason(err)
		default:
			return false
		}
		m.touchUsers(ask{feed: f.key, name: name})
		return true
	}
	k.stale, k.since, k.err, k.kind = true, time.Now(), err.Error(), Reason(err)
	k.guard.Failed()
	a := ask{feed: f.key, name: name}
	m.touchUsers(a)
	m.decide(ctx, k.since, a)
	return true
}

// Reason is what a source calls the kind of its failure, in one word; empty: it has none for it. Texts differ with each attempt, such
// as by a port.
func Reason(err error) string {
	if named := (interface{ Reason() string })(nil); errors.As(err, &named) {
		return named.Reason()
	}
	return ""
}

func (m *Merger) touchUsers(a ask) {
	for mb := range m.plan.users[a] {
		m.touch(mb)
	}
}
