package h2

import (
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// loose returns a stream of a session that has no connection: what it sends stays in its buffer.
func loose() *stream {
	s := &session{lim: &Limits{}, in: &frames{}, streams: map[uint32]*stream{}, sendWin: connWindow, flushing: true, outBox: new([]byte)}
	s.out = make([]byte, 0, roomy)
	s.peer = peerSettings{window: defaultWindow, frame: maxFrame}
	st := newStream()
	st.s, st.id, st.left, st.window, st.recvWin, st.sendWin, st.lastAt = s, 1, -1, streamWindow, streamWindow, defaultWindow, -1
	return st
}

// come has a DATA frame come in.
func come(t *testing.T, st *stream, text string, end bool) {
	t.Helper()
	f := &frame{kind: kindData, id: st.id, length: len(text), payload: []byte(text)}
	if end {
		f.flags |= flagEndStream
	}
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	st.s.in.at = time.Time{}
	if err := st.dataLocked(f); err != nil {
		t.Error(err)
	}
}

// got is what a wait for the next piece ended with.
type got struct {
	text string
	err  error
	at   time.Duration
}

// await has a goroutine wait for the next piece.
func await(st *stream, pass func([]byte) bool, idle time.Duration, until time.Time) chan got {
	ch, start := make(chan got, 1), time.Now()
	go func() {
		p, err := st.next(func(p []byte) (bool, pipeline.Sender) { return pass(p), nil }, idle, until)
		ch <- got{string(p), err, time.Since(start)}
	}()
	synctest.Wait()
	return ch
}

// TestPassedOn: what comes while its reader waits is passed on, until a piece is refused: that one and all behind it are
// the reader's, in their order.
func TestPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := loose()
		var passed []string
		takes := true
		pass := func(p []byte) bool {
			if takes {
				passed = append(passed, string(p))
			}
			return takes
		}
		ch := await(st, pass, time.Minute, time.Time{})
		come(t, st, "one", false)
		come(t, st, "two", false)
		takes = false
		come(t, st, "three", false)
		takes = true
		come(t, st, "four", false)
		g := <-ch
		if st.owed != 6 {
			t.Errorf("%d octets to be credited; want those of what was passed on", st.owed)
		}
		if g.text == "three" { // it was quick
			g = <-await(st, pass, time.Minute, time.Time{})
			g.text = "three" + g.text
		}
		if g.text != "threefour" || g.err != nil || strings.Join(passed, " ") != "one two" {
			t.Errorf("%+v behind %q", g, passed)
		}
		come(t, st, "five", false) // nobody waits
		if g := <-await(st, pass, time.Minute, time.Time{}); g.text != "five" {
			t.Errorf("%+v", g)
		}
		ch = await(st, pass, time.Minute, time.Time{})
		come(t, st, strings.Repeat("x", passMost+1), false)
		if g := <-ch; len(g.text) != passMost+1 {
			t.Errorf("a large piece: %d octets, %v", len(g.text), g.err)
		}
		ch = await(st, pass, time.Minute, time.Time{})
		come(t, st, "six", true) // the end is the reader's business, and what comes with it
		if g := <-ch; g.text != "six" {
			t.Errorf("%+v", g)
		}
		if g := <-await(st, pass, time.Minute, time.Time{}); !errors.Is(g.err, io.EOF) || len(passed) != 2 {
			t.Errorf("%+v behind %q", g, passed)
		}
	})
}

// TestPassedOnCountsAsActivity: a wait lasts idle from the last piece that was passed on, and never longer than its limit.
func TestPassedOnCountsAsActivity(t *testing.T) {
	for _, c := range []struct {
		name        string
		idle, limit time.Duration
		every       time.Duration
		pieces      int
		ends        time.Duration
	}{
		{name: "nothing comes", idle: time.Second, ends: time.Second},
		{name: "pieces come", idle: time.Second, every: 700 * time.Millisecond, pieces: 5, ends: 4500 * time.Millisecond},
		{name: "a limit", idle: time.Second, limit: 2 * time.Second, every: 700 * time.Millisecond, pieces: 5, ends: 2 * time.Second},
		{name: "only a limit", limit: 3 * time.Second, every: 700 * time.Millisecond, pieces: 2, ends: 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := loose()
				var until time.Time
				if c.limit > 0 {
					until = time.Now().Add(c.limit)
				}
				ch := await(st, func([]byte) bool { return true }, c.idle, until)
				for range c.pieces {
					time.Sleep(c.every)
					select {
					case g := <-ch:
						ch <- g
					default:
						come(t, st, "x", false)
					}
				}
				if g := <-ch; g.at != c.ends || !errors.Is(g.err, netio.ErrTimeout) || !st.late {
					t.Errorf("ended after %v with %v, late %v; want %v", g.at, g.err, st.late, c.ends)
				}
			})
		})
	}
}

// TestReaderWaitsForWhatIsPassed: whatever ends its wait, the reader does not go on with the exchange while a piece is being
// passed on.
func TestReaderWaitsForWhatIsPassed(t *testing.T) {
	for name, end := range map[string]struct {
		do   func(*stream)
		want error
	}{
		"time":      {func(*stream) { time.Sleep(2 * time.Second) }, netio.ErrTimeout},
		"interrupt": {func(st *stream) { st.s.mu.Lock(); st.interrupted = true; st.s.mu.Unlock(); st.reader.notify() }, netio.ErrInterrupted},
		"failure":   {func(st *stream) { st.s.mu.Lock(); st.failLocked(errIdle, false); st.s.mu.Unlock() }, errIdle},
	} {
		for _, takes := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					st := loose()
					running, goOn := false, make(chan struct{})
					ch := await(st, func([]byte) bool {
						running = true
						<-goOn
						running = false
						return takes
					}, 0, time.Now().Add(time.Second))
					go come(t, st, "piece", false)
					synctest.Wait()
					end.do(st)
					synctest.Wait()
					select {
					case g := <-ch:
						t.Fatalf("%+v while the piece is being passed on", g)
					default:
					}
					close(goOn)
					g := <-ch
					if running {
						t.Error("the piece is still being passed on")
					}
					if takes && !errors.Is(g.err, end.want) || !takes && g.text != "piece" {
						t.Errorf("%+v; want %v", g, end.want)
					}
				})
			})
		}
	}
}

// TestInterruptedBodyIsNotPassedOn: behind an interruption, what comes stays.
func TestInterruptedBodyIsNotPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := loose()
		ch := await(st, func([]byte) bool { t.Error("passed on"); return true }, 0, time.Time{})
		st.s.mu.Lock()
		st.interrupted = true
		st.s.mu.Unlock()
		come(t, st, "kept", false) // before the reader has woken
		if g := <-ch; g.text != "kept" {
			t.Errorf("%+v", g)
		}
	})
}

// TestOffer: a piece is sent at once only if it need not wait for anything, be it for those who wait already.
func TestOffer(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*stream)
		want   bool
	}{
		"open":                       {func(*stream) {}, true},
		"stream's window":            {func(st *stream) { st.sendWin = 4 }, false},
		"connection's window":        {func(st *stream) { st.s.sendWin = 4 }, false},
		"no room":                    {func(st *stream) { st.s.out = make([]byte, roomy) }, false},
		"others wait":                {func(st *stream) { st.s.inLine = 1 }, false},
		"stream is over":             {func(st *stream) { st.err = errIdle }, false},
		"connection is over":         {func(st *stream) { st.s.err = errIdle }, false},
		"end was sent":               {func(st *stream) { st.sentEnd = true }, false},
		"we gave the stream up":      {func(st *stream) { st.sentReset = true }, false},
		"a peer that takes little":   {func(st *stream) { st.s.peer.frame = 2 }, true},
		"just the window that it is": {func(st *stream) { st.sendWin = 5 }, true},
	} {
		st := loose()
		st.s.flushing = false
		c.change(st)
		before, window := len(st.s.out), st.sendWin
		got, later := st.offer([]byte("piece"))
		if got != c.want || c.want != (later != nil) {
			t.Errorf("%s: %v, to be sent by %v", name, got, later)
		}
		frames := (5 + st.s.peer.frame - 1) / st.s.peer.frame
		if sent := len(st.s.out) - before; c.want && (sent != 5+frames*frameHead || st.sendWin != window-5) || !c.want && (sent != 0 || st.sendWin != window) {
			t.Errorf("%s: %d octets sent, %d of the window used", name, sent, window-st.sendWin)
		}
	}
}

// TestSend: what was passed on is sent once, in its order and without waiting for a peer that takes nothing; a peer that is
// gone ends the session.
func TestSend(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	st := loose()
	s := st.s
	s.nc, s.out, s.flushing = netio.New(near), nil, false
	s.flusher = s.flush
	defer func() { _ = s.nc.Close() }()
	free := func() bool { // nothing is being sent
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.flushing && len(s.out) == 0
	}
	piece := strings.Repeat("x", 16000)
	sent, left := 0, 0 // pieces; those left to a goroutine that waits
	for left < 3 {
		st.sendWin, s.sendWin = maxWindow, maxWindow
		ok, later := st.offer([]byte(piece))
		if ok {
			sent++
		}
		switch {
		case later != nil:
			later.Send()
			if !free() {
				left++
			}
		case ok:
			left++ // behind what waits
		case left == 0:
			t.Fatal("a piece was refused while the peer takes all")
		default:
			left = 3 // no room
		}
	}
	if free() {
		t.Fatal("nothing waits for the peer")
	}
	want := sent * (frameHead + len(piece))
	head := appendHead(nil, len(piece), kindData, 0, st.id)
	for range sent {
		b := make([]byte, want/sent)
		if _, err := io.ReadFull(far, b); err != nil || string(b[:frameHead]) != string(head) || string(b[frameHead:]) != piece {
			t.Fatalf("%v, %x", err, b[:frameHead])
		}
	}
	for !free() {
		runtime.Gosched()
	}
	_ = far.Close()
	for range 1000 {
		if _, later := st.offer([]byte("piece")); later == nil {
			break
		} else {
			later.Send()
		}
	}
	if s.err == nil || !s.nc.Aborted() {
		t.Errorf("%v; the peer is gone", s.err)
	}
}
