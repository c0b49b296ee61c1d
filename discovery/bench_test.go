package discovery

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

type idleSource struct{}

func (idleSource) Run(ctx context.Context, _ <-chan []string, _ func(Update)) error {
	<-ctx.Done()
	return nil
}

// answers makes the full set of one service, with the i-th endpoint's weight as given.
func answers(service, n, weight int) []*config.Endpoint {
	list := make([]*config.Endpoint, n)
	for k := range list {
		list[k] = &config.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d:8080", service%250, k/250, k%250), Weight: 1}
	}
	list[n/2].Weight = weight
	return list
}

// BenchmarkChange is the price of one changed endpoint at 10 000: admit, build and hand on, without compiling.
func BenchmarkChange(b *testing.B) {
	for _, shape := range []struct{ services, each int }{{1, 10_000}, {1000, 10}, {10_000, 1}} {
		b.Run(fmt.Sprintf("%dx%d", shape.services, shape.each), func(b *testing.B) {
			cfg := &config.Config{
				Discovery:  config.Discovery{ReadyWait: time.Second},
				Registries: map[string]*config.Registry{"x": {Name: "x", File: &config.FileRegistry{Path: "/x"}}},
				Services:   make(map[string]*config.Service),
			}
			for i := range shape.services {
				name := fmt.Sprint("s", i)
				cfg.Services[name] = &config.Service{Name: name, Registry: []string{"x"}}
			}
			changed := 0
			m := New(Options{
				Open:  func(*config.Registry) (Source, error) { return idleSource{}, nil },
				Apply: func(*config.Mesh) error { changed++; return nil },
			})
			ctx, cancel := context.WithCancel(b.Context())
			p, opened, err := m.prepare(cfg)
			if err != nil {
				b.Fatal(err)
			}
			m.plan = p
			m.syncFeeds(ctx, opened)
			f := m.feeds["x"]
			say := func(i int, list []*config.Endpoint) {
				m.admit(b.Context(), report{from: f, Update: Update{Service: fmt.Sprint("s", i), Endpoints: list}})
			}
			for i := range shape.services {
				say(i, answers(i, shape.each, 1))
			}
			m.buildDirty(ctx)
			if err := m.first(); err != nil || p.waiting != 0 {
				b.Fatal(err, p.waiting)
			}
			sets := [2][]*config.Endpoint{answers(0, shape.each, 2), answers(0, shape.each, 3)}
			b.ReportAllocs()
			b.ResetTimer()
			for n := range b.N {
				b.StopTimer()
				next := append([]*config.Endpoint(nil), sets[n%2]...)
				b.StartTimer()
				say(0, next)
				m.buildDirty(ctx)
				m.publish()
				m.flush(time.Now())
			}
			b.StopTimer()
			if changed != b.N+1 {
				b.Errorf("%d applies in %d changes", changed, b.N)
			}
			cancel()
			m.running.Wait()
		})
	}
}
