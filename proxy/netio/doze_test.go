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
	if !c.Doze(10 * time.Millisecond) {
		t.Error("it is taken for left")
	}
	reads(t, c, "early")
	go func() { _, _ = far.Write([]byte("later")) }()
	reads(t, c, "later")

	ours, theirs := net.Pipe() // no socket
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	c = netio.New(ours)
	if !c.Doze(time.Millisecond) {
		t.Error("what is no socket is taken for left")
	}
	go func() { _, _ = theirs.Write([]byte("later")) }()
	reads(t, c, "later")
}

// TestDozeInVain: a connection whose peer leaves, or that is aborted, does not doze on, whatever is unread.
func TestDozeInVain(t *testing.T) {
	for name, leave := range map[string]func(c *netio.Conn, far net.Conn){
		"closed":  func(_ *netio.Conn, far net.Conn) { _ = far.Close() },
		"aborted": func(c *netio.Conn, _ net.Conn) { c.Abort() },
	} {
		t.Run(name, func(t *testing.T) {
			near, far := sockets(t)
			_, _ = far.Write([]byte("unread"))
			c := netio.New(near)
			leave(c, far)
			if c.Doze(time.Hour) {
				t.Error("it is taken for wanted")
			}
		})
	}
}

func reads(t *testing.T, c *netio.Conn, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if n, err := c.Read(b, time.Now().Add(time.Minute)); err != nil || string(b[:n]) != want {
		t.Fatalf("read %q, %v; want %q", b[:n], err, want)
	}
}
