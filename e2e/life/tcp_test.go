package life

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// TestTCPEndings: the log says of a TCP connection when its endpoint ended it badly, and knows no HTTP status.
func TestTCPEndings(t *testing.T) {
	t.Parallel()
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		_ = c.Send("hello")
		b := make([]byte, 1)
		if _, err := c.Read(b); err == nil && b[0] == 'r' {
			c.Reset()
		}
	})
	live, dead := sidecartest.FreeAddress(t), sidecartest.FreeAddress(t)
	p := sidecartest.Run(t, `services:
  live: {protocol: tcp, listen: %q, endpoints: [%q]}
  dead: {protocol: tcp, listen: %q, endpoints: [%q]}`, live, origin.Address, dead, sidecartest.FreeAddress(t))
	for i, tc := range []struct {
		address, send, reason string
	}{
		{live, "r", "upstream_reset"},
		{live, "x", ""},
		{live, "", ""}, // the caller resets it
		{dead, "", "connect_failed"},
	} {
		nc, err := net.Dial("tcp", tc.address)
		if err == nil { // a reset may come as early as that
			_ = nc.SetDeadline(time.Now().Add(patience))
			if tc.address == live {
				_, _ = io.ReadFull(nc, make([]byte, len("hello")))
			}
			if tc.send != "" {
				_, _ = io.WriteString(nc, tc.send)
				_, _ = io.Copy(io.Discard, nc) // to its end, whichever that is
			} else if tc.address == live {
				_ = nc.(*net.TCPConn).SetLinger(0)
			}
			_ = nc.Close()
		}
		if r := p.Records(t, i+1)[i]; r.Protocol != "tcp" || r.Reason != tc.reason || r.Status != 0 {
			t.Errorf("%d: %+v", i, r)
		}
	}
}
