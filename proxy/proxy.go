// Package proxy is the data plane: listeners, the snapshot in force, connection pools and what runs beside the exchanges
// (probes, sweeps, drain). It owns every socket. Configuration comes in through Apply, one mesh after the other; the
// engines below it serve connections. Tests: applies over real loopback sockets, and the end-to-end tests of e2e.
package proxy

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/h2"
	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
	"github.com/sidecar-mesh/sidecar/proxy/upstream"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/route"
	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// Options is what a proxy needs. Recorder and Log must be set.
type Options struct {
	Recorder *telemetry.Recorder
	Log      *slog.Logger
	Seed     uint64             // random: where round robin starts
	Scripts  route.ScriptEngine // nil: script rules are refused
	// Left is told of an endpoint that said that it leaves. It must not block; nil: nobody is told.
	Left func(service, endpoint string)
	// Leaving is told of an endpoint that said that it leaves. It must not block; nil: nobody is told.
	Leaving func(service, endpoint string)
	// Failing is told of an endpoint that outlier detection takes out, or should, each time; nil: nobody is. It must not block.
	Failing func(service, endpoint string)
	// App is told when the app behind an inbound service becomes well or ill, for the first time too. It must not block; nil:
	// nobody is told.
	App func(service string, well bool, why string)
}

// Proxy is the data plane of one process.
type Proxy struct {
	o         Options
	store     snapshot.Store
	watcher   *netio.Watcher
	conns     atomic.Int64 // downstream connections
	maxConn   atomic.Int64
	windows   *h2.WindowMemory
	moderator *netio.Moderator

	mu        sync.Mutex           // guards what follows; held by Apply and Drain
	listeners map[string]*listener // by address
	retired   []*listener          // closed ones whose connections may go on
	stopping  map[telemetry.Direction]bool
	leaving   time.Time      // when we will be gone, since Leave was called
	done      sync.WaitGroup // goroutines of listeners and connections

	journalMu sync.Mutex
	journal   []SwitchEntry // of switches; guarded by journalMu

	sickMu sync.Mutex
	sick   map[sickKey]struct{} // services with ejected endpoints; guarded by sickMu
	wake   chan struct{}        // tells Run that there is more to do

	apps apps

	noticeMu sync.Mutex
	notices  map[*resilience.EndpointHealth]notice // endpoints that said they leave; guarded by noticeMu

	endingsMu sync.Mutex
	endings   []snapshot.Ending // rules that will act no more; guarded by endingsMu
}

type sickKey struct {
	inbound bool
	name    string
}

// New returns a proxy that serves nothing yet.
func New(o Options) (*Proxy, error) {
	w, err := netio.NewWatcher()
	if err != nil {
		return nil, err
	}
	windows := h2.NewWindowMemory(0)
	moderator := netio.NewModerator(h2.ModerateTick)
	o.Recorder.WindowMemory(windows.Used)
	o.Recorder.Moderated(moderator.Turns)
	return &Proxy{
		o: o, watcher: w, windows: windows, moderator: moderator, listeners: map[string]*listener{}, stopping: map[telemetry.Direction]bool{},
		sick: map[sickKey]struct{}{}, wake: make(chan struct{}, 1), notices: map[*resilience.EndpointHealth]notice{},
		apps: apps{running: map[string]*appProbe{}},
	}, nil
}

// Snapshot returns what is in force, nil before the first Apply.
func (p *Proxy) Snapshot() *snapshot.Snapshot { return p.store.Load() }

// Run does what has to be done beside the exchanges until ctx ends: probes of ejected endpoints, the return of those that
// did not leave after all, the end of rules that act for a while, asking our own apps, and closing what was idle for too long.
func (p *Proxy) Run(ctx context.Context) error {
	var probes sync.WaitGroup
	defer probes.Wait()
	defer p.stopApps()
	p.runApps(ctx)
	sweep := time.NewTicker(upstream.SweepEvery)
	defer sweep.Stop()
	probe := time.NewTimer(time.Hour)
	defer probe.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
			p.sweep()
			p.sweepRetired(time.Now())
		case <-p.wake:
			probe.Reset(0)
		case now := <-probe.C:
			if next := soonest(soonest(p.probe(ctx, now, &probes), p.endNotices(now)), p.endRules(now)); !next.IsZero() {
				probe.Reset(max(time.Millisecond, time.Until(next)))
			}
		}
	}
}

// sweep closes idle upstream connections.
func (p *Proxy) sweep() {
	s := p.store.Load()
	if s == nil {
		return
	}
	each(s, func(e *snapshot.Endpoint) { poolOf(e).Sweep() })
}

// sweepRetired closes the idle connections of listeners that are closed: they were told to end with their next answer, but
// may never be asked again.
func (p *Proxy) sweepRetired(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.retired {
		for _, t := range l.targets() {
			t.closeIdle(now)
		}
	}
	for _, l := range p.listeners {
		for _, t := range l.former {
			t.closeIdle(now)
		}
	}
}

// each visits every endpoint of a snapshot.
func each(s *snapshot.Snapshot, f func(*snapshot.Endpoint)) {
	for _, d := range []*snapshot.Directory{s.Outbound, s.Inbound, s.Aside} {
		for _, svc := range d.List {
			for _, e := range svc.Endpoints {
				f(e)
			}
		}
	}
}

// pipeline returns a pipeline for one direction, and with a name for one service alone.
func (p *Proxy) pipeline(dir telemetry.Direction, service string) *pipeline.Pipeline {
	return &pipeline.Pipeline{
		Store: &p.store, Direction: dir, Recorder: p.o.Recorder, Observer: p, Service: service,
	}
}

// abortUntil ends all connections until they are gone: one that has just been accepted, or is being looked at to tell its
// protocol, may come to a server only later.
func (p *Proxy) abortUntil(gone <-chan struct{}) {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		p.mu.Lock()
		for _, l := range p.retired {
			for _, t := range l.targets() {
				t.abort()
			}
		}
		p.mu.Unlock()
		select {
		case <-gone:
			return
		case <-again.C:
		}
	}
}

// Close ends everything at once and waits for it.
func (p *Proxy) Close() {
	p.mu.Lock()
	for _, l := range p.listeners {
		l.stop()
		p.retired = append(p.retired, l)
	}
	p.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		p.done.Wait()
		close(gone)
	}()
	p.abortUntil(gone)
	if s := p.store.Load(); s != nil {
		each(s, func(e *snapshot.Endpoint) { poolOf(e).Close() })
	}
	p.watcher.Close()
}
