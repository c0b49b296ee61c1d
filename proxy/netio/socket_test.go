package netio_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// TestReadLent: while a read waits on a socket it holds no buffer.
func TestReadLent(t *testing.T) {
	near, far := sockets(t)
	c := netio.New(near)
	var out atomic.Int32
	waiting := make(chan struct{}, 1)
	lend := func() []byte { out.Add(1); return make([]byte, 16) }
	back := func([]byte) {
		out.Add(-1)
		select {
		case waiting <- struct{}{}:
		default:
		}
	}
	type result struct {
		got string
		err error
	}
	done := make(chan result, 1)
	read := func(until time.Time) {
		p, n, err := c.ReadLent(lend, back, until)
		done <- result{string(p[:n]), err}
	}
	go read(soon())
	<-waiting
	if n := out.Load(); n != 0 {
		t.Fatalf("%d buffers held while waiting", n)
	}
	_, _ = far.Write([]byte("hello"))
	if r := <-done; r.got != "hello" || r.err != nil || out.Load() != 1 {
		t.Fatalf("%q, %v, %d buffers out", r.got, r.err, out.Load())
	}
	read(time.Now().Add(200 * time.Millisecond))
	if r := <-done; !errors.Is(r.err, netio.ErrTimeout) || out.Load() != 1 {
		t.Fatalf("%v, %d buffers out", r.err, out.Load())
	}
	<-waiting
	go read(soon())
	<-waiting
	c.Interrupt()
	if r := <-done; !errors.Is(r.err, netio.ErrInterrupted) || out.Load() != 1 {
		t.Fatalf("%v, %d buffers out", r.err, out.Load())
	}
	c.Resume()
	_ = far.CloseWrite()
	read(soon())
	if r := <-done; !errors.Is(r.err, io.EOF) || out.Load() != 1 {
		t.Fatalf("%v, %d buffers out", r.err, out.Load())
	}
	near, far = sockets(t)
	c = netio.New(near)
	netio.New(far).Reset()
	read(soon())
	if r := <-done; !errors.Is(r.err, syscall.ECONNRESET) || out.Load() != 1 {
		t.Fatalf("%v, %d buffers out", r.err, out.Load())
	}
}

// TestAsk: a request and its answer in one step, whether the request fits into the socket at once or not.
func TestAsk(t *testing.T) {
	for _, tc := range []struct {
		name string
		size int
		wrap bool
	}{
		{"small", 100, false},
		{"larger than the socket takes", 32 << 20, false},
		{"not a socket", 1 << 20, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			near, far := sockets(t)
			var nc net.Conn = near
			if tc.wrap {
				nc = struct{ net.Conn }{near}
			}
			c := netio.New(nc)
			request := bytes.Repeat([]byte("0123456789abcdef"), tc.size/16)
			go func() {
				for range 3 {
					got := make([]byte, len(request))
					if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, request) {
						_, _ = far.Write([]byte("no"))
						return
					}
					_, _ = far.Write([]byte("ok"))
				}
			}()
			out := 0
			lend := func() []byte { out++; return make([]byte, 16) }
			back := func([]byte) { out-- }
			for i := range 3 {
				sent, b, n, err := c.Ask(request, patience, lend, back, soon())
				if err != nil || sent != len(request) || string(b[:n]) != "ok" || out != i+1 {
					t.Fatalf("sent %d, got %q, %v, %d buffers out", sent, b[:n], err, out)
				}
			}
			if _, _, _, err := c.Ask([]byte("x"), patience, lend, back, time.Now().Add(10*time.Millisecond)); !errors.Is(err, netio.ErrTimeout) {
				t.Errorf("no answer: %v", err)
			}
			c.Abort()
			if sent, _, _, err := c.Ask([]byte("x"), patience, lend, back, soon()); sent != 0 || !errors.Is(err, netio.ErrInterrupted) {
				t.Errorf("after Abort: %d sent, %v", sent, err)
			}
		})
	}
}

// TestWriteToSocket: what a socket does not take at once is waited for, not lost and not sent twice; TryWrite does not wait.
func TestWriteToSocket(t *testing.T) {
	near, far := sockets(t)
	c := netio.New(near)
	data := make([]byte, 32<<20) // more than both sockets hold
	for i := range data {
		data[i] = byte(i * 7 / 5)
	}
	tried, err := c.TryWrite(data)
	if tried <= 0 || tried == len(data) || err != nil {
		t.Fatalf("%d octets of %d at once, %v", tried, len(data), err)
	}
	n, err := c.Write(data[tried:], 10*time.Millisecond)
	if !errors.Is(err, netio.ErrTimeout) {
		t.Fatalf("%d octets, %v; want a timeout", n, err)
	}
	tried += n
	// The deadline that is over does not matter to the next writes.
	if n, err = c.Write(data[tried:], 10*time.Millisecond); !errors.Is(err, netio.ErrTimeout) {
		t.Fatalf("%d octets, %v; want another timeout", n, err)
	}
	tried += n
	if n, err = c.TryWrite(data[tried:]); err != nil {
		t.Fatalf("%d octets, %v; a full socket is no error", n, err)
	}
	tried += n
	read := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(far)
		read <- b
	}()
	if n, err := c.Write(data[tried:], time.Minute); n != len(data)-tried || err != nil {
		t.Fatalf("%d octets of %d, %v", n, len(data)-tried, err)
	}
	_ = c.CloseWrite()
	if got := <-read; !bytes.Equal(got, data) {
		t.Errorf("%d octets came of %d, or others", len(got), len(data))
	}
	c.Abort()
	if _, err := c.TryWrite(data[:1]); !errors.Is(err, netio.ErrInterrupted) {
		t.Errorf("%v behind Abort", err)
	}
}

// TestWriteToGone: a peer that reset the connection is an error of the socket.
func TestWriteToGone(t *testing.T) {
	near, far := sockets(t)
	netio.New(far).Reset()
	c := netio.New(near)
	for range 100 { // the first octets may leave before the reset is noticed
		if _, err := c.TryWrite([]byte("x")); err != nil {
			if _, again := c.Write([]byte("x"), time.Second); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) || again == nil {
				t.Errorf("%v, then %v", err, again)
			}
			return
		}
	}
	t.Error("no error")
}

// TestBuffered: what is known of an idle connection without reading it.
func TestBuffered(t *testing.T) {
	near, far := sockets(t)
	c := netio.New(near)
	if waiting, err := c.Buffered(); waiting || err != nil {
		t.Fatalf("idle: %v, %v", waiting, err)
	}
	until := func(want bool, target error) {
		t.Helper()
		for end := soon(); time.Now().Before(end); {
			if waiting, err := c.Buffered(); waiting == want && errors.Is(err, target) {
				return
			}
		}
		waiting, err := c.Buffered()
		t.Fatalf("%v, %v; want %v, %v", waiting, err, want, target)
	}
	_, _ = far.Write([]byte("x"))
	until(true, nil)
	var b [4]byte
	if n, err := c.Read(b[:], soon()); n != 1 || err != nil {
		t.Fatal("it took the byte: ", err)
	}
	_ = far.CloseWrite()
	until(false, io.EOF)
	near, far = sockets(t)
	c = netio.New(near)
	netio.New(far).Reset()
	until(false, syscall.ECONNRESET)
	_ = c.Close()
	if _, err := c.Buffered(); err == nil {
		t.Error("closed, and nothing wrong")
	}
	in, _ := pipe(t)
	if waiting, err := in.Buffered(); waiting || err != nil {
		t.Errorf("in memory: %v, %v", waiting, err)
	}
}

// TestInterruptRaces: reads, interrupts and resumes from several goroutines; each interrupt ends a read, and none is lost.
func TestInterruptRaces(t *testing.T) {
	near, far := sockets(t)
	c := netio.New(near)
	lend := func() []byte { return make([]byte, 64) }
	back := func([]byte) {}
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = far.SetWriteDeadline(soon())
			if _, err := far.Write([]byte("some bytes")); err != nil {
				return
			}
		}
	})
	for i := range 2000 {
		var once sync.WaitGroup
		once.Go(func() { c.Interrupt() })
		until := soon()
		if i%3 == 0 {
			until = time.Time{}
		}
		for {
			var err error
			if i%2 == 0 {
				_, err = c.Read(make([]byte, 64), until)
			} else {
				_, _, err = c.ReadLent(lend, back, until)
			}
			if errors.Is(err, netio.ErrInterrupted) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		once.Wait()
		c.Resume()
	}
	close(stop)
	go func() { _, _ = io.Copy(io.Discard, near) }()
	writer.Wait()
	c.Abort()
	if _, err := c.Read(make([]byte, 64), soon()); !errors.Is(err, netio.ErrInterrupted) {
		t.Error(err)
	}
}

// TestAbortRaces: an abort ends reads and writes wherever they are.
func TestAbortRaces(t *testing.T) {
	for range 200 {
		near, _ := sockets(t)
		c := netio.New(near)
		var all sync.WaitGroup
		all.Go(func() {
			for {
				if _, err := c.Read(make([]byte, 64), soon()); err != nil {
					if !errors.Is(err, netio.ErrInterrupted) {
						t.Error(err)
					}
					return
				}
			}
		})
		all.Go(func() {
			b := make([]byte, 64<<10)
			for {
				if _, err := c.Write(b, patience); err != nil {
					if !errors.Is(err, netio.ErrInterrupted) {
						t.Error(err)
					}
					return
				}
			}
		})
		all.Go(c.Abort)
		all.Wait()
		_ = c.Close()
	}
}

// TestResetAndCloseWrite: what the peer sees.
func TestResetAndCloseWrite(t *testing.T) {
	near, far := sockets(t)
	c := netio.New(near)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = far.SetDeadline(soon())
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("behind CloseWrite: %v", err)
	}
	_, _ = far.Write([]byte("x"))
	if n, err := c.Read(make([]byte, 4), soon()); n != 1 || err != nil {
		t.Errorf("the other direction: %v", err)
	}
	c.Reset()
	for end := soon(); time.Now().Before(end); {
		if _, err := far.Write([]byte("x")); err != nil {
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Errorf("behind Reset: %v", err)
			}
			return
		}
	}
	t.Error("never seen")
}
