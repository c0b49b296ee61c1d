package proxy

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/proxy/h1"
	"github.com/sidecar-mesh/sidecar/proxy/h2"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
	"github.com/sidecar-mesh/sidecar/proxy/upstream"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// pool is what the proxy does with the connections to an endpoint, whatever they speak.
type pool interface {
	pipeline.Pool
	Set(upstream.Settings)
	Sweep()
	Close()
	Counts() (open, idle, waiting int)
}

func poolOf(e *snapshot.Endpoint) pool { return e.Pool.(pool) }

// newPool makes the pool of an endpoint: with links, one for each class and one for the rest.
func (p *Proxy) newPool(s *snapshot.Service, e *snapshot.Endpoint, c *config.Config) pool {
	rest := p.onePool(s, e, c)
	if len(s.Links) == 0 {
		return rest
	}
	l := &linkedPool{pool: rest}
	for range s.Links {
		l.classes = append(l.classes, p.onePool(s, e, c))
	}
	return l
}

// onePool makes a pool that speaks a service's protocol.
func (p *Proxy) onePool(s *snapshot.Service, e *snapshot.Endpoint, c *config.Config) pool {
	settings := upstream.Settings{MaxOpen: s.LimitConnections, MaxWaiting: s.LimitWaiting}
	observer := poolObserver{p.o.Recorder.UpstreamConn(s.Name), p.o.Recorder}
	one := func() *h1.Pool {
		conns := upstream.New(e.Address, settings, p.watcher, observer)
		return h1.NewPool(conns, int(c.Limits.HeaderBytes), c.Limits.HeaderCount)
	}
	two := func() *h2.Pool { return h2.NewPool(e.Address, settings, p.limits2(c), observer) }
	switch s.Protocol {
	case "http2", "grpc":
		return two()
	case "auto":
		return &autoPool{one: one(), two: two()}
	}
	return one()
}

// bound puts limits in force: HTTP/1 obeys from the next request on, HTTP/2 from the next connection on.
func bound(p pool, l h2.Limits) {
	switch p := p.(type) {
	case *h1.Pool:
		p.SetLimits(l.HeaderBytes, l.HeaderCount)
	case *h2.Pool:
		p.SetLimits(l)
	case *autoPool:
		bound(p.one, l)
		bound(p.two, l)
	case *linkedPool:
		bound(p.pool, l)
		for _, class := range p.classes {
			bound(class, l)
		}
	}
}

// spokenLabel is the label by which a registry says what an endpoint speaks: http, http2 or grpc. Sidecars register it.
const spokenLabel = "protocol"

// speak tells the pool of an endpoint what its registry says that it speaks, where the service leaves that open.
func speak(p pool, label string) {
	switch p := p.(type) {
	case *autoPool:
		switch label {
		case "http":
			p.said.Store(1)
		case "http2", "grpc":
			p.said.Store(2)
		default:
			p.said.Store(0)
		}
	case *linkedPool:
		speak(p.pool, label)
		for _, class := range p.classes {
			speak(class, label)
		}
	}
}

// autoPool speaks to an endpoint as the caller spoke to us: HTTP/1 goes on as HTTP/1, and HTTP/2 as HTTP/2 where the
// endpoint takes it, which is learned by trying. Where a registry says what the endpoint speaks, that is spoken.
type autoPool struct {
	one *h1.Pool
	two *h2.Pool

	said  atomic.Int32 // by a registry: the version; 0: nothing
	only1 atomic.Bool  // it was tried, and the endpoint takes no HTTP/2
	known atomic.Bool
	mu    sync.Mutex // held while it is tried, so that one tries for all
}

// Open implements pipeline.Pool.
func (p *autoPool) Open(v pipeline.Version, fresh bool, connect time.Duration, until time.Time) (pipeline.Upstream, error) {
	switch p.said.Load() {
	case 1:
		return p.one.Open(v, fresh, connect, until)
	case 2:
		return p.two.Open(v, fresh, connect, until)
	}
	if v != pipeline.HTTP2 || p.only1.Load() {
		return p.one.Open(v, fresh, connect, until)
	}
	if !p.known.Load() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.only1.Load() { // by another, meanwhile
			return p.one.Open(v, fresh, connect, until)
		}
	}
	up, err := p.two.Open(v, fresh, connect, until)
	var not *h2.NotHTTP2
	switch {
	case err == nil:
		p.known.Store(true)
	case errors.As(err, &not) && !p.known.Load():
		p.only1.Store(true)
		return p.one.Open(v, fresh, connect, until)
	}
	return up, err
}

// Ready implements pipeline.Prompt.
func (p *autoPool) Ready(v pipeline.Version) bool {
	said := p.said.Load()
	if said == 1 || said == 0 && (v != pipeline.HTTP2 || p.only1.Load()) {
		return p.one.Ready(v)
	}
	return p.two.Ready(v)
}

// Set implements pool.
func (p *autoPool) Set(s upstream.Settings) {
	p.one.Set(s)
	p.two.Set(s)
}

// Sweep implements pool.
func (p *autoPool) Sweep() {
	p.one.Sweep()
	p.two.Sweep()
}

// Close implements pool.
func (p *autoPool) Close() {
	p.one.Close()
	p.two.Close()
}

// Counts implements pool.
func (p *autoPool) Counts() (open, idle, waiting int) {
	open, idle, waiting = p.one.Counts()
	o, i, w := p.two.Counts()
	return open + o, idle + i, waiting + w
}
