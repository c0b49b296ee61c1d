package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// Options is what a Server needs. All fields but Now must be set.
type Options struct {
	Process  Process
	Recorder *telemetry.Recorder
	Log      *slog.Logger
	Now      func() time.Time // nil: time.Now
}

// Server serves the API on the listeners of a configuration and follows when their addresses change.
type Server struct {
	// Set by New, then read-only.
	api api
	log *slog.Logger

	mu     sync.Mutex
	open   map[role]*listener // guarded by mu
	closed bool               // guarded by mu
	done   sync.WaitGroup     // goroutines that serve or stop
}

// role is what a listener is for.
type role struct{ field, address string }

type listener struct {
	net.Listener
	http *http.Server
}

// New returns a server without listeners.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Server{
		api:  api{process: o.Process, recorder: o.Recorder, metrics: o.Recorder.Handler(), now: o.Now, started: o.Now(), followers: new(atomic.Int32)},
		log:  o.Log,
		open: map[role]*listener{},
	}
}

// Change is a set of listeners that is ready to take the place of the one in force: Commit or Abort it.
type Change struct {
	s     *Server
	fresh map[role]*listener
	keep  map[role]bool
}

// Prepare opens what l asks for and is not open yet. Nothing is served there until Commit; the error names the field.
func (s *Server) Prepare(l *config.Listen) (*Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Change{s: s, fresh: map[role]*listener{}, keep: map[role]bool{}}
	var errs []error
	for _, w := range []struct {
		role
		table *table
	}{
		{role{"listen.admin", l.Admin}, s.api.full()},
		{role{"listen.health", l.Health}, s.api.health()},
		{role{"listen.metrics", l.Metrics}, s.api.scrape()},
	} {
		if w.address == "" {
			continue
		}
		c.keep[w.role] = true
		if s.open[w.role] != nil {
			continue
		}
		ln, err := net.Listen("tcp", w.address)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", w.field, err))
			continue
		}
		w.table.host = w.address
		c.fresh[w.role] = &listener{Listener: ln, http: s.server(w.table)}
	}
	if len(errs) > 0 {
		c.Abort()
		return nil, errors.Join(errs...)
	}
	return c, nil
}

// server bounds what a client can hold.
func (s *Server) server(h http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // gRPC health checks need it
	ending := make(chan struct{})
	server := &http.Server{
		Handler: h,
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), endingKey{}, ending)
		},
		Protocols:         protocols,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	server.RegisterOnShutdown(sync.OnceFunc(func() { close(ending) }))
	return server
}

type endingKey struct{}

// ending is closed when the listener of a request closes, so that an answer without an end does not hold that up. It is
// nil where there is no listener.
func ending(r *http.Request) <-chan struct{} {
	c, _ := r.Context().Value(endingKey{}).(chan struct{})
	return c
}

// Abort closes what Prepare opened.
func (c *Change) Abort() {
	for _, l := range c.fresh {
		_ = l.Close()
	}
}

// Commit serves the new listeners and closes those that are not wanted any more; requests in progress there finish.
func (c *Change) Commit() {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Abort()
		return
	}
	for r, l := range s.open {
		if !c.keep[r] {
			delete(s.open, r)
			s.done.Go(func() { l.stop(context.Background()) })
		}
	}
	for r, l := range c.fresh {
		s.open[r] = l
		s.done.Go(func() {
			if err := l.http.Serve(l.Listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
				s.log.Error("serving ended", "listener", r.field, "err", err)
			}
		})
	}
}

// stopTime is how long requests in progress may take when a listener is closed.
const stopTime = 2 * time.Second

func (l *listener) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	if l.http.Shutdown(ctx) != nil {
		_ = l.http.Close()
	}
}

// Close ends all listeners; requests in progress finish within a short time or until ctx ends.
func (s *Server) Close(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	for r, l := range s.open {
		delete(s.open, r)
		s.done.Go(func() { l.stop(ctx) })
	}
	s.mu.Unlock()
	s.done.Wait()
}
