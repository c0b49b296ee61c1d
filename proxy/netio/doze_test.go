package netio_test

import (
	"net"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// TestDoze: what came while a connection dozed is read behind it, and so is what comes later, as soon as it is there.
func TestDoze(t *testing.T) {
	near, far := sockets(t)
	_, _ = far.Write([]byte("early"))
	c := netio.New(near)
	c.Doze(10 * time.Millisecond)
	reads(t, c, "early")
	go func() { _, _ = far.Write([]byte("later")) }()
	reads(t, c, "later")

	ours, theirs := net.Pipe() // no socket
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	c = netio.New(ours)
	c.Doze(time.Millisecond)
	go func() { _, _ = theirs.Write([]byte("later")) }()
	reads(t, c, "later")
}

func reads(t *testing.T, c *netio.Conn, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if n, err := c.Read(b, time.Now().Add(time.Minute)); err != nil || string(b[:n]) != want {
		t.Fatalf("read %q, %v; want %q", b[:n], err, want)
	}
}
