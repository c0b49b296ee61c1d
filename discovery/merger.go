package discovery

import (
	"context"
	"errors"
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
	// FirstWait bounds the wait for the first Apply (default 1 s, never more than discovery.ready_wait). Once lists came and
	// no further one comes, services that have answered are served before that, although others have not (S-26). Ready still
	// waits for those.
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
	heard   time.Time // when the newest list came; zero: none has
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
