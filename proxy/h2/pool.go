package h2

import (
	"errors"
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
	"github.com/sidecar-mesh/sidecar/proxy/upstream"
)

const (
	// pingAfter is how long a connection with work open may be silent before it is asked whether it lives: no oftener than
	// servers with a ping policy put up with.
	pingAfter  = 60 * time.Second
	pingAnswer = 15 * time.Second
	// pingAgain is how long after a PING the next one is sent when nothing but the answer to it has come: servers of gRPC
	// take three within less for an attack, unless they have something to say meanwhile (its keepalive guide).
	pingAgain = 5*time.Minute + 10*time.Second
	// ownStreams bounds the streams of one connection, whatever the peer allows.
	ownStreams = 250
	// lastStream is where a connection is given up because its identifiers run out (RFC 9113 5.1.1).
	lastStream = 1<<31 - 1000
)

// Pool keeps sessions to one endpoint. It fills one before it opens the next.
type Pool struct {
	address  string
	observer Observer

	mu       sync.Mutex // guards what follows; taken before a session's lock
	settings upstream.Settings
	lim      *Limits // of sessions to come
	conns    []*clientConn
	dialing  bool
	waiters  []chan struct{} // first come, first served
	closed   bool
	calm     calm
}

// Observer is told what happens to connections: with which code an endpoint asked one to be left, and why we left one. It
// must not block.
type Observer interface {
	upstream.Observer
	Away(code string)
	Retired(why string)
}

// NewPool returns an empty pool. observer may be nil.
func NewPool(address string, s upstream.Settings, lim Limits, observer Observer) *Pool {
	return &Pool{address: address, lim: &lim, observer: observer, settings: s}
}

// Set changes what the pool may do.
func (p *Pool) Set(s upstream.Settings) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settings = s
}

// SetLimits changes the limits of connections to come.
func (p *Pool) SetLimits(l Limits) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lim = &l
}

// Open implements pipeline.Pool. fresh is satisfied by any session that still takes streams: one that died is not kept.
func (p *Pool) Open(_ pipeline.Version, _ bool, connect time.Duration, until time.Time) (pipeline.Upstream, error) {
	var start time.Time // zero until it has to wait
	for {
		p.mu.Lock()
		if c := p.pickLocked(); c != nil {
			a := attempts.Get().(*attempt)
			a.c, a.reused = c, c.served > 0
			if !start.IsZero() {
				a.queued = time.Since(start)
			}
			if !a.reused {
				a.connecting, a.queued = a.queued, 0
			}
			c.reserved++
			if c.served++; c.served == c.session.lim.MaxRequests {
				c.due = WhyRequests
				c.retireLocked()
			}
			p.mu.Unlock()
			return a, nil
		}
		if start.IsZero() {
			start = time.Now()
		}
		if !p.dialing && p.mayDialLocked() {
			wait := p.calm.left(time.Now())
			if wait > connect || !until.IsZero() && wait > time.Until(until) {
				p.mu.Unlock()
				return nil, errCalm
			}
			p.dialing = true
			p.mu.Unlock()
			if wait > 0 {
				<-time.After(wait)
			}
			if err := p.dial(start.Add(connect), until); err != nil {
				return nil, err
			}
			continue
		}
		if len(p.waiters) >= p.settings.MaxWaiting {
			p.mu.Unlock()
			return nil, pipeline.Saturated(upstream.ErrWaiting)
		}
		w := make(chan struct{}, 1)
		p.waiters = append(p.waiters, w)
		p.mu.Unlock()
		if err := p.await(w, until); err != nil {
			return nil, err
		}
	}
}

// maxSuspects is how many connections that are slow make no case for one more.
const maxSuspects = 2

// Ready implements pipeline.Prompt.
func (p *Pool) Ready(pipeline.Version) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pickLocked() != nil
}

// mayDialLocked reports whether another connection may be opened, and is of use.
func (p *Pool) mayDialLocked() bool {
	for _, c := range p.conns {
		if c.session.shut() {
			return false
		}
	}
	return p.settings.MaxOpen <= 0 || len(p.conns) < p.settings.MaxOpen
}

// pickLocked returns a session with room for a stream: the first, so that one is filled before the next is used. One that
// let a stream wait in vain is passed over where there is, or may be, another; with maxSuspects of them it is the endpoint
// that is slow.
func (p *Pool) pickLocked() *clientConn {
	var suspect *clientConn
	suspects := 0
	for _, c := range p.conns {
		switch {
		case c.gone || c.retired || c.reserved >= c.session.room():
		case !c.session.suspect.Load():
			return c
		default:
			if suspects++; suspect == nil {
				suspect = c
			}
		}
	}
	if suspect != nil && (suspects >= maxSuspects || p.dialing || !p.mayDialLocked() || p.calm.left(time.Now()) > 0) {
		return suspect
	}
	return nil
}

// room is how many streams the peer lets us have at once.
func (s *session) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.peerAway || s.nextID > lastStream || len(s.out) > 4*roomy {
		return 0
	}
	return int(min(s.peer.streams, ownStreams))
}

// shut reports whether the peer lives and lets us have no stream at all: another connection would be no better.
func (s *session) shut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil && !s.peerAway && s.peer.streams == 0
}

func (p *Pool) await(w chan struct{}, until time.Time) error {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-w:
		return nil
	case <-t.C:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, x := range p.waiters {
		if x == w {
			p.waiters = append(p.waiters[:i], p.waiters[i+1:]...)
			return pipeline.Saturated(upstream.ErrSaturated)
		}
	}
	p.wakeLocked(1) // the chance came at the last moment: somebody else's
	return pipeline.Saturated(upstream.ErrSaturated)
}

func (p *Pool) wakeLocked(n int) {
	for ; n > 0 && len(p.waiters) > 0; n-- {
		p.waiters[0] <- struct{}{}
		p.waiters = append(p.waiters[:0], p.waiters[1:]...)
	}
}

// dial opens a session and waits until its peer has said what it can do.
func (p *Pool) dial(deadline, until time.Time) error {
	start := time.Now()
	if !until.IsZero() && until.Before(deadline) {
		deadline = until
	}
	c, err := p.connect(deadline)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialing = false
	p.wakeLocked(len(p.waiters))
	if err == nil && c.gone {
		err = errGoneAway
	}
	if p.observer != nil && err == nil {
		p.observer.Opened(time.Since(start))
	}
	switch {
	case errors.Is(err, upstream.ErrTimeout):
		p.failed(true)
		return pipeline.ConnectTimeout(err)
	case err != nil:
		p.failed(false)
		return err
	}
	p.conns = append(p.conns, c)
	return nil
}

func (p *Pool) failed(timeout bool) {
	if p.observer != nil {
		p.observer.ConnectFailed(timeout)
	}
}

func (p *Pool) connect(deadline time.Time) (*clientConn, error) {
	nc, err := upstream.Dial(p.address, deadline)
	if err != nil {
		return nil, err
	}
	c := &clientConn{pool: p, ready: make(chan struct{})}
	p.mu.Lock()
	lim := p.lim
	p.mu.Unlock()
	c.leaves = lim.leavesAt(time.Now())
	c.session = newSession(netio.New(nc), true, lim, c, nil)
	c.session.greet()
	go c.session.run()
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case <-c.ready:
		return c, nil
	case <-c.session.done:
		c.session.mu.Lock()
		defer c.session.mu.Unlock()
		return nil, &NotHTTP2{Err: c.session.err}
	case <-t.C:
		c.session.nc.Abort()
		return nil, upstream.ErrTimeout
	}
}

// NotHTTP2 says that a peer took the connection and did not answer the preface as HTTP/2 does.
type NotHTTP2 struct{ Err error }

// Error implements error.
func (e *NotHTTP2) Error() string { return "the endpoint does not speak HTTP/2: " + e.Err.Error() }

// Unwrap returns what came instead.
func (e *NotHTTP2) Unwrap() error { return e.Err }

// done gives a stream's place back.
func (c *clientConn) done() {
	p := c.pool
	p.mu.Lock()
	c.reserved--
	p.wakeLocked(1)
	c.retireLocked()
	c.retired = c.retired || c.reserved == 0 && p.closed
	last := c.reserved == 0 && c.retired
	p.mu.Unlock()
	if last {
		c.session.end()
	}
}

// end closes a session that is not wanted any more.
func (s *session) end() {
	s.mu.Lock()
	s.roomLocked()
	s.out = appendGoAway(s.out, 0, noError, "")
	s.kickLocked()
	s.failLocked(errIdle)
	s.mu.Unlock()
}

// Sweep does nothing: sessions look after themselves.
func (p *Pool) Sweep() {}

// Close ends sessions without streams now and the others when their streams are over. An exchange that began when the endpoint
// was there and asks only now is served all the same.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	var idle []*clientConn
	for _, c := range p.conns {
		if c.reserved == 0 {
			c.retired = true
			idle = append(idle, c)
		}
	}
	p.mu.Unlock()
	for _, c := range idle {
		c.session.end()
	}
}

// Counts returns how many connections are open, idle and waited for.
func (p *Pool) Counts() (open, idle, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		if c.reserved == 0 {
			idle++
		}
	}
	return len(p.conns), idle, len(p.waiters)
}
