package discovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

// Options says how a Merger works. Open and Apply are required.
type Options struct {
	// Open makes the source of a registry: cheap, without I/O, owning nothing until Run is called (what is opened for a
	// configuration that is then refused is dropped). The registry that resolves names where none is configured is named
	// "resolver" and has a zero DNS member. An error refuses the configuration.
	Open func(*config.Registry) (Source, error)
	// Apply compiles and puts in force. It is called from the merger's goroutine only, one mesh at a time; an error keeps
	// what was in force.
	Apply func(*config.Mesh) error
	// Observer may be nil.
	Observer Observer
	// Check asks an endpoint directly whether it lives, within the probe's timeout; several run at a time. nil: all live.
	Check func(context.Context, Check) error
	// Memory may be nil: then nothing survives a restart.
	Memory Memory
	// Gate may be nil: then no pull is ever suspended. The configuration sets it, when it says something else than before.
	Gate *Gate
	// Quiet is how long the sources must be silent before a change is applied (default 50 ms), Max how long a change waits
	// at most (default 500 ms).
	Quiet, Max time.Duration
	// FirstWait bounds the wait for the first Apply (default 1 s, never more than discovery.ready_wait): services that have
	// answered by then are served although others have not (S-26). Ready still waits for those.
	FirstWait time.Duration
}

// Merger is the one writer of the mesh. Make it with New, run it with Run, once.
type Merger struct {
	// Set by New, then read-only.
	o       Options
	updates chan report
	reloads chan reload
	checks  chan checked
	tips    chan tip
	ready   chan struct{}
	done    chan struct{}
	slots   chan struct{} // of checks that run

	waiting atomic.Pointer[[]Wait]

	// Owned by Run's goroutine.
	plan    *plan
	feeds   map[string]*feed
	running sync.WaitGroup    // the goroutines of the feeds and of checks
	watched map[ask]time.Time // lists with something that depends on time: when to decide again; zero: after a check
	dirty   map[*member]struct{}
	since   time.Time // of the oldest change that is not built; zero: none
	changed int       // sets that changed and are not applied
	applied bool
	expired bool // ready_wait is over
	isReady bool
}

type reload struct {
	cfg   *config.Config
	reply chan<- error
}

// New makes a merger that does nothing yet.
func New(o Options) *Merger {
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	if o.Quiet <= 0 {
		o.Quiet = 50 * time.Millisecond
	}
	if o.Max <= 0 {
		o.Max = 500 * time.Millisecond
	}
	if o.FirstWait <= 0 {
		o.FirstWait = time.Second
	}
	return &Merger{
		o:       o,
		updates: make(chan report),
		reloads: make(chan reload),
		checks:  make(chan checked),
		tips:    make(chan tip, maxTips),
		slots:   make(chan struct{}, maxChecks),
		watched: make(map[ask]time.Time),
		ready:   make(chan struct{}),
		done:    make(chan struct{}),
		feeds:   make(map[string]*feed),
		dirty:   make(map[*member]struct{}),
	}
}

// Ready is closed when the first mesh is in force and either all sources have answered for all services, or
// discovery.ready_wait is over (S-49).
func (m *Merger) Ready() <-chan struct{} { return m.ready }

// Waiting lists what has not answered yet, by service; for "not ready: waiting for X". The slice is read-only.
func (m *Merger) Waiting() []Wait {
	if w := m.waiting.Load(); w != nil {
		return *w
	}
	return nil
}

// ErrStopped is what SetConfig returns when the merger has stopped.
var ErrStopped = errors.New("discovery: the merger has stopped")

// SetConfig replaces the configuration: sources of registries that did not change keep running, and a service keeps the
// endpoints it has until new sources have answered. It returns what Apply says about the result; on an error everything
// is as before. cfg belongs to the merger from here on and is never written to. It waits for the first mesh to be in force,
// and for ctx at most; when ctx ends first, the configuration may still come in force.
func (m *Merger) SetConfig(ctx context.Context, cfg *config.Config) error {
	reply := make(chan error, 1)
	select {
	case m.reloads <- reload{cfg: cfg, reply: reply}:
	case <-m.done:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-reply:
		return err
	case <-m.done:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run serves cfg until ctx is done, then returns nil when all sources have ended. It returns an error at once when the
// first configuration is refused. cfg belongs to the merger and is never written to.
func (m *Merger) Run(ctx context.Context, cfg *config.Config) error {
	defer close(m.done)
	defer m.running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	p, opened, err := m.prepare(cfg)
	if err != nil {
		return err
	}
	m.plan = p
	m.setGate(nil, p.cfg)
	m.syncFeeds(ctx, opened)
	m.buildDirty(ctx)
	m.publish()
	if p.waiting == 0 && !m.proving() {
		if err := m.first(); err != nil {
			return err
		}
	}
	return m.loop(ctx)
}

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
		if !m.applied && ((m.plan.waiting == 0 && m.since.IsZero() && !m.proving()) || now.Sub(began) >= firstWait) {
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

// admit takes an answer into what is known and marks the services it concerns. It reports whether anything changed. The
// guard of the list compares it with what was known before anyone sees it.
func (m *Merger) admit(ctx context.Context, r report) bool {
	f := r.from
	if m.feeds[f.key] != f {
		return false // of a source that was replaced
	}
	if r.Service == "" {
		m.o.Observer.Failed(f.name, "", r.Err)
		changed := false
		for _, name := range f.wanted {
			changed = m.failed(ctx, f, name, r.Err) || changed
		}
		return changed
	}
	a := ask{feed: f.key, name: r.Service}
	if len(m.plan.users[a]) == 0 {
		return false // no longer wanted
	}
	if r.Err != nil {
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

// failed notes that an attempt went wrong; only the first failure in a row changes what is shown.
func (m *Merger) failed(ctx context.Context, f *feed, name string, err error) bool {
	k := f.sets[name]
	if k == nil {
		k = &known{}
		f.sets[name] = k
	}
	if k.stale {
		text := "not heard since the start, endpoints are those of the disk: " + err.Error()
		if !k.restored || k.err == text {
			return false
		}
		k.err = text
		m.touchUsers(ask{feed: f.key, name: name})
		return true
	}
	k.stale, k.since, k.err = true, time.Now(), err.Error()
	k.guard.Failed()
	a := ask{feed: f.key, name: name}
	m.touchUsers(a)
	m.decide(ctx, k.since, a)
	return true
}

func (m *Merger) touchUsers(a ask) {
	for mb := range m.plan.users[a] {
		m.touch(mb)
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
		f.want(names)
		m.recall(ctx, f)
		if f.stop == nil {
			var fctx context.Context
			fctx, f.stop = context.WithCancel(ctx)
			m.running.Go(func() { f.run(fctx, m.updates) })
		}
	}
}
