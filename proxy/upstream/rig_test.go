package upstream_test

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sidecar-mesh/sidecar/internal/loopback"
	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of a test.
const patience = time.Minute

func soon() time.Time { return time.Now().Add(patience) }

// origin accepts connections and leaves them to the test.
type origin struct {
	t        testing.TB
	ln       net.Listener
	accepted chan *net.TCPConn
}

func newOrigin(t testing.TB) *origin {
	t.Helper()
	ln, err := net.Listen("tcp", loopback.Own()+":0") // nobody listens there when it is closed
	if err != nil {
		t.Fatal(err)
	}
	o := &origin{t: t, ln: ln, accepted: make(chan *net.TCPConn, 10_000)}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			o.accepted <- nc.(*net.TCPConn)
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		done.Wait()
		close(o.accepted)
		for nc := range o.accepted {
			_ = nc.Close()
		}
	})
	return o
}

func (o *origin) address() string { return o.ln.Addr().String() }

// next is the far end of the connection that was opened next.
func (o *origin) next() *net.TCPConn {
	o.t.Helper()
	select {
	case nc := <-o.accepted:
		o.t.Cleanup(func() { _ = nc.Close() })
		return nc
	case <-time.After(patience):
		o.t.Fatal("no connection came")
		return nil
	}
}

// deaf returns the address of a listener whose queue is full, so that connecting to it takes for ever, and a function that
// makes it listen.
func deaf(t testing.TB) (address string, listen func()) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: sa.(*syscall.SockaddrInet4).Port}
	for { // until one does not get through any more
		nc, err := net.DialTimeout("tcp", at.String(), 300*time.Millisecond)
		if err != nil {
			break
		}
		t.Cleanup(func() { _ = nc.Close() })
	}
	return at.String(), func() {
		if err := syscall.Listen(fd, 4096); err != nil {
			t.Error(err)
		}
	}
}

// counter is an Observer.
type counter struct {
	mu                               sync.Mutex
	opened, closed, idle, failed, to int
}

func (c *counter) Opened(time.Duration) { c.add(&c.opened, 1) }
func (c *counter) Closed()              { c.add(&c.closed, 1) }
func (c *counter) Idle(delta int)       { c.add(&c.idle, delta) }

func (c *counter) ConnectFailed(timeout bool) {
	c.add(&c.failed, 1)
	if timeout {
		c.add(&c.to, 1)
	}
}

func (c *counter) add(n *int, d int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n += d
}

func (c *counter) now() (opened, closed, idle, failed, timeouts int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened, c.closed, c.idle, c.failed, c.to
}

type rig struct {
	*upstream.Pool
	t       testing.TB
	counter *counter
}

func newPool(t testing.TB, address string, s upstream.Settings) *rig {
	t.Helper()
	w, err := netio.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	c := new(counter)
	p := &rig{upstream.New(address, s, w, c), t, c}
	t.Cleanup(func() {
		p.Close()
		w.Close()
	})
	return p
}

// get gets a connection that must be had.
func (p *rig) get(fresh bool) *upstream.Conn {
	p.t.Helper()
	c, err := p.Get(fresh, patience, soon())
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// counts waits until the pool has so many connections.
func (p *rig) counts(open, idle, waiting int) {
	p.t.Helper()
	var o, i, w int
	for end := soon(); time.Now().Before(end); {
		if o, i, w = p.Counts(); o == open && i == idle && w == waiting {
			return
		}
	}
	p.t.Fatalf("%d open, %d idle, %d waiting; want %d, %d, %d", o, i, w, open, idle, waiting)
}

// got is what a Get of another goroutine came to.
type got struct {
	conn *upstream.Conn
	err  error
}

// wait starts a Get that has to wait, and returns when it does.
func (p *rig) wait(fresh bool, until time.Time) chan got {
	p.t.Helper()
	open, idle, waiting := p.Counts()
	done := make(chan got, 1)
	go func() {
		c, err := p.Get(fresh, patience, until)
		done <- got{c, err}
	}()
	p.counts(open, idle, waiting+1)
	return done
}

func receive(t testing.TB, done chan got) got {
	t.Helper()
	select {
	case g := <-done:
		return g
	case <-time.After(patience):
		t.Fatal("Get does not return")
		return got{}
	}
}
