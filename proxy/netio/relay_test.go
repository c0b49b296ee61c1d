package netio_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// relayed is a client and a server with a relay between them.
type relayed struct {
	client, server *net.TCPConn
	flow           netio.Flow
	ended          chan netio.Ended
}

// relay starts one; wrap hides the sockets from it, so that nothing goes by the kernel.
func relay(t testing.TB, idle time.Duration, wrap bool) *relayed {
	t.Helper()
	client, a := sockets(t)
	b, server := sockets(t)
	r := &relayed{client: client, server: server, ended: make(chan netio.Ended, 1)}
	_ = client.SetDeadline(soon())
	_ = server.SetDeadline(soon())
	var na, nb net.Conn = a, b
	if wrap {
		na, nb = wrapped{a}, wrapped{b}
	}
	go func() {
		var act netio.Activity
		act.Start(time.Now(), idle)
		r.ended <- netio.Relay(netio.New(na), netio.New(nb), &act, &r.flow)
	}()
	return r
}

func (r *relayed) end(t testing.TB) netio.Ended {
	t.Helper()
	select {
	case e := <-r.ended:
		return e
	case <-time.After(patience):
		t.Fatal("the relay does not end")
		return netio.Ended{}
	}
}

// bothWays runs a test over sockets that the kernel copies between, and over others.
func bothWays(t *testing.T, f func(t *testing.T, wrap bool)) {
	t.Run("splice", func(t *testing.T) { f(t, false) })
	t.Run("copy", func(t *testing.T) { f(t, true) })
}

// stream is endless noise.
type stream struct{ rand.ChaCha8 }

func newStream(seed byte) *stream { return &stream{*rand.NewChaCha8([32]byte{seed})} }

// write writes n bytes in pieces of any size.
func (s *stream) write(w io.Writer, n int) error {
	sizes := rand.New(rand.NewPCG(uint64(n), 1))
	buf := make([]byte, 128<<10)
	for n > 0 {
		p := buf[:min(n, 1+sizes.IntN(len(buf)))]
		_, _ = s.Read(p)
		m, err := w.Write(p)
		if err != nil {
			return err
		}
		n -= m
	}
	return nil
}

// check reads up to the end and compares.
func (s *stream) check(r io.Reader) (n int, err error) {
	buf, want := make([]byte, 256<<10), make([]byte, 256<<10)
	for {
		m, err := r.Read(buf)
		_, _ = s.Read(want[:m])
		if !bytes.Equal(buf[:m], want[:m]) {
			return n, errors.New("other bytes than were sent")
		}
		if n += m; err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return n, err
		}
	}
}

// TestRelayStream (TC-010, TC-001): much, both ways at once; each side ends when it has sent all.
func TestRelayStream(t *testing.T) {
	size := 200 << 20
	if testing.Short() || raceEnabled {
		size = 20 << 20
	}
	bothWays(t, func(t *testing.T, wrap bool) {
		r := relay(t, patience, wrap)
		errs := make(chan error, 2)
		got := make(chan int, 2)
		for i, c := range []*net.TCPConn{r.client, r.server} {
			_ = c.SetDeadline(time.Now().Add(3 * patience))
			go func() {
				errs <- errors.Join(newStream(byte(i)).write(c, size), c.CloseWrite())
			}()
			go func() {
				n, err := newStream(byte(1 - i)).check(c)
				if err != nil {
					t.Error(err)
				}
				got <- n
			}()
		}
		for range 2 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
			if n := <-got; n != size {
				t.Errorf("%d bytes, want %d", n, size)
			}
		}
		if e := r.end(t); e.Err != nil || e.AToB != int64(size) || e.BToA != int64(size) {
			t.Errorf("%+v", e)
		}
	})
}

// TestRelayHalfClose (TC-001, TC-002, TC-015): one side ends first, in either order, and the other still says what it has
// to say, with what is on its way.
func TestRelayHalfClose(t *testing.T) {
	const size = 1 << 20
	bothWays(t, func(t *testing.T, wrap bool) {
		for name, swap := range map[string]bool{"client first": false, "server first": true} {
			t.Run(name, func(t *testing.T) {
				r := relay(t, patience, wrap)
				first, second := r.client, r.server
				if swap {
					first, second = second, first
				}
				go func() {
					_ = newStream(1).write(first, size)
					_ = first.CloseWrite()
				}()
				if n, err := newStream(1).check(second); n != size || err != nil {
					t.Fatalf("%d bytes, %v", n, err)
				}
				go func() { // only now
					_ = newStream(2).write(second, size)
					_ = second.CloseWrite()
				}()
				if n, err := newStream(2).check(first); n != size || err != nil {
					t.Fatalf("%d bytes back, %v", n, err)
				}
				if e := r.end(t); e.Err != nil || e.AToB != size || e.BToA != size {
					t.Errorf("%+v", e)
				}
			})
		}
	})
}

// TestRelayReset (TC-003, TC-004): a reset stays a reset.
func TestRelayReset(t *testing.T) {
	for name, swap := range map[string]bool{"client": false, "server": true} {
		t.Run(name, func(t *testing.T) {
			r := relay(t, patience, false)
			first, second := r.client, r.server
			if swap {
				first, second = second, first
			}
			_, _ = first.Write([]byte("x"))
			if n, err := second.Read(make([]byte, 4)); n != 1 || err != nil {
				t.Fatal(err)
			}
			netio.New(first).Reset()
			if _, err := second.Read(make([]byte, 4)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the other side sees %v", err)
			}
			if e := r.end(t); e.Err == nil || e.AtB != swap {
				t.Errorf("%v, at b: %v", e.Err, e.AtB)
			}
		})
	}
}

// TestRelayIdle (TC-007): silence on both sides ends it, in order; bytes in one direction keep it going.
func TestRelayIdle(t *testing.T) {
	const idle = 1200 * time.Millisecond
	bothWays(t, func(t *testing.T, wrap bool) {
		r := relay(t, idle, wrap)
		tick := time.NewTicker(idle / 4)
		defer tick.Stop()
		start := time.Now()
		for range 9 {
			<-tick.C
			_, _ = r.client.Write([]byte("x"))
			if _, err := r.server.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start); d < 2*idle {
			t.Fatalf("too quick to tell: %v", d)
		}
		last := time.Now()
		if _, err := r.server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the server sees %v", err)
		}
		if _, err := r.client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the client sees %v", err)
		}
		if e := r.end(t); !errors.Is(e.Err, netio.ErrTimeout) {
			t.Errorf("%+v", e)
		}
		if d := time.Since(last); d < idle/2 {
			t.Errorf("after %v", d)
		}
	})
}

// TestRelayBackpressure (TC-008): while one side does not read, little is held and the sender waits; then all arrives.
func TestRelayBackpressure(t *testing.T) {
	const size = 64 << 20
	bothWays(t, func(t *testing.T, wrap bool) {
		r := relay(t, patience, wrap)
		_ = r.server.SetReadBuffer(64 << 10)
		var sent atomic.Int64
		done := make(chan error, 1)
		go func() {
			err := newStream(1).write(writerFunc(func(p []byte) (int, error) {
				n, err := r.client.Write(p)
				sent.Add(int64(n))
				return n, err
			}), size)
			done <- errors.Join(err, r.client.CloseWrite())
		}()
		was, looks := int64(0), 0
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for looks < 10 { // until nothing moves any more
			<-tick.C
			if n := sent.Load(); n != was {
				was, looks = n, 0
			} else if was > 0 {
				looks++
			}
		}
		if was >= size/2 {
			t.Errorf("%d bytes sent while nobody reads", was)
		}
		if n, err := newStream(1).check(r.server); n != size || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = r.server.CloseWrite()
		if e := r.end(t); e.Err != nil {
			t.Errorf("%+v", e)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestRelaySlowReader: a side that takes bytes slowly, but does, is not idle, though all of it takes longer than the bound.
func TestRelaySlowReader(t *testing.T) {
	const size, idle = 16 << 20, 3 * time.Second
	bothWays(t, func(t *testing.T, wrap bool) {
		t.Parallel()
		r := relay(t, idle, wrap)
		_ = r.server.SetReadBuffer(32 << 10)
		go func() {
			_ = newStream(1).write(r.client, size)
			_ = r.client.CloseWrite()
		}()
		tick := time.NewTicker(idle / 200)
		defer tick.Stop()
		slow := readerFunc(func(p []byte) (int, error) {
			select {
			case <-tick.C:
			case <-r.ended: // it has given up
			}
			return r.server.Read(p[:min(len(p), 64<<10)])
		})
		if n, err := newStream(1).check(slow); n != size || err != nil {
			t.Errorf("%d of %d bytes, %v", n, size, err)
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestRelayBytes (TC-009): single bytes, in order and number.
func TestRelayBytes(t *testing.T) {
	count := 100_000
	if testing.Short() || raceEnabled {
		count = 10_000
	}
	r := relay(t, patience, false)
	go func() {
		s, p := newStream(1), make([]byte, 1)
		for range count {
			_, _ = s.Read(p)
			if _, err := r.client.Write(p); err != nil {
				return
			}
		}
		_ = r.client.CloseWrite()
	}()
	got := 0
	s, want, p := newStream(1), make([]byte, 1), make([]byte, 4096)
	for {
		n, err := r.server.Read(p)
		for _, c := range p[:n] {
			if _, _ = s.Read(want); c != want[0] {
				t.Fatalf("byte %d is not what was sent", got)
			}
			got++
		}
		if err != nil {
			break
		}
	}
	if got != count {
		t.Errorf("%d bytes, want %d", got, count)
	}
}

// TestCopyLimit: a copy takes its limit from the source and not a byte more, however much is there.
func TestCopyLimit(t *testing.T) {
	bothWays(t, func(t *testing.T, wrap bool) {
		for _, size := range []int{1, 100, 40 << 10, 100 << 10, 1 << 20} {
			far, src := sockets(t)
			dst, sink := sockets(t)
			var ns, nd net.Conn = src, dst
			if wrap {
				ns, nd = wrapped{src}, wrapped{dst}
			}
			in, out := netio.New(ns), netio.New(nd)
			const next = "GET /next HTTP/1.1\r\n\r\n"
			go func() {
				_ = newStream(1).write(far, size)
				_, _ = far.Write([]byte(next))
			}()
			go func() {
				_, _ = newStream(1).check(sink)
			}()
			var act netio.Activity
			act.Start(time.Now(), patience)
			var count atomic.Int64
			n, err := netio.Copy(out, in, int64(size), &act, &count)
			if n != int64(size) || count.Load() != n || err != nil {
				t.Fatalf("%d of %d bytes, %v", n, size, err)
			}
			got := make([]byte, len(next))
			for at := 0; at < len(got); {
				m, err := in.Read(got[at:], time.Now().Add(time.Second))
				if err != nil {
					t.Fatalf("copied %d bytes; of what stands behind them only %q is left: %v", size, got[:at], err)
				}
				at += m
			}
			if string(got) != next {
				t.Fatalf("copied %d bytes; behind them stands %q", size, got)
			}
		}
	})
}

// descriptors counts the open files of the process.
func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

// TestRelayIdleHoldsNoPipe: while nothing moves, a relay has its two sockets open and nothing else.
func TestRelayIdleHoldsNoPipe(t *testing.T) {
	const relays, size = 20, 4 << 20
	runtime.GC()
	before := descriptors(t)
	list := make([]*relayed, relays)
	for i := range list {
		list[i] = relay(t, patience, false)
		go func() { _ = newStream(1).write(list[i].client, size) }()
		if n, err := newStream(1).check(io.LimitReader(list[i].server, size)); n != size || err != nil {
			t.Fatal(n, err)
		}
	}
	// What the pool of pipes keeps goes with the second collection.
	most := before + 4*relays + 2
	for end := soon(); ; {
		runtime.GC()
		if n := descriptors(t); n <= most {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d open files, %d of them before, with %d idle relays", n, before, relays)
		}
	}
	for _, r := range list {
		_ = r.client.Close()
		_ = r.server.Close()
		r.end(t)
	}
}

// TestRelayNoLeak (TC-014, TC-018): many short connections leave nothing behind, however they end.
func TestRelayNoLeak(t *testing.T) {
	count := 1000
	if raceEnabled {
		count = 200
	}
	runtime.GC()
	files, goroutines := descriptors(t), runtime.NumGoroutine()
	for i := range count {
		r := relay(t, patience, i%5 == 4)
		_, _ = r.client.Write([]byte("hello"))
		switch i % 4 {
		case 0: // both at once
			_ = r.client.CloseWrite()
			_ = r.server.CloseWrite()
		case 1:
			go netio.New(r.client).Reset()
			netio.New(r.server).Reset()
		case 2:
			_ = r.client.Close()
			_ = r.server.CloseWrite()
		case 3:
			go netio.New(r.client).Reset()
			_ = r.server.Close()
		}
		r.end(t)
		_ = r.client.Close()
		_ = r.server.Close()
	}
	for end := soon(); ; {
		runtime.GC()
		n, g := descriptors(t), runtime.NumGoroutine()
		if n <= files+2 && g <= goroutines {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d open files, %d before; %d goroutines, %d before", n, files, g, goroutines)
		}
		runtime.Gosched()
	}
}
