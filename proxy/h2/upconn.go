package h2

import (
	"errors"
	"sync"
	"time"
)

// clientConn is an upstream connection: the owner of its session.
type clientConn struct {
	pool    *Pool
	session *session
	ready   chan struct{} // closed when the peer's settings came
	once    sync.Once
	leaves  time.Time // zero: never

	reserved int // streams in use or promised; guarded by the pool's lock, as the rest
	served   int
	gone     bool   // no new streams
	away     bool   // the peer's GOAWAY was told
	due      string // why it is to be left; empty: it is not
	retired  bool   // it was: no new streams
}

// headers implements owner: a server opens no streams, but what it sends may come late.
func (c *clientConn) headers(s *session, id uint32, h *head) error {
	h.release()
	if s.idleLocked(id) {
		return &connError{protocolError, "HEADERS on an idle stream"}
	}
	return nil
}

// tick implements owner.
func (c *clientConn) tick(s *session, now time.Time) error {
	c.pool.mu.Lock()
	every := c.pingEveryLocked(now)
	if c.due == "" && !c.leaves.IsZero() && !now.Before(c.leaves) {
		c.due = WhyAge
	}
	c.retireLocked()
	over := c.retired && c.reserved == 0
	c.pool.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case over:
		return errIdle
	case !s.pinged.IsZero() && now.Sub(s.pinged) > pingAnswer:
		return errDead
	case len(s.streams) > 0 && s.pinged.IsZero() && time.Duration(s.quiet)*tickEvery >= every:
		s.pingLocked(now)
	case len(s.streams) == 0 && now.Sub(s.idleSince) >= s.lim.IdleTimeout:
		return errIdle
	}
	return s.err
}

var errDead = errors.New("the peer does not answer a PING")

// settled implements owner.
func (c *clientConn) settled(s *session) {
	c.once.Do(func() { close(c.ready) })
	s.mu.Lock()
	away, why := s.peerAway, s.peerWhy
	s.mu.Unlock()
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if away && !c.away {
		if p.observer != nil {
			p.observer.Away(why.String())
		}
		if why == enhanceYourCalm {
			p.calm.complain(time.Now(), jitter())
		}
	}
	c.away = c.away || away
	p.wakeLocked(len(p.waiters))
}

// pingEveryLocked is how long after whatever came last a PING may be sent.
func (c *clientConn) pingEveryLocked(now time.Time) time.Duration {
	every := c.pool.calm.pingAfter(now)
	if c.session.asked.Load() {
		every = max(every, pingAgain)
	}
	return every
}

// retireLocked leaves a connection that is due, unless its place is needed while its streams go on. The pool's lock is held.
func (c *clientConn) retireLocked() {
	p := c.pool
	if c.due == "" || c.retired || c.reserved > 0 && p.settings.MaxOpen > 0 && len(p.conns) >= p.settings.MaxOpen {
		return
	}
	c.retired = true
	if p.observer != nil {
		p.observer.Retired(c.due)
	}
}

// slow makes the connection one to be avoided: a stream on it waited in vain. A PING, where one may be sent, finds out
// whether it lives; that, and any answer, clears it.
func (c *clientConn) slow(now time.Time) {
	c.pool.mu.Lock()
	every := c.pingEveryLocked(now)
	c.pool.mu.Unlock()
	s := c.session
	s.suspect.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && s.pinged.IsZero() && now.Sub(s.lastPing) >= every {
		s.pingLocked(now)
	}
}

// abused implements owner: endpoints are not slowed down.
func (c *clientConn) abused(string) {}

// ended implements owner.
func (c *clientConn) ended(*session) {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	c.gone = true
	for i, x := range p.conns {
		if x == c {
			p.conns = append(p.conns[:i], p.conns[i+1:]...)
			if p.observer != nil {
				p.observer.Closed()
			}
			break
		}
	}
	p.wakeLocked(len(p.waiters))
}
