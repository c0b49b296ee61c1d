package h1_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
	"github.com/sidecar-mesh/sidecar/proxy/h1"
	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
	"github.com/sidecar-mesh/sidecar/proxy/upstream"
	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// patience bounds every wait of a test: much longer than any takes on a busy machine.
const patience = time.Minute

// rig is server, pipeline and transport on loopback, in front of origins that a test scripts.
type rig struct {
	t       testing.TB
	server  *h1.Server
	pipe    *pipeline.Pipeline
	watcher *netio.Watcher
	store   *snapshot.Store
	rec     *telemetry.Recorder
	ln      net.Listener
	done    sync.WaitGroup
}

type setup struct {
	config    string // YAML, with ORIGIN for the address of each origin in turn
	origins   []string
	direction telemetry.Direction
	log       io.Writer // of access log lines; nil: none
	limits    func(*h1.Limits)
}

// newRig starts a rig; it ends with the test.
func newRig(t testing.TB, s setup) *rig {
	t.Helper()
	snap := meshtest.Compile(t, s.config, s.origins...)
	o := telemetry.Options{}
	if s.log != nil {
		o.Stdout, o.AccessLog = s.log, telemetry.AccessLog{To: "stdout", Format: "json"}
	}
	r := &rig{t: t, store: new(snapshot.Store)}
	var err error
	if r.rec, err = telemetry.New(o); err != nil {
		t.Fatal(err)
	}
	if r.watcher, err = netio.NewWatcher(); err != nil {
		t.Fatal(err)
	}
	r.bind(snap)
	r.store.Swap(snap)
	l := &snap.Mesh.Config.Limits
	r.pipe = &pipeline.Pipeline{
		Store: r.store, Direction: s.direction, Recorder: r.rec, Observer: meshtest.Quiet{},
	}
	limits := h1.Limits{
		HeaderBytes: int(l.HeaderBytes), HeaderCount: l.HeaderCount, HeaderTimeout: l.HeaderTimeout, IdleTimeout: l.IdleTimeout,
		HalfClose: l.HalfClose,
	}
	if s.limits != nil {
		s.limits(&limits)
	}
	r.server = &h1.Server{Pipeline: r.pipe, Watcher: r.watcher}
	r.server.SetLimits(limits)
	r.listen()
	t.Cleanup(r.close)
	return r
}

// bind gives endpoints their pools.
func (r *rig) bind(snap *snapshot.Snapshot) {
	l := &snap.Mesh.Config.Limits
	meshtest.Bind(snap, r.rec, func(s *snapshot.Service, e *snapshot.Endpoint) {
		settings := upstream.Settings{MaxOpen: s.LimitConnections, MaxWaiting: s.LimitWaiting}
		e.Pool = h1.NewPool(upstream.New(e.Address, settings, r.watcher, nil), int(l.HeaderBytes), l.HeaderCount)
	})
}

func (r *rig) listen() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	r.ln = ln
	r.done.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			r.done.Go(func() { r.server.Serve(netio.New(nc), nil) })
		}
	})
}

func (r *rig) close() {
	_ = r.ln.Close()
	r.server.Abort()
	r.done.Wait()
	snap := r.store.Load()
	for _, d := range []*snapshot.Directory{snap.Outbound, snap.Inbound, snap.Aside} {
		for _, s := range d.List {
			for _, e := range s.Endpoints {
				e.Pool.(*h1.Pool).Close()
			}
		}
	}
	r.watcher.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.rec.Close(ctx); err != nil {
		r.t.Error(err)
	}
}

// dial connects a raw client.
func (r *rig) dial() *net.TCPConn { return dialTo(r.t, r.ln.Addr().String()) }

func dialTo(t testing.TB, address string) *net.TCPConn {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	return nc.(*net.TCPConn)
}

// newOrigin listens and has each connection served by serve, which owns it.
func newOrigin(t testing.TB, serve func(*net.TCPConn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]struct{}{}
	done.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[nc] = struct{}{}
			mu.Unlock()
			done.Go(func() {
				serve(nc.(*net.TCPConn))
				_ = nc.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for nc := range open {
			_ = nc.Close()
		}
		mu.Unlock()
		done.Wait()
	})
	return ln.Addr().String()
}
