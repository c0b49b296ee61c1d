package netio_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

func never() time.Time { return time.Time{} }

// TestReadDeadlines: a read ends when it was asked to, though the deadline of an earlier one is still armed.
func TestReadDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, far := pipe(t)
		start := time.Now()
		at := func(d time.Duration) time.Time { return start.Add(d) }
		send := func(d time.Duration) {
			go func() {
				time.Sleep(time.Until(at(d)))
				_, _ = far.Write([]byte("x"))
			}()
		}
		var b [8]byte
		for _, step := range []struct {
			what        string
			sent, until time.Duration // 0: not sent, never
			over        time.Duration
			err         error
		}{
			{"arms", time.Second, 10 * time.Second, time.Second, nil},
			{"later than armed", 0, 15 * time.Second, 15 * time.Second, netio.ErrTimeout},
			{"earlier than armed before", 16 * time.Second, 60 * time.Second, 16 * time.Second, nil},
			{"earlier", 0, 20 * time.Second, 20 * time.Second, netio.ErrTimeout},
			{"armed deadline passes unnoticed", 21 * time.Second, 25 * time.Second, 21 * time.Second, nil},
			{"bytes after it passed", 40 * time.Second, 50 * time.Second, 40 * time.Second, nil},
			{"never", time.Hour, 0, time.Hour, nil},
			{"over already", 0, time.Hour - time.Second, time.Hour, netio.ErrTimeout},
			{"bytes after a timeout", time.Hour + time.Second, 2 * time.Hour, time.Hour + time.Second, nil},
		} {
			if step.sent > 0 {
				send(step.sent)
			}
			until := never()
			if step.until > 0 {
				until = at(step.until)
			}
			_, err := c.Read(b[:], until)
			if !errors.Is(err, step.err) {
				t.Fatalf("%s: %v, want %v", step.what, err, step.err)
			}
			if got := time.Since(start); got != step.over {
				t.Fatalf("%s: over at %v, want %v", step.what, got, step.over)
			}
			synctest.Wait()
		}
	})
}

// TestReadLentElsewhere: on what is not a socket the buffer comes back all the same.
func TestReadLentElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, far := pipe(t)
		out := 0
		lend := func() []byte { out++; return make([]byte, 8) }
		back := func([]byte) { out-- }
		if _, _, err := c.ReadLent(lend, back, time.Now().Add(time.Second)); !errors.Is(err, netio.ErrTimeout) || out != 0 {
			t.Fatalf("%v, %d buffers out", err, out)
		}
		go func() { _, _ = far.Write([]byte("hi")) }()
		p, n, err := c.ReadLent(lend, back, never())
		if err != nil || string(p[:n]) != "hi" || out != 1 {
			t.Fatalf("%q, %v, %d buffers out", p[:n], err, out)
		}
		_ = far.Close()
		if _, _, err := c.ReadLent(lend, back, never()); !errors.Is(err, io.EOF) || out != 1 {
			t.Fatalf("%v, %d buffers out", err, out)
		}
	})
}

// TestWriteStall: a write ends when the peer takes nothing for so long, not when it takes little.
func TestWriteStall(t *testing.T) {
	const stall = time.Second
	data := bytes.Repeat([]byte("0123456789"), 10)
	synctest.Test(t, func(t *testing.T) {
		c, far := pipe(t)
		start := time.Now()
		if n, err := c.Write(data, stall); n != 0 || !errors.Is(err, netio.ErrTimeout) || time.Since(start) != stall {
			t.Fatalf("%d bytes, %v after %v", n, err, time.Since(start))
		}
		go func() { // takes a byte now and then, for much longer than the bound in all
			var b [1]byte
			for range len(data) {
				time.Sleep(stall * 9 / 10)
				_, _ = far.Read(b[:])
			}
		}()
		if n, err := c.Write(data, stall); n != len(data) || err != nil {
			t.Fatalf("%d bytes, %v after %v", n, err, time.Since(start))
		}
		// The deadline that was armed last passes while nothing is written; the next write has its full time again.
		time.Sleep(10 * stall)
		go func() {
			time.Sleep(stall * 9 / 10)
			_, _ = io.ReadFull(far, make([]byte, len(data)))
		}()
		if n, err := c.Write(data, stall); n != len(data) || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
	})
}

// TestWriteWithoutBound: a write that may take for ever is not ended by the deadline of an earlier one.
func TestWriteWithoutBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, far := pipe(t)
		read := func(after time.Duration, n int) {
			go func() {
				time.Sleep(after)
				_, _ = io.ReadFull(far, make([]byte, n))
			}()
		}
		read(0, 2)
		if _, err := c.Write([]byte("hi"), time.Second); err != nil {
			t.Fatal(err)
		}
		read(time.Hour, 5)
		start := time.Now()
		if n, err := c.Write([]byte("hello"), 0); n != 5 || err != nil || time.Since(start) != time.Hour {
			t.Fatalf("%d bytes, %v after %v", n, err, time.Since(start))
		}
	})
}

func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, far := pipe(t)
		var b [8]byte
		go func() {
			time.Sleep(time.Second)
			c.Interrupt()
		}()
		for range 2 { // the one in progress, and a later one
			if _, err := c.Read(b[:], never()); !errors.Is(err, netio.ErrInterrupted) {
				t.Fatal(err)
			}
		}
		if _, err := c.Read(b[:], time.Now().Add(time.Hour)); !errors.Is(err, netio.ErrInterrupted) {
			t.Fatal(err)
		}
		go func() { _, _ = far.Read(b[:]) }()
		if _, err := c.Write([]byte("x"), time.Second); err != nil {
			t.Fatal("writes go on: ", err)
		}
		c.Resume()
		go func() {
			time.Sleep(time.Hour)
			_, _ = far.Write([]byte("x"))
		}()
		if n, err := c.Read(b[:], never()); n != 1 || err != nil {
			t.Fatal("after Resume: ", err)
		}
		if c.Aborted() {
			t.Error("aborted")
		}
	})
}

func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := pipe(t)
		var b [8]byte
		go func() {
			time.Sleep(time.Second)
			c.Abort()
		}()
		if _, err := c.Read(b[:], never()); !errors.Is(err, netio.ErrInterrupted) {
			t.Fatal("the read in progress: ", err)
		}
		start := time.Now()
		for range 2 {
			if _, err := c.Read(b[:], start.Add(time.Hour)); !errors.Is(err, netio.ErrInterrupted) {
				t.Fatal("read: ", err)
			}
			if _, err := c.Write(b[:], time.Hour); !errors.Is(err, netio.ErrInterrupted) {
				t.Fatal("write: ", err)
			}
			if _, err := c.Write(b[:], 0); !errors.Is(err, netio.ErrInterrupted) {
				t.Fatal("write without bound: ", err)
			}
			c.Resume() // undoes Interrupt, never Abort
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("it took %v", d)
		}
		if !c.Aborted() {
			t.Error("not aborted")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c, _ := pipe(t)
		go func() {
			time.Sleep(time.Second)
			c.Abort()
		}()
		if _, err := c.Write(make([]byte, 8), time.Hour); !errors.Is(err, netio.ErrInterrupted) {
			t.Fatal("a write in progress: ", err)
		}
	})
}
