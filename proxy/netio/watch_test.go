package netio_test

import (
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

func newWatcher(t testing.TB) *netio.Watcher {
	t.Helper()
	w, err := netio.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// leaver passes on what it is told.
type leaver chan bool

func (l leaver) PeerLeft(reset bool) { l <- reset }

func (l leaver) wait(t testing.TB, want bool) {
	t.Helper()
	select {
	case got := <-l:
		if got != want {
			t.Errorf("reset %v, want %v", got, want)
		}
	case <-time.After(patience):
		t.Error("not told")
	}
}

func (l leaver) none(t testing.TB) {
	t.Helper()
	select {
	case reset := <-l:
		t.Errorf("told (reset %v), want nothing", reset)
	default:
	}
}

// TestWatcher: ends and resets are told, whether they come before or after; bytes are not.
func TestWatcher(t *testing.T) {
	w := newWatcher(t)
	add := func(t *testing.T, before func(far *net.TCPConn)) (*netio.Conn, *net.TCPConn, leaver) {
		near, far := sockets(t)
		if before != nil {
			before(far)
		}
		c, l := netio.New(near), make(leaver, 10)
		w.Add(c, l)
		t.Cleanup(func() { _ = c.Close() })
		return c, far, l
	}
	t.Run("FIN", func(t *testing.T) {
		_, far, l := add(t, nil)
		_, _ = far.Write([]byte("bytes first"))
		_ = far.CloseWrite()
		l.wait(t, false)
	})
	t.Run("RST", func(t *testing.T) {
		_, far, l := add(t, nil)
		netio.New(far).Reset()
		l.wait(t, true)
	})
	t.Run("FIN, then RST", func(t *testing.T) {
		_, far, l := add(t, nil)
		_ = far.CloseWrite()
		l.wait(t, false)
		netio.New(far).Reset()
		l.wait(t, true)
	})
	t.Run("FIN before", func(t *testing.T) {
		_, _, l := add(t, func(far *net.TCPConn) { _ = far.CloseWrite() })
		l.wait(t, false)
	})
	t.Run("bytes", func(t *testing.T) {
		c, far, l := add(t, nil)
		_, _ = far.Write([]byte("x"))
		if _, err := c.Read(make([]byte, 1), soon()); err != nil {
			t.Fatal(err)
		}
		// An end that is told after them shows that they were not.
		other, otherFar, told := add(t, nil)
		_ = otherFar.CloseWrite()
		told.wait(t, false)
		_ = other.Close()
		l.none(t)
	})
	t.Run("closed by us", func(t *testing.T) {
		c, far, l := add(t, nil)
		_ = c.Close()
		netio.New(far).Reset()
		_, otherFar, told := add(t, nil)
		_ = otherFar.CloseWrite()
		told.wait(t, false)
		l.none(t)
	})
	t.Run("not a socket", func(t *testing.T) {
		c, far := pipe(t)
		w.Add(c, make(leaver, 1))
		_ = far.Close()
		_ = c.Close()
	})
	t.Run("no watcher", func(t *testing.T) {
		near, _ := sockets(t)
		var none *netio.Watcher
		none.Add(netio.New(near), make(leaver, 1))
	})
	t.Run("closed before", func(t *testing.T) {
		near, _ := sockets(t)
		c, l := netio.New(near), make(leaver, 1)
		_ = c.Close()
		w.Add(c, l)
		l.none(t)
	})
}

// TestWatcherLoad: every one of many is told of its own peer, and of no other's, while connections come and go.
func TestWatcherLoad(t *testing.T) {
	w := newWatcher(t)
	runtime.GC()
	files := descriptors(t)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 250 {
				near, far := sockets(t)
				c, l := netio.New(near), make(leaver, 2)
				w.Add(c, l)
				switch (g + i) % 3 {
				case 0:
					_ = far.CloseWrite()
					l.wait(t, false)
				case 1:
					netio.New(far).Reset()
					l.wait(t, true)
				case 2:
					_, _ = io.WriteString(far, "x")
					_, _ = c.Read(make([]byte, 1), soon())
					l.none(t)
				}
				_ = c.Close()
				_ = far.Close()
			}
		})
	}
	all.Wait()
	for end := soon(); descriptors(t) > files+2; {
		if time.Now().After(end) {
			t.Fatalf("%d open files, %d before", descriptors(t), files)
		}
	}
}

// TestWatcherClose: closing ends the goroutine, with connections still watched.
func TestWatcherClose(t *testing.T) {
	w, err := netio.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	near, far := sockets(t)
	c := netio.New(near)
	w.Add(c, make(leaver, 1))
	w.Close()
	_ = far.Close()
	_ = c.Close()
}
