package h2_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
	"github.com/sidecar-mesh/sidecar/proxy/h1"
	"github.com/sidecar-mesh/sidecar/proxy/h2"
	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
	"github.com/sidecar-mesh/sidecar/proxy/upstream"
	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// patience bounds every wait of a test: much longer than any takes on a busy machine.
const patience = time.Minute

// rig is servers of both versions on one listener, a pipeline and pools on loopback, in front of origins that a test
// scripts.
type rig struct {
	t       testing.TB
	server  *h2.Server
	http1   *h1.Server
	watcher *netio.Watcher
	store   *snapshot.Store
	rec     *telemetry.Recorder
	ln      net.Listener
	done    sync.WaitGroup
}

type setup struct {
	config  string   // YAML, with ORIGIN for the address of each origin in turn
	origins []string // their addresses
	log     io.Writer
	limits  func(*h2.Limits)
	pool    func(*upstream.Settings)
}

// plain2 and plain1 are services with one endpoint that speaks HTTP/2 and HTTP/1.
const (
	plain2 = "services: {svc: {protocol: http2, endpoints: [ORIGIN], policy: {breaker: none, outlier: none}}}\n"
	plain1 = "services: {svc: {protocol: http, endpoints: [ORIGIN], policy: {breaker: none, outlier: none}}}\n"
)

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
	l := &snap.Mesh.Config.Limits
	limits := h2.Limits{HeaderBytes: int(l.HeaderBytes), HeaderCount: l.HeaderCount, IdleTimeout: l.IdleTimeout}
	if s.limits != nil {
		s.limits(&limits)
	}
	r.bind(snap, limits, s.pool)
	r.store.Swap(snap)
	pipe := &pipeline.Pipeline{Store: r.store, Direction: telemetry.Outbound, Recorder: r.rec, Observer: meshtest.Quiet{}}
	r.server = &h2.Server{Pipeline: pipe}
	r.server.SetLimits(limits)
	r.http1 = &h1.Server{Pipeline: pipe, Watcher: r.watcher, Prior: r.server.Serve}
	r.http1.SetLimits(h1.Limits{
		HeaderBytes: int(l.HeaderBytes), HeaderCount: l.HeaderCount, HeaderTimeout: l.HeaderTimeout, IdleTimeout: l.IdleTimeout,
		HalfClose: l.HalfClose,
	})
	r.listen()
	t.Cleanup(r.close)
	return r
}

// bind gives endpoints their pools.
func (r *rig) bind(snap *snapshot.Snapshot, lim h2.Limits, change func(*upstream.Settings)) {
	meshtest.Bind(snap, r.rec, func(s *snapshot.Service, e *snapshot.Endpoint) {
		settings := upstream.Settings{MaxOpen: s.LimitConnections, MaxWaiting: s.LimitWaiting}
		if change != nil {
			change(&settings)
		}
		if s.Protocol == "http2" || s.Protocol == "grpc" {
			e.Pool = h2.NewPool(e.Address, settings, lim, nil)
		} else {
			e.Pool = h1.NewPool(upstream.New(e.Address, settings, r.watcher, nil), lim.HeaderBytes, lim.HeaderCount)
		}
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
			r.done.Go(func() { r.http1.Serve(netio.New(nc), nil) })
		}
	})
}

func (r *rig) address() string { return r.ln.Addr().String() }

// counter is a pool that tells how its connections stand.
type counter interface {
	Close()
	Counts() (open, idle, waiting int)
}

func (r *rig) pools() (list []counter) {
	snap := r.store.Load()
	for _, d := range []*snapshot.Directory{snap.Outbound, snap.Inbound, snap.Aside} {
		for _, s := range d.List {
			for _, e := range s.Endpoints {
				list = append(list, e.Pool.(counter))
			}
		}
	}
	return list
}

// settled fails the test unless, within a moment, nothing is being served any more: no stream downstream, no reserved
// place upstream, nobody waiting.
func (r *rig) settled() {
	r.t.Helper()
	var open, idle, conns, free, waiting int
	ok := eventually(func() bool {
		open, idle = r.server.Counts()
		conns, free, waiting = 0, 0, 0
		for _, p := range r.pools() {
			o, i, w := p.Counts()
			conns, free, waiting = conns+o, free+i, waiting+w
		}
		return open == idle && conns == free && waiting == 0
	})
	if !ok {
		r.t.Errorf("not given back: %d of %d connections downstream and %d of %d upstream are in use, %d wait",
			open-idle, open, conns-free, conns, waiting)
	}
}

// eventually waits for a condition.
func eventually(ok func() bool) bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if ok() {
			return true
		}
	}
	return ok()
}

func (r *rig) close() {
	_ = r.ln.Close()
	r.http1.Abort()
	r.server.Abort()
	done := make(chan struct{})
	go func() {
		r.done.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		buf := make([]byte, 1<<20)
		panic(fmt.Sprintf("connections do not end\n%s", buf[:runtime.Stack(buf, true)]))
	}
	for _, p := range r.pools() {
		p.Close()
	}
	r.watcher.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.rec.Close(ctx); err != nil {
		r.t.Error(err)
	}
}

// listenTCP listens on a free port of loopback until the test ends.
func listenTCP(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// conns are connections that can be cut.
type conns struct {
	mu   sync.Mutex
	list []net.Conn
}

func (c *conns) add(nc net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, nc)
}

// cut closes one of them, the n-th.
func (c *conns) cut(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) == 0 {
		return
	}
	n %= len(c.list)
	_ = c.list[n].Close()
	c.list = append(c.list[:n], c.list[n+1:]...)
}

// watched is a listener that remembers its connections.
type watched struct {
	net.Listener
	*conns
}

// Accept implements net.Listener.
func (w watched) Accept() (net.Conn, error) {
	nc, err := w.Listener.Accept()
	if err == nil {
		w.add(nc)
	}
	return nc, err
}
