package discovery

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

func (m *Merger) loop(ctx context.Context) error {
	began := time.Now()
	readyWait := m.plan.cfg.Discovery.ReadyWait
	firstWait := min(m.o.FirstWait, readyWait)
	timer := time.NewTimer(0)
	defer timer.Stop()
	last := began // of the newest update
	for {
		now := time.Now()
		m.expired = m.expired || now.Sub(began) >= readyWait
		m.decideDue(ctx, now)
		if m.due(now, last) {
			m.buildDirty(ctx)
			m.publish()
			if m.applied {
				m.flush(now)
			}
		}
		if !m.applied && (m.settled(now) || now.Sub(began) >= firstWait) {
			if err := m.first(); err != nil {
				return err
			}
		}
		m.checkReady()

		timer.Reset(m.nextWake(now, last, began, firstWait, readyWait))
		var reloads <-chan reload
		if m.applied {
			reloads = m.reloads
		}
		select {
		case <-ctx.Done():
			return nil
		case r := <-m.updates:
			if m.admit(ctx, r) {
				last = time.Now()
				if r.Err == nil {
					m.heard = last
				}
			}
		case c := <-m.checks:
			m.checkEnded(ctx, c)
		case t := <-m.tips:
			m.take(ctx, t)
		case r := <-reloads:
			r.reply <- m.reload(ctx, r.cfg)
		case <-timer.C:
		}
	}
}

// firstQuiet is how long no list may have come for those that have to be put in force without the others (S-26).
const firstQuiet = 100 * time.Millisecond

// settled reports whether the first mesh need not wait: all have answered, or those that answer have.
func (m *Merger) settled(now time.Time) bool {
	if !m.since.IsZero() || m.proving() {
		return false
	}
	return m.plan.waiting == 0 || !m.heard.IsZero() && now.Sub(m.heard) >= firstQuiet
}

// idle is how long the loop sleeps when nothing is due.
const idle = time.Hour

// due reports whether changes have waited long enough, or an endpoint has been held long enough.
func (m *Merger) due(now, last time.Time) bool {
	for mb := range m.plan.holding {
		if !now.Before(mb.holdEnd) {
			m.touch(mb)
			return true
		}
	}
	if m.since.IsZero() {
		return false
	}
	return now.Sub(last) >= m.quiet() || now.Sub(m.since) >= m.o.Max
}

// quiet is shorter before the first mesh: the proxy is not serving yet.
func (m *Merger) quiet() time.Duration {
	if !m.applied {
		return min(m.o.Quiet, 10*time.Millisecond)
	}
	return m.o.Quiet
}

func (m *Merger) nextWake(now, last, began time.Time, firstWait, readyWait time.Duration) time.Duration {
	wake := now.Add(idle)
	sooner := func(t time.Time) {
		if t.Before(wake) {
			wake = t
		}
	}
	if !m.since.IsZero() {
		sooner(last.Add(m.quiet()))
		sooner(m.since.Add(m.o.Max))
	}
	if !m.applied {
		sooner(began.Add(firstWait))
		if !m.heard.IsZero() {
			sooner(m.heard.Add(firstQuiet))
		}
	}
	if !m.isReady {
		sooner(began.Add(readyWait))
	}
	for mb := range m.plan.holding {
		sooner(mb.holdEnd)
	}
	for _, t := range m.watched {
		if !t.IsZero() {
			sooner(t)
		}
	}
	return max(wake.Sub(now), 0)
}

// touch marks a service whose endpoints have to be built anew.
func (m *Merger) touch(mb *member) {
	m.dirty[mb] = struct{}{}
	if m.since.IsZero() {
		m.since = time.Now()
	}
}

// buildDirty brings the sets of all marked services up to date, and asks for the names that turn up in them.
func (m *Merger) buildDirty(ctx context.Context) {
	now, hold := time.Now(), m.plan.cfg.Discovery.ReadyWait
	names := false
	for mb := range m.dirty {
		c, n := m.plan.build(mb, m.feeds, now, hold)
		if c {
			m.changed++
		}
		names = names || n
	}
	clear(m.dirty)
	m.since = time.Time{}
	if names {
		m.want(ctx)
	}
}

// flush applies what was built, if it differs from what is in force.
func (m *Merger) flush(began time.Time) {
	if m.changed == 0 {
		return
	}
	if err := m.apply(m.plan, m.changed, began); err == nil {
		m.changed = 0
	}
}

func (m *Merger) apply(p *plan, changed int, began time.Time) error {
	mesh := &config.Mesh{Config: p.cfg, Endpoints: maps.Clone(p.sets), Revision: p.revision}
	if err := m.o.Apply(mesh); err != nil {
		m.o.Observer.Refused(err)
		return err
	}
	m.o.Observer.Applied(mesh, changed, time.Since(began))
	return nil
}

func (m *Merger) first() error {
	if err := m.apply(m.plan, len(m.plan.sets), time.Now()); err != nil {
		return err
	}
	m.applied, m.changed = true, 0
	m.checkReady()
	return nil
}

func (m *Merger) checkReady() {
	if !m.isReady && m.applied && (m.plan.waiting == 0 || m.expired) {
		m.isReady = true
		close(m.ready)
	}
}

// publish makes the list for Waiting, when it changed.
func (m *Merger) publish() {
	if !m.plan.moved && m.waiting.Load() != nil {
		return
	}
	m.plan.moved = false
	var all []Wait
	if m.plan.waiting > 0 {
		for _, name := range slices.Sorted(maps.Keys(m.plan.members)) {
			all = append(all, m.plan.members[name].pending...)
		}
	}
	m.waiting.Store(&all)
}
