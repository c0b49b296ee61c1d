package demo

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
	"github.com/sidecar-mesh/sidecar/proxy"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// pace is how fast the story goes.
type pace struct {
	phase, breath               time.Duration // how long traffic is watched
	eject, probe, sleep, perTry time.Duration // of the policies
	slow                        time.Duration // of an endpoint that has become slow
}

func paceOf(short bool) pace {
	p := pace{
		phase: 5 * time.Second, breath: 2 * time.Second,
		eject: 3 * time.Second, probe: 500 * time.Millisecond, sleep: time.Second,
		perTry: 300 * time.Millisecond, slow: 3 * time.Second,
	}
	if short {
		p.phase, p.breath = 800*time.Millisecond, 200*time.Millisecond
		p.eject, p.probe, p.sleep = 400*time.Millisecond, 100*time.Millisecond, 250*time.Millisecond
	}
	return p
}

// stage is everything that plays a part: endpoints, the proxy before them, the app that calls through it.
type stage struct {
	*story

	pace                      pace
	catalog, search, payments []*toy
	canary                    *toy
	address                   string // of the proxy
	file                      string // its configuration
	rec                       *telemetry.Recorder
	proxy                     *proxy.Proxy
	merger                    *discovery.Merger
	app                       *caller
	doomed                    int    // calls of payments that failed while it was dead
	gone                      uint64 // calls of the catalog that were counted for routes that are gone

	stop    context.CancelFunc
	running sync.WaitGroup // merger and proxy
}

// open starts everything.
func (s *stage) open(ctx context.Context) error {
	for _, service := range []struct {
		list  *[]*toy
		names string
		delay time.Duration
	}{
		{&s.catalog, "catalog-1 catalog-2 catalog-3", 2 * time.Millisecond},
		{&s.search, "search-1 search-2", 5 * time.Millisecond},
		{&s.payments, "payments-1 payments-2", time.Millisecond},
	} {
		for _, name := range strings.Fields(service.names) {
			t, err := newToy(ctx, name, service.delay)
			if err != nil {
				return err
			}
			*service.list = append(*service.list, t)
		}
	}
	var err error
	if s.canary, err = newToy(ctx, "catalog-canary", 2*time.Millisecond); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sidecar-demo-")
	if err != nil {
		return err
	}
	s.file = filepath.Join(dir, "sidecar.yaml")
	quiet := slog.New(slog.DiscardHandler)
	if s.rec, err = telemetry.New(telemetry.Options{Log: quiet}); err != nil {
		return err
	}
	if s.proxy, err = proxy.New(proxy.Options{Recorder: s.rec, Log: quiet, Seed: rand.Uint64()}); err != nil {
		return err
	}
	return s.serve(ctx)
}

// tries is how many free ports are tried: somebody else may be quicker to take one.
const tries = 5

// serve puts the first configuration in force.
func (s *stage) serve(ctx context.Context) error {
	ctx, s.stop = context.WithCancel(ctx)
	var err error
	for range tries {
		if s.address, err = freePort(); err != nil {
			return err
		}
		var cfg *config.Config
		if cfg, err = s.load(s.document()); err != nil {
			return err
		}
		s.merger = discovery.New(discovery.Options{Open: openNowhere, Apply: s.proxy.Apply})
		ended := make(chan error, 1)
		s.running.Go(func() { ended <- s.merger.Run(ctx, cfg) })
		select {
		case <-s.merger.Ready():
			s.running.Go(func() { _ = s.proxy.Run(ctx) })
			s.app = newCaller(s.address)
			return nil
		case err = <-ended:
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return err
}

// nowhere is where endpoints come from that the document does not name: there are none.
type nowhere struct{}

// Run implements discovery.Source.
func (nowhere) Run(ctx context.Context, _ <-chan []string, _ func(discovery.Update)) error {
	<-ctx.Done()
	return nil
}

func openNowhere(*config.Registry) (discovery.Source, error) { return nowhere{}, nil }

func freePort() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// load writes a configuration to its file and reads it, as an edit does.
func (s *stage) load(text string) (*config.Config, error) {
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return config.Load([]string{s.file}, os.LookupEnv)
}

// reload puts a configuration in force, or leaves everything as it was.
func (s *stage) reload(ctx context.Context, text string) error {
	cfg, err := s.load(text)
	if err != nil {
		return err
	}
	return s.merger.SetConfig(ctx, cfg)
}

// close ends everything.
func (s *stage) close() error {
	var err error
	if s.app != nil {
		s.app.client.CloseIdleConnections()
	}
	if s.stop != nil {
		s.stop()
	}
	if s.proxy != nil {
		s.proxy.Close()
	}
	s.running.Wait()
	if s.rec != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err = s.rec.Close(ctx)
		cancel()
	}
	for _, list := range [][]*toy{s.catalog, s.search, s.payments} {
		for _, t := range list {
			t.kill()
		}
	}
	if s.canary != nil {
		s.canary.kill()
	}
	if s.file != "" {
		err = errors.Join(err, os.RemoveAll(filepath.Dir(s.file)))
	}
	return err
}

// event waits for an event and returns it; is says which one, and events before the mark do not count.
func (s *stage) event(ctx context.Context, mark time.Time, is func(telemetry.Event) bool) (e telemetry.Event, found bool) {
	found = until(ctx, patience, func() bool {
		e, found = s.happened(mark, is)
		return found
	})
	return e, found
}

func (s *stage) happened(mark time.Time, is func(telemetry.Event) bool) (telemetry.Event, bool) {
	for _, e := range s.rec.Events().Snapshot() {
		if e.Time.After(mark) && is(e) {
			return e, true
		}
	}
	return telemetry.Event{}, false
}

func ejected(t *toy) func(telemetry.Event) bool {
	return func(e telemetry.Event) bool { return e.Kind == telemetry.EventEjected && e.Endpoint == t.address }
}

func readmitted(t *toy) func(telemetry.Event) bool {
	return func(e telemetry.Event) bool { return e.Kind == telemetry.EventReadmitted && e.Endpoint == t.address }
}

func breakerIs(state string) func(telemetry.Event) bool {
	return func(e telemetry.Event) bool { return e.Kind == telemetry.EventBreaker && e.To == state }
}

// counters adds up what the proxy counted for a service.
func (s *stage) counters(service string) (sum telemetry.SeriesStats) {
	for _, v := range s.rec.Stats() {
		if v.Service == service {
			sum.Requests += v.Requests
			sum.Attempts += v.Attempts
			sum.Retries += v.Retries
		}
	}
	return sum
}
