package netio_test

import (
	"net"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// TestLimitUnsent: of what a peer does not read, the kernel takes little beyond what it can send (else some megabytes); once the
// peer reads, all of it arrives.
func TestLimitUnsent(t *testing.T) {
	const (
		limit = 64 << 10
		much  = 16 << 20
	)
	near, far := sockets(t)
	if err := far.SetReadBuffer(limit); err != nil {
		t.Fatal(err)
	}
	c := netio.New(near)
	if err := c.LimitUnsent(limit); err != nil {
		t.Fatal(err)
	}
	taken, err := c.TryWrite(make([]byte, much))
	if err != nil {
		t.Fatal(err)
	}
	unsent := 0
	raw, err := near.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if e := raw.Control(func(fd uintptr) { unsent, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
	if unsent > limit+64<<10 { // it looks before each packet
		t.Errorf("%d octets of %d wait in the kernel", unsent, taken)
	}
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() { _, _ = c.Write(make([]byte, much-taken), patience) })
	reader, b := netio.New(far), make([]byte, 1<<20)
	for got := 0; got < much; {
		n, err := reader.Read(b, soon())
		if err != nil {
			_ = near.Close()
			t.Fatalf("after %d octets: %v", got, err)
		}
		got += n
	}
}

// TestLimitUnsentOfNoSocket: there is nothing to bound.
func TestLimitUnsentOfNoSocket(t *testing.T) {
	ours, theirs := net.Pipe()
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	if err := netio.New(ours).LimitUnsent(1); err != nil {
		t.Error(err)
	}
}
