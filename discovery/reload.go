package discovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

// reload brings in another configuration, or leaves everything as it was.
func (m *Merger) reload(ctx context.Context, cfg *config.Config) error {
	began := time.Now()
	m.buildDirty(ctx)
	p, opened, err := m.prepare(cfg)
	if err != nil {
		m.o.Observer.Refused(err)
		return err
	}
	changed := 0
	for _, mb := range p.members {
		if c, _ := p.build(mb, m.feeds, began, cfg.Discovery.ReadyWait); c {
			changed++
		}
	}
	if err := m.apply(p, m.changed+changed, began); err != nil {
		return err
	}
	m.setGate(m.plan.cfg, p.cfg)
	m.plan, m.changed = p, 0
	m.syncFeeds(ctx, opened)
	m.decideAll(ctx)
	m.publish()
	return nil
}

// prepare lays out a configuration and opens the sources that it needs and that do not run yet.
func (m *Merger) prepare(cfg *config.Config) (*plan, map[string]*feed, error) {
	p, err := newPlan(cfg, m.plan)
	if err != nil {
		return nil, nil, err
	}
	opened := make(map[string]*feed)
	var errs []error
	for key := range p.feedKeys() {
		reg := p.cfg.Registries[key]
		name := key
		if key == resolverKey {
			name = "resolver"
			reg = &config.Registry{Name: name, DNS: &config.DNSRegistry{}}
		}
		if f := m.feeds[key]; f != nil && sameRegistry(f.reg, reg) {
			opened[key] = f
			continue
		}
		src, err := m.o.Open(reg)
		if err != nil {
			errs = append(errs, fmt.Errorf("registries.%s: %w", name, err))
			continue
		}
		if g, ok := src.(Gated); ok && m.o.Gate != nil {
			g.Gate(m.o.Gate.Wait)
		}
		opened[key] = &feed{key: key, name: name, reg: reg, source: src, sets: make(map[string]*known)}
	}
	return p, opened, errors.Join(errs...)
}

// syncFeeds makes next the sources that run: new ones take over the last good answers of those they replace.
func (m *Merger) syncFeeds(ctx context.Context, next map[string]*feed) {
	now := time.Now()
	for key, old := range m.feeds {
		f := next[key]
		if f == old {
			continue
		}
		if old.stop != nil {
			old.stop()
		}
		if f == nil {
			m.o.Observer.Closed(old.name)
			continue
		}
		for name, k := range old.sets {
			f.sets[name] = &known{
				raw: k.list, list: k.list, answered: k.answered, stale: true, since: now, carried: true,
				err: "the registry's configuration changed",
			}
			m.touchUsers(ask{feed: key, name: name})
		}
	}
	m.feeds = next
	if !m.applied {
		for _, mb := range m.plan.members {
			m.touch(mb)
		}
	}
	m.want(ctx)
}

// want tells every source what it is asked for, and starts those that are asked for the first time.
func (m *Merger) want(ctx context.Context) {
	for a := range m.watched {
		if len(m.plan.users[a]) == 0 {
			delete(m.watched, a)
		}
	}
	wants := m.plan.wants()
	for key, f := range m.feeds {
		names := wants[key]
		if f.stop == nil && len(names) == 0 {
			continue
		}
		if f.want(names) {
			m.o.Observer.Well(f.name)
		}
		m.recall(ctx, f)
		if f.stop == nil {
			var fctx context.Context
			fctx, f.stop = context.WithCancel(ctx)
			m.running.Go(func() { f.run(fctx, m.updates) })
		}
	}
}
