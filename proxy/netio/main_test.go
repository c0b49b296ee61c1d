package netio_test

import (
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of a test.
const patience = 20 * time.Second

// sockets returns the two ends of a TCP connection on loopback.
func sockets(t testing.TB) (near, far *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := ln.Accept()
	if err != nil {
		_ = nc.Close()
		t.Fatal(err)
	}
	near, far = nc.(*net.TCPConn), other.(*net.TCPConn)
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
	})
	return near, far
}

// soon is when a test gives up.
func soon() time.Time { return time.Now().Add(patience) }

// pipe returns an in-memory connection, whose clock is that of a bubble.
func pipe(t testing.TB) (*netio.Conn, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
	})
	return netio.New(near), far
}

// wrapped hides what kind of socket a connection is, so that nothing but its methods can be used.
type wrapped struct{ net.Conn }

func (w wrapped) CloseWrite() error { return w.Conn.(*net.TCPConn).CloseWrite() }
