package upstream

import (
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// Conn is a connection lent by a pool.
type Conn struct {
	*netio.Conn
	pool   *Pool
	served int // how many times it was lent before
	// Queued and Connecting say how long getting it took this time.
	Queued, Connecting time.Duration

	idleSince int64 // the pool's sweep at that time; guarded by its lock, as inIdle
	inIdle    bool
	left      bool // its peer has left while it was lent
}

// Reused reports whether it has served before.
func (c *Conn) Reused() bool { return c.served > 0 }

// sound looks at a connection that was idle: its peer must neither have left nor have said anything.
func (c *Conn) sound() bool {
	waiting, err := c.Buffered()
	return !waiting && err == nil
}

// Release gives the connection back. reusable says that it stands between two messages and may serve again.
func (c *Conn) Release(reusable bool) {
	p := c.pool
	if !reusable {
		c.Discard()
		return
	}
	c.served++
	p.mu.Lock()
	if p.closed || c.left || p.overLocked() || len(p.waiters) > 0 && p.waiters[0].fresh {
		p.mu.Unlock()
		c.Discard()
		return
	}
	if len(p.waiters) > 0 {
		p.giveLocked(c)
		p.mu.Unlock()
		return
	}
	c.inIdle = true
	c.idleSince = p.sweeps
	p.idle = append(p.idle, c)
	p.observeIdle(1)
	p.mu.Unlock()
}

// Discard closes the connection and gives its place to whoever waits.
func (c *Conn) Discard() {
	_ = c.Conn.Close()
	c.Forget()
}

// Forget gives up the place of a connection that is closed, or belongs to somebody else now.
func (c *Conn) Forget() {
	p := c.pool
	p.mu.Lock()
	p.open--
	p.observeClosed()
	p.placesLocked()
	p.mu.Unlock()
}

// PeerLeft implements netio.Leaver: an idle connection whose peer has left is of no use.
func (c *Conn) PeerLeft(bool) {
	p := c.pool
	p.mu.Lock()
	if !c.inIdle {
		c.left = true
		p.mu.Unlock()
		return // whoever uses it finds out
	}
	for i, x := range p.idle {
		if x == c {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			break
		}
	}
	c.inIdle = false
	p.observeIdle(-1)
	p.mu.Unlock()
	c.Discard()
}
