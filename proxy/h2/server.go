package h2

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// Server serves downstream connections of one listener. It ends with Drain or Abort.
type Server struct {
	Pipeline *pipeline.Pipeline
	Watcher  *netio.Watcher

	limits   atomic.Pointer[Limits]
	draining atomic.Bool
	offline  atomic.Int64 // Unix nanoseconds of our end, which answers tell; 0: they do not
	aborted  atomic.Bool
	held     atomic.Int64 // connections that wait until they are served
	workers  workers
	debts    debts

	mu    sync.Mutex
	conns map[*serverConn]struct{} // guarded by mu
}

// SetLimits puts limits in force for the connections to come.
func (s *Server) SetLimits(l Limits) { s.limits.Store(&l) }

// Serve serves one connection until it ends, and closes it. first is what was read from it already, the preface included.
func (s *Server) Serve(nc *netio.Conn, first []byte) {
	peer := pipeline.PeerOf(nc.RemoteAddr())
	owed := s.debts.join(peer.Addr, time.Now())
	defer s.debts.leave(owed)
	leeway, wanted := s.admit(nc, owed, peer.Text)
	if !wanted {
		_ = nc.Close()
		return
	}
	lim := s.limits.Load()
	c := &serverConn{srv: s, peer: peer, leaves: lim.leavesAt(time.Now())}
	c.session = newSession(nc, false, lim, c, first)
	c.session.debt, c.session.leeway = owed, leeway
	c.session.greet() // before anybody else can send something
	s.mu.Lock()
	if s.conns == nil {
		s.conns = make(map[*serverConn]struct{})
	}
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	if s.draining.Load() && s.offline.Load() == 0 { // else its first answer says so
		c.session.mu.Lock()
		c.session.warnLocked(time.Now())
		c.session.mu.Unlock()
	}
	c.serve()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// Drain asks every client to leave; their streams finish. No goroutine waits for streams any more.
func (s *Server) Drain() {
	s.draining.Store(true)
	s.workers.close()
	s.each(func(c *serverConn) { c.session.warnLocked(time.Now()) })
}

// Offline is Drain with answers that tell callers who are sidecars to send nothing more; we are gone at that time. A client
// that comes yet is asked to leave with its first answer: one that went at once would not be told.
func (s *Server) Offline(gone time.Time) {
	s.offline.Store(gone.UnixNano())
	s.Drain()
}

// CloseIdle lets clients that were asked to leave go, whether or not they have answered. It returns how many connections
// are left.
func (s *Server) CloseIdle(now time.Time, d time.Duration) int {
	return s.each(func(c *serverConn) {
		if c.session.away == warned && !c.session.pinged.IsZero() && now.Sub(c.session.pinged) >= d {
			c.session.leaveLocked()
		}
		c.session.closeIfIdleLocked()
	})
}

// Abort ends all connections at once, and the goroutines that wait for streams.
func (s *Server) Abort() {
	s.aborted.Store(true)
	s.workers.close()
	s.each(func(c *serverConn) {
		c.session.failLocked(net.ErrClosed)
		c.session.nc.Abort()
	})
}

// Counts returns how many connections there are, and how many of them have no stream.
func (s *Server) Counts() (open, idle int) {
	open = s.each(func(c *serverConn) {
		if c.session.working == 0 {
			idle++
		}
	})
	return open + int(s.held.Load()), idle
}

func (s *Server) each(f func(*serverConn)) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.session.mu.Lock()
		f(c)
		c.session.mu.Unlock()
	}
	return len(s.conns)
}
