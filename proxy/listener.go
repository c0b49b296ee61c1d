package proxy

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/proxy/h1"
	"github.com/sidecar-mesh/sidecar/proxy/h2"
	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/sniff"
	"github.com/sidecar-mesh/sidecar/proxy/tcp"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// want is a listener that a configuration asks for.
type want struct {
	dir      telemetry.Direction
	name     string // for metrics: outbound, inbound, or the service's name
	field    string // of the configuration
	address  string
	service  string // all of it is for this service; empty: the host decides
	protocol string // as configured: tcp, auto or some HTTP
}

// wanted lists the listeners of a configuration.
func wanted(c *config.Config) []want {
	var list []want
	if a := c.Listen.Outbound; a != "" {
		list = append(list, want{telemetry.Outbound, "outbound", "listen.outbound", a, "", "http"})
	}
	for name, s := range c.Services {
		if s.Listen != "" {
			list = append(list, want{telemetry.Outbound, name, "services." + name + ".listen", s.Listen, name, s.Protocol})
		}
	}
	if a := c.Listen.Inbound; a != "" && len(c.Inbound) > 0 {
		// One service takes the port as a whole, whatever its protocol; of several the host decides.
		w := want{telemetry.Inbound, "inbound", "listen.inbound", a, "", "http"}
		if len(c.Inbound) == 1 {
			w.service, w.protocol = c.Inbound[0].Service, c.Inbound[0].Protocol
		}
		list = append(list, w)
	}
	return list
}

// listener accepts connections and has them served.
type listener struct {
	p      *Proxy
	ln     net.Listener
	stats  *telemetry.Listener
	target atomic.Pointer[target] // of connections to come
	former []*target              // those that connections are left of; guarded by the proxy's lock
	held   atomic.Int64           // connections from their acceptance to their end, whoever serves them
	ended  chan struct{}          // closed when nothing is accepted any more
}

// target is what serves the connections of a listener.
type target struct {
	want
	http *h1.Server  // nil for tcp
	h2   *h2.Server  // with http
	tcp  *tcp.Server // nil for http
}

func (p *Proxy) open(w want, c *config.Config) (*listener, error) {
	ln, err := net.Listen("tcp", w.address)
	if err != nil {
		return nil, err
	}
	l := &listener{p: p, ln: ln, stats: p.o.Recorder.Listener(w.dir, w.name), ended: make(chan struct{})}
	l.retarget(w, c)
	return l, nil
}

// retarget says what serves the connections to come. Those that are served already stay where they are.
func (l *listener) retarget(w want, c *config.Config) {
	if t := l.target.Load(); t != nil && t.want == w {
		l.p.setLimitsOf(t, c)
		return
	}
	t := &target{want: w}
	pl := l.p.pipeline(w.dir, w.service)
	if w.protocol != "tcp" {
		t.h2 = &h2.Server{Pipeline: pl}
		t.http = &h1.Server{Pipeline: pl, Watcher: l.p.watcher, Prior: t.h2.Serve}
		l.p.setLimitsOf(t, c)
	}
	if w.protocol == "tcp" || w.protocol == "auto" {
		t.tcp = &tcp.Server{Pipeline: pl, Service: w.service}
	}
	if gone := l.p.leaving; w.dir == telemetry.Inbound && !gone.IsZero() {
		t.offline(gone)
	}
	if old := l.target.Swap(t); old != nil {
		old.drain()
		l.former = append(l.former, old)
	}
	l.former = slices.DeleteFunc(l.former, func(t *target) bool { open, _ := t.counts(); return open == 0 })
}

func (p *Proxy) setLimitsOf(t *target, c *config.Config) {
	if t.http != nil {
		t.http.SetLimits(limitsOf(c))
		t.h2.SetLimits(p.limits2(c))
	}
}

// targets returns all that may have connections.
func (l *listener) targets() []*target { return append([]*target{l.target.Load()}, l.former...) }

// start accepts from now on.
func (l *listener) start() {
	l.p.done.Add(1)
	go func() {
		defer l.p.done.Done()
		defer close(l.ended)
		l.accept()
	}()
}

// stop closes the socket; connections that are served go on.
func (l *listener) stop() { _ = l.ln.Close() }

func (l *listener) accept() {
	var pause time.Duration
	var said time.Time
	for {
		nc, err := l.ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors, most likely: wait a little, and do not flood the log.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			if now := time.Now(); now.Sub(said) >= time.Second {
				said = now
				l.stats.Refused(refusalOf(err))
				l.p.o.Log.Warn("accept failed", "listener", l.target.Load().field, "err", err)
			}
			time.Sleep(pause)
			continue
		}
		pause = 0
		if l.p.conns.Add(1) > l.p.maxConn.Load() {
			l.p.conns.Add(-1)
			l.refuse(nc)
			continue
		}
		l.held.Add(1)
		l.p.done.Add(1)
		go l.serve(nc)
	}
}

func refusalOf(err error) string {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return "open_files"
	}
	return "accept"
}

// tooMany is what an HTTP client gets beyond limits.connections: it has not asked yet, but will read this as the answer.
const tooMany = "HTTP/1.1 503 Service Unavailable\r\nX-Sidecar-Reason: overloaded\r\nRetry-After: 1\r\n" +
	"Content-Type: text/plain; charset=utf-8\r\nContent-Length: 44\r\nConnection: close\r\n\r\n" +
	"overloaded: limits.connections was reached.\n"

func (l *listener) refuse(nc net.Conn) {
	l.stats.Refused("limits.connections")
	c := netio.New(nc)
	if t := l.target.Load(); t.http == nil || t.tcp != nil {
		c.Reset()
		return
	}
	_, _ = c.Write([]byte(tooMany), 10*time.Millisecond) // it fits into any socket's buffer
	_ = c.Close()
}

// serve serves one connection.
func (l *listener) serve(nc net.Conn) {
	defer l.p.done.Done()
	defer l.p.conns.Add(-1)
	defer l.held.Add(-1)
	l.stats.Opened()
	defer l.stats.Closed()
	c := netio.New(nc)
	t := l.target.Load()
	switch {
	case t.tcp == nil:
		t.http.Serve(c, nil)
	case t.http == nil:
		t.tcp.Serve(c, nil)
	default:
		proto, first := detect(c)
		switch proto {
		case sniff.HTTP1:
			t.http.Serve(c, first)
		case sniff.HTTP2:
			t.h2.Serve(c, first)
		default:
			t.tcp.Serve(c, first)
		}
	}
}

// counts returns how many connections there are, and how many of them do nothing at the moment.
func (t *target) counts() (open, idle int) {
	if t.http != nil {
		open, idle = t.http.Counts()
		o, i := t.h2.Counts()
		open, idle = open+o, idle+i
	}
	if t.tcp != nil {
		open += t.tcp.Count()
	}
	return open, idle
}

// drain asks the connections to end with the exchange in progress.
func (t *target) drain() {
	if t.http != nil {
		t.http.Drain()
		t.h2.Drain()
	}
}

// offline is drain with answers that tell callers who are sidecars to send nothing more; we are gone at that time.
func (t *target) offline(gone time.Time) {
	if t.http != nil {
		t.http.Offline(gone)
		t.h2.Offline(gone)
	}
}

// closeIdle closes connections of a draining target that have nothing to do.
func (t *target) closeIdle(now time.Time) {
	if t.http != nil {
		t.http.CloseIdle(now, idleGrace)
		t.h2.CloseIdle(now, idleGrace)
	}
}

// abort ends the connections at once.
func (t *target) abort() {
	if t.http != nil {
		t.http.Abort()
		t.h2.Abort()
	}
	if t.tcp != nil {
		t.tcp.Abort()
	}
}

// sniffTime is how long a client may be silent before the server is given the chance to speak first.
const sniffTime = 250 * time.Millisecond

// detect reads from a connection until its protocol is told or its client has been silent for a while; protocols whose
// server speaks first are Other. The bytes read are returned, and must be handed on.
func detect(c *netio.Conn) (sniff.Protocol, []byte) {
	until := time.Now().Add(sniffTime)
	buf := make([]byte, 8<<10)
	n := 0
	for {
		m, err := c.Read(buf[n:], until)
		n += m
		if p := sniff.Detect(buf[:n]); p != sniff.More && n > 0 {
			return p, buf[:n]
		}
		if err != nil || n == len(buf) {
			return sniff.Other, buf[:n]
		}
	}
}

// idleGrace is how long a draining connection must have been idle to be closed: a request may be on its way in it.
const idleGrace = time.Second

// Leave has the answers of the inbound side say that we leave and are gone at a time: their connections end, and callers
// who are sidecars turn to others at once (S-230). Everything is served as before.
func (p *Proxy) Leave(gone time.Time) {
	p.mu.Lock()
	p.leaving = gone
	var targets []*target
	for _, l := range slices.Concat(slices.Collect(maps.Values(p.listeners)), p.retired) {
		if l.target.Load().dir == telemetry.Inbound {
			targets = append(targets, l.targets()...)
		}
	}
	p.mu.Unlock()
	for _, t := range targets {
		t.offline(gone)
	}
}

// Drain ends one direction: answers say that their connection closes, after grace no connection is accepted any more, and
// what is in flight finishes. It returns when nothing is left, or cuts off what is left when ctx ends.
func (p *Proxy) Drain(ctx context.Context, dir telemetry.Direction, grace time.Duration) (cut int) {
	p.mu.Lock()
	p.stopping[dir] = true
	var list []*listener
	var targets []*target
	for _, l := range slices.Concat(slices.Collect(maps.Values(p.listeners)), p.retired) {
		if l.target.Load().dir == dir {
			list = append(list, l)
			targets = append(targets, l.targets()...)
		}
	}
	p.mu.Unlock()
	for _, t := range targets {
		t.drain()
	}
	wait(ctx, grace)
	for _, l := range list {
		l.stop()
		<-l.ended // so that what it accepted last is counted
	}
	for {
		for _, t := range targets {
			t.closeIdle(time.Now())
		}
		left := 0
		for _, l := range list {
			left += int(l.held.Load())
		}
		if left == 0 {
			return 0
		}
		if !wait(ctx, 20*time.Millisecond) {
			for _, t := range targets {
				t.abort()
			}
			return left
		}
	}
}

// wait waits for d, or until ctx ends, which it reports by false.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
