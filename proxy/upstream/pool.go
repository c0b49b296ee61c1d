// Package upstream keeps connections to endpoints: it opens them within the limits of their service, lends the ones that
// are idle, watches those for peers that leave, and closes what nobody needs. It speaks no protocol. Tests: scripts over
// loopback sockets with peers that refuse, stall, close and send unasked.
package upstream

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// What can keep a connection from being had.
var (
	ErrTimeout   = errors.New("connect timed out")
	ErrSaturated = errors.New("limit.connections reached and nobody gave one back in time")
	ErrWaiting   = errors.New("limit.connections and limit.waiting reached")
)

const (
	// idleSweeps is how many calls of Sweep a connection stays idle. With one each SweepEvery that is 25 to 30 s: below the
	// 60 s after which many servers close theirs. Counting sweeps saves reading the clock each time one is given back.
	idleSweeps = 6
	// SweepEvery is the pace that Sweep wants.
	SweepEvery = 5 * time.Second
	// maxDialing bounds connects to one endpoint at the same time; more would hit a cold or slow one like a flood.
	maxDialing = 64
)

// Observer is told what happens to connections. It must not block.
type Observer interface {
	Opened(took time.Duration)
	Closed()
	Idle(delta int)
	ConnectFailed(timeout bool)
}

// Settings is what a pool may do. They can change while it works.
type Settings struct {
	MaxOpen    int // connections; 0: no bound
	MaxWaiting int // who may wait for one; 0: nobody
}

// Pool holds the connections to one endpoint.
type Pool struct {
	network, address string
	watcher          *netio.Watcher
	observer         Observer
	settings         atomic.Pointer[Settings]

	mu      sync.Mutex // guards what follows
	idle    []*Conn    // the last one was used last
	open    int        // those being opened included
	dialing int
	sweeps  int64
	waiters []waiter // first come, first served
	closed  bool
}

// waiter waits for a connection; nil stands for a place to dial in, reserved for it.
type waiter struct {
	given chan *Conn
	fresh bool // it has no use for one that has served
}

// New returns an empty pool for an address of the form host:port or unix:PATH. watcher and observer may be nil.
func New(address string, s Settings, watcher *netio.Watcher, observer Observer) *Pool {
	p := &Pool{network: "tcp", address: address, watcher: watcher, observer: observer}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		p.network, p.address = "unix", path
	}
	p.settings.Store(&s)
	return p
}

// Set changes what the pool may do.
func (p *Pool) Set(s Settings) {
	if *p.settings.Load() != s {
		p.settings.Store(&s)
		p.mu.Lock()
		p.placesLocked()
		p.mu.Unlock()
	}
}

// Get lends a connection until Release: an idle one, or with fresh or where there is none a new one, whose connect may
// take as long as connect.
func (p *Pool) Get(fresh bool, connect time.Duration, until time.Time) (*Conn, error) {
	var began time.Time // of waiting
	for {
		c, wait, err := p.take(fresh)
		if err != nil {
			return nil, err
		}
		switch {
		case c != nil && c.sound():
			c.Queued, c.Connecting = 0, 0
			if !began.IsZero() {
				c.Queued = time.Since(began)
			}
			return c, nil
		case c != nil:
			c.Discard()
			continue
		case wait == nil:
			c, err := p.dial(connect, until)
			if c != nil && !began.IsZero() {
				c.Queued = time.Since(began) - c.Connecting
			}
			return c, err
		}
		if began.IsZero() {
			began = time.Now()
		}
		given, err := p.await(wait, until)
		if err != nil {
			return nil, err
		}
		if given == nil {
			c, err := p.dial(connect, until)
			if c != nil {
				c.Queued = time.Since(began) - c.Connecting
			}
			return c, err
		}
		given.Queued, given.Connecting = time.Since(began), 0
		if given.sound() {
			return given, nil
		}
		given.Discard()
	}
}

// take returns an idle connection; or a channel to wait on; or neither, with a place to dial in.
func (p *Pool) take(fresh bool) (*Conn, chan *Conn, error) {
	s := p.settings.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 && !fresh {
		c := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		c.inIdle = false
		p.observeIdle(-1)
		return c, nil, nil
	}
	if s.MaxOpen > 0 && p.open >= s.MaxOpen && fresh && len(p.idle) > 0 {
		p.dropOldestLocked() // a fresh one is wanted and idle ones take up the room
	}
	if p.closed || p.roomLocked() {
		p.open++
		p.dialing++
		return nil, nil, nil
	}
	if len(p.waiters) >= s.MaxWaiting {
		return nil, nil, ErrWaiting
	}
	w := make(chan *Conn, 1)
	p.waiters = append(p.waiters, waiter{w, fresh})
	return nil, w, nil
}

// roomLocked reports whether one more may be opened now.
func (p *Pool) roomLocked() bool {
	s := p.settings.Load()
	return (s.MaxOpen <= 0 || p.open < s.MaxOpen) && p.dialing < maxDialing
}

func (p *Pool) dropOldestLocked() {
	c := p.idle[0]
	p.idle = append(p.idle[:0], p.idle[1:]...)
	c.inIdle = false
	p.open--
	p.observeIdle(-1)
	p.observeClosed()
	_ = c.Conn.Close()
}

// await waits for a connection that another gives back, or for a chance to dial (nil).
func (p *Pool) await(w chan *Conn, until time.Time) (*Conn, error) {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case c := <-w:
		return c, nil
	case <-t.C:
	}
	p.mu.Lock()
	for i, x := range p.waiters {
		if x.given == w {
			p.waiters = append(p.waiters[:i], p.waiters[i+1:]...)
			p.mu.Unlock()
			return nil, ErrSaturated
		}
	}
	p.mu.Unlock()
	if c := <-w; c != nil { // given at the last moment
		c.Release(true)
	} else {
		p.mu.Lock()
		p.dialing--
		p.open--
		p.placesLocked()
		p.mu.Unlock()
	}
	return nil, ErrSaturated
}

// giveLocked hands c, or with nil a place to dial in, to whoever waits longest.
func (p *Pool) giveLocked(c *Conn) {
	w := p.waiters[0]
	p.waiters = append(p.waiters[:0], p.waiters[1:]...)
	w.given <- c
}

// placesLocked hands the places that are free to those who wait longest; a closed pool hands out as many as are wanted.
func (p *Pool) placesLocked() {
	for len(p.waiters) > 0 && (p.closed || p.roomLocked()) {
		p.open++
		p.dialing++
		p.giveLocked(nil)
	}
}

// dial opens a connection in the place that take has reserved.
func (p *Pool) dial(connect time.Duration, until time.Time) (*Conn, error) {
	start := time.Now()
	deadline := start.Add(connect)
	if !until.IsZero() && until.Before(deadline) {
		deadline = until
	}
	nc, err := dial(p.network, p.address, deadline)
	p.mu.Lock()
	p.dialing--
	if err != nil {
		p.open--
		p.placesLocked()
		p.mu.Unlock()
		if p.observer != nil {
			p.observer.ConnectFailed(errors.Is(err, ErrTimeout))
		}
		return nil, err
	}
	p.placesLocked()
	p.mu.Unlock()
	c := &Conn{Conn: netio.New(nc), pool: p, Connecting: time.Since(start)}
	if p.observer != nil {
		p.observer.Opened(c.Connecting)
	}
	p.watcher.Add(c.Conn, c)
	return c, nil
}

// overLocked reports whether the limit was lowered below what is open.
func (p *Pool) overLocked() bool {
	s := p.settings.Load()
	return s.MaxOpen > 0 && p.open > s.MaxOpen
}

// Sweep closes connections that were idle for too long.
func (p *Pool) Sweep() {
	var old []*Conn
	p.mu.Lock()
	p.sweeps++
	n := 0
	for n < len(p.idle) && p.sweeps-p.idle[n].idleSince >= idleSweeps {
		p.idle[n].inIdle = false
		p.observeIdle(-1)
		n++
	}
	if n > 0 {
		old = append(old, p.idle[:n]...)
		p.idle = append(p.idle[:0], p.idle[n:]...)
	}
	p.mu.Unlock()
	for _, c := range old {
		c.Discard()
	}
}

// Close closes idle connections now and the others when they are given back. Whoever still asks, an exchange that began when
// the endpoint was there, is let dial at once, for itself alone.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	for _, c := range idle {
		c.inIdle = false
		p.observeIdle(-1)
	}
	p.placesLocked()
	p.mu.Unlock()
	for _, c := range idle {
		c.Discard()
	}
}

// Counts returns how many connections are open, idle and waited for.
func (p *Pool) Counts() (open, idle, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open, len(p.idle), len(p.waiters)
}

func (p *Pool) observeIdle(delta int) {
	if p.observer != nil {
		p.observer.Idle(delta)
	}
}

func (p *Pool) observeClosed() {
	if p.observer != nil {
		p.observer.Closed()
	}
}
