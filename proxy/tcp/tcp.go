// Package tcp is the engine for connections that are not, or not known to be, HTTP: it relays bytes both ways. What to connect to is the pipeline's matter. Tests: relays over loopback sockets
// with half-close, reset, silence and server-first peers.
package tcp

import (
	"net"
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// Server relays the connections of one listener.
type Server struct {
	Pipeline *pipeline.Pipeline
	Service  string // by name

	mu    sync.Mutex
	conns map[*netio.Conn]struct{} // guarded by mu
}

// Serve relays one connection until it ends, and closes it. first is what was read from it already.
func (s *Server) Serve(c *netio.Conn, first []byte) {
	s.mu.Lock()
	if s.conns == nil {
		s.conns = make(map[*netio.Conn]struct{})
	}
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	x := pipeline.Begin(pipeline.PeerOf(c.RemoteAddr()))
	x.Start = time.Now()
	s.Pipeline.ServeTCP(x, c, first, s.Service)
	x.Release()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// Count returns how many connections there are.
func (s *Server) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Each calls f for every connection, for the admin API.
func (s *Server) Each(f func(remote net.Addr)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		f(c.RemoteAddr())
	}
}

// Abort ends all connections at once.
func (s *Server) Abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Abort()
	}
}
