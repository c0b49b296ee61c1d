package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

const (
	appEvery  = 500 * time.Millisecond // how often we look whether the app is still there
	appQuiet  = 2 * time.Second        // without any call of the app, before it counts as gone
	quitBound = 5 * time.Second        // for what is in flight when the process is told to quit
)

// life is how the process ends. Draining begins once and goes on to its end: the inbound side first, while the app may
// still call out; the outbound side when the app is gone, or no inbound service is configured, or time is running out.
type life struct {
	p       *process
	initial *config.Config

	asked    atomic.Bool // to drain; it may have to wait for a lease
	began    atomic.Bool
	cut      atomic.Int64
	done     chan struct{} // closed when nothing is left, or the time is over
	quitting chan struct{} // closed by quit
	once     sync.Once     // of quit
	mu       sync.Mutex
	cancel   context.CancelFunc // of the drain; guarded by mu, nil before it began
}

func newLife(p *process, initial *config.Config) *life {
	return &life{p: p, initial: initial, done: make(chan struct{}), quitting: make(chan struct{})}
}

// begin starts to drain, unless that has begun.
func (l *life) begin(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked.Swap(true) {
		return
	}
	cfg := l.initial
	if s := l.p.proxy.Snapshot(); s != nil {
		cfg = s.Mesh.Config
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	wait := needed(cfg)
	l.began.Store(!wait)
	go func() {
		defer close(l.done)
		defer cancel()
		if wait {
			l.lease(ctx, cfg)
			l.began.Store(true)
		}
		l.p.rec.Events().Add(telemetry.Event{Kind: telemetry.EventDrain, To: "draining", By: why})
		start := time.Now()
		ctx, over := context.WithTimeout(ctx, cfg.Limits.DrainTimeout)
		defer over()
		l.drain(ctx, cfg, start)
		l.p.rec.Events().Add(telemetry.Event{
			Kind: telemetry.EventDrain, From: "draining", To: "drained",
			Detail: fmt.Sprintf("took %s, %s cut off", time.Since(start).Round(time.Millisecond), plural(int(l.cut.Load()), "connection")),
		})
	}()
}

// lease waits for the leave of others to go, unless we are told to quit: until then we serve as ever.
func (l *life) lease(ctx context.Context, cfg *config.Config) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-l.quitting:
			cancel()
		case <-ctx.Done():
		}
	}()
	l.p.leases.take(ctx, cfg)
}

// forGood reports whether the process was told to quit: its work is done.
func (l *life) forGood() bool {
	select {
	case <-l.quitting:
		return true
	default:
		return false
	}
}

// quit drains in a hurry, and lets the process end then.
func (l *life) quit() {
	l.once.Do(func() { close(l.quitting) })
	l.begin("quit")
	l.mu.Lock()
	defer l.mu.Unlock()
	time.AfterFunc(quitBound, l.cancel)
}

// stop ends draining at once and waits for that.
func (l *life) stop() {
	l.mu.Lock()
	cancel := l.cancel
	l.mu.Unlock()
	if cancel != nil {
		cancel()
		<-l.done
	}
}

// drain ends both sides.
func (l *life) drain(ctx context.Context, cfg *config.Config, start time.Time) {
	var sides sync.WaitGroup
	side := func(dir telemetry.Direction) {
		l.cut.Add(int64(l.p.proxy.Drain(ctx, dir, l.grace(cfg))))
	}
	l.p.proxy.Leave(start.Add(cfg.Limits.DrainTimeout))
	timeout := cfg.Limits.DrainTimeout
	reserve := start.Add(timeout - min(5*time.Second, timeout/4))
	sides.Go(func() {
		l.leave(ctx, reserve)
		side(telemetry.Inbound)
	})
	if len(cfg.Inbound) > 0 {
		l.awaitApp(ctx, cfg, reserve)
	}
	side(telemetry.Outbound)
	sides.Wait()
}

// grace is how long connections are still taken: not at all when we are told to quit.
func (l *life) grace(cfg *config.Config) time.Duration {
	if l.forGood() {
		return 0
	}
	return cfg.Limits.DrainGrace
}

// awaitApp waits until the app is gone: none of its addresses takes a connection any more, and no call of it is in flight or
// was begun for a while. It ends at the latest at until, when ctx ends, or when the process is told to quit.
func (l *life) awaitApp(ctx context.Context, cfg *config.Config, until time.Time) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	l.awaitQuiet(ctx, telemetry.Outbound, appQuiet, appEvery, func() bool { return listening(ctx, cfg.Inbound) })
}

// awaitQuiet waits until there was no call of a direction, and nothing else busy, for as long as quiet; it looks every so often.
// It ends when ctx ends or when the process is told to quit.
func (l *life) awaitQuiet(ctx context.Context, d telemetry.Direction, quiet, every time.Duration, busy func() bool) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	quietSince, calls := time.Now(), l.calls(d)
	for {
		here := busy()
		if now := l.calls(d); here || now.active || now.ended != calls.ended {
			quietSince, calls = time.Now(), now
		}
		if time.Since(quietSince) >= quiet {
			return
		}
		select {
		case <-tick.C:
		case <-l.quitting:
			return
		case <-ctx.Done():
			return
		}
	}
}

// calls of one direction.
type calls struct {
	ended  uint64
	active bool
}

func (l *life) calls(dir telemetry.Direction) calls {
	var c calls
	for _, s := range l.p.rec.Stats() {
		if s.Direction == dir {
			c.ended += s.Requests + s.Connections
			c.active = c.active || s.InFlight > 0
		}
	}
	return c
}

// listening reports whether an app still takes connections.
func listening(ctx context.Context, inbound []*config.Inbound) bool {
	d := net.Dialer{Timeout: appEvery}
	for _, in := range inbound {
		network, address := "tcp", in.App
		if path, ok := strings.CutPrefix(address, "unix:"); ok {
			network, address = "unix", path
		}
		if c, err := d.DialContext(ctx, network, address); err == nil {
			_ = c.Close()
			return true
		}
	}
	return false
}
