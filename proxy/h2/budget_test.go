package h2

import (
	"net"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// TestTiredClients: a client that resets what it has just asked for pays for it, one that has waited does not.
func TestTiredClients(t *testing.T) {
	for name, c := range map[string]struct {
		waited time.Duration
		cost   float64
	}{"rapid": {tiredAfter / 2, costReset}, "tired": {2 * tiredAfter, costOther}} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer func() { _, _ = ours.Close(), theirs.Close() }()
			s := newSession(netio.New(ours), false, &Limits{HeaderBytes: 60 << 10, HeaderCount: 100, IdleTimeout: time.Hour}, nil, nil)
			s.mu.Lock()
			st := getStreamLocked(s, 1)
			st.began = time.Now().Add(-c.waited)
			s.streams[1], s.highest = st, 1
			s.mu.Unlock()
			if err := s.onReset(&frame{id: 1, code: cancelled}); err != nil {
				t.Fatal(err)
			}
			if s.glitch.used != c.cost {
				t.Errorf("%v points, want %v", s.glitch.used, c.cost)
			}
		})
	}
}
