package discovery_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
	"github.com/sidecar-mesh/sidecar/discovery/guard"
)

// catalog is a registry whose list of a service changes all the time, and that counts what it serves.
type catalog struct {
	version atomic.Int64
	bytes   atomic.Int64
	changed atomic.Pointer[chan struct{}]
}

const listBytes = 10_000

func newCatalog() *catalog {
	c := new(catalog)
	ch := make(chan struct{})
	c.changed.Store(&ch)
	return c
}

func (c *catalog) flap() {
	c.version.Add(1)
	ch := make(chan struct{})
	close(*c.changed.Swap(&ch))
}

// watcher is one sidecar: blocking queries, as Consul's are, held back by its gate.
type watcher struct {
	c    *catalog
	gate *discovery.Gate
	seen atomic.Int64
}

func (w *watcher) run(ctx context.Context) {
	for first := true; ; first = false {
		if !first && w.gate.Wait(ctx) != nil {
			return
		}
		for { // the query: answers when there is something new
			ch := *w.c.changed.Load()
			if v := w.c.version.Load(); v != w.seen.Load() {
				w.c.bytes.Add(listBytes)
				w.seen.Store(v)
				break
			}
			select {
			case <-ch:
			case <-ctx.Done():
				return
			}
		}
	}
}

// TestGateHoldsBackTheStorm: 1000 sidecars watch a service that flaps once a second. Closed, the gate cuts what the
// registry serves to about a tenth, and within ten epochs all know what was changed before; opened, all do in 10 s (S-40).
func TestGateHoldsBackTheStorm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const sidecars = 1000
		c := newCatalog()
		c.version.Store(1)
		ctx, cancel := context.WithCancel(t.Context())
		var all []*watcher
		for i := range sidecars {
			w := &watcher{c: c, gate: discovery.NewGate(fmt.Sprintf("shop-%04d", i), nil)}
			all = append(all, w)
			go w.run(ctx)
		}
		flapping := func(d time.Duration) (bytes int64) {
			before := c.bytes.Load()
			for range d / time.Second {
				c.flap()
				time.Sleep(time.Second)
			}
			return c.bytes.Load() - before
		}
		set := func(v guard.Gate) {
			for _, w := range all {
				w.gate.Set(v, "test")
			}
		}
		behind := func(version int64) (n int) {
			synctest.Wait()
			for _, w := range all {
				if w.seen.Load() < version {
					n++
				}
			}
			return n
		}
		open := flapping(time.Minute)
		if want := int64(60 * sidecars * listBytes); open != want {
			t.Errorf("open: %d bytes, want %d", open, want)
		}
		gate := guard.Gate{Closed: true, Share: 0.1, Epoch: 30 * time.Second}
		set(gate)
		flapping(30 * time.Second) // everybody has one query under way that still answers
		v := c.version.Load()
		closed := flapping(10 * gate.Epoch)
		if ratio := float64(closed) / float64(5*open); ratio < 0.08 || ratio > 0.13 {
			t.Errorf("closed: %.3f of the bytes", ratio)
		}
		if n := behind(v); n > 0 {
			t.Errorf("%d of %d do not know after ten epochs", n, sidecars)
		}
		set(guard.Gate{})
		v = c.version.Load()
		time.Sleep(10 * time.Second)
		if n := behind(v); n > 0 {
			t.Errorf("%d of %d do not know 10 s after the gate was opened", n, sidecars)
		}
		cancel()
		synctest.Wait()
	})
}

func TestGateState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told []bool
		g := discovery.NewGate("a", func(s discovery.GateState) { told = append(told, s.Closed) })
		if s := g.State(); !s.Turn || s.Closed || g.Wait(t.Context()) != nil {
			t.Errorf("%+v", s)
		}
		v := guard.Gate{Closed: true, Share: 0.01, Epoch: time.Minute}
		g.Set(v, "me")
		g.Set(v, "you")
		if s := g.State(); s.By != "you" || !s.Closed || len(told) != 1 {
			t.Errorf("%+v, told %v", s, told)
		}
		if g.State().Turn {
			time.Sleep(time.Minute)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- g.Wait(ctx) }()
		synctest.Wait()
		if s := g.State(); s.Waiting != 1 || s.Turn || !s.Until.After(time.Now()) {
			t.Errorf("%+v", s)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		go func() { done <- g.Wait(t.Context()) }()
		synctest.Wait()
		g.Set(guard.Gate{}, "me")
		if err := <-done; err != nil || len(told) != 2 {
			t.Errorf("%v, told %v", err, told)
		}
		if s := g.State(); s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// gatedFake notes the gate that it is given.
type gatedFake struct {
	*fake
	wait func(context.Context) error
}

func (g *gatedFake) Gate(wait func(context.Context) error) { g.wait = wait }

// TestConfiguredGate: sources are given the gate, and the configuration sets it when it says something else than before.
func TestConfiguredGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &gatedFake{fake: newFake()}
		g := discovery.NewGate("a", nil)
		m := discovery.New(discovery.Options{
			Open:  func(*config.Registry) (discovery.Source, error) { return src, nil },
			Apply: func(*config.Mesh) error { return nil }, Gate: g,
		})
		with := func(v config.UpdateGate) *config.Config {
			c := guarded(map[string][]string{"a": {"x"}})
			c.Discovery.UpdateGate = v
			return c
		}
		gate := func(enabled bool) config.UpdateGate {
			g := config.Default().Discovery.UpdateGate
			g.Enabled.Value = enabled
			return g
		}
		closed := gate(true)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = m.Run(ctx, with(closed)) }()
		time.Sleep(2 * time.Second)
		synctest.Wait() // what Run wrote is seen here
		if src.wait == nil || !g.State().Closed || g.State().By != "configuration" {
			t.Errorf("%t, %+v", src.wait != nil, g.State())
		}
		g.Set(guard.Gate{}, "admin")
		if err := m.SetConfig(ctx, with(closed)); err != nil || g.State().Closed {
			t.Errorf("%v: a reload that says nothing new has the last word", err)
		}
		if err := m.SetConfig(ctx, with(gate(false))); err != nil || g.State().By != "configuration" {
			t.Errorf("%v %+v", err, g.State())
		}
	})
}
