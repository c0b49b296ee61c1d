package h2_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sidecar-mesh/sidecar/proxy/h2"
)

func window(n uint32) http2.Setting {
	return http2.Setting{ID: http2.SettingInitialWindowSize, Val: n}
}

func path(p string) []string {
	return []string{":method", "GET", ":scheme", "http", ":path", p, ":authority", "svc"}
}

// TestSlowStreamsHoldOnlyTheirWindows (H2-FC-101, H2-FC-102): forty streams that the client does not read stop their origin
// after little, and not the streams beside them, which share both connections with them.
func TestSlowStreamsHoldOnlyTheirWindows(t *testing.T) {
	for name, piece := range map[string]int{"large pieces": 16 << 10, "small pieces": 1 << 10} {
		t.Run(name, func(t *testing.T) { slowStreams(t, piece) })
	}
}

func slowStreams(t *testing.T, piece int) {
	var sent atomic.Int64
	origin, _ := serveHTTP(t, true, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/small" {
			_, _ = io.WriteString(w, "ok")
			return
		}
		buf := make([]byte, piece)
		for range 10 << 20 / len(buf) {
			n, err := w.Write(buf)
			sent.Add(int64(n))
			if err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
		}
	})
	r := newRig(t, setup{config: plain2, origins: []string{origin}})
	c := r.dial2()
	c.greedy = true
	const slow = 40
	for i := range slow {
		c.headers(uint32(2*i+1), true, path("/large")...)
	}
	c.credit(0, 1<<30) // the streams' own windows are what stops them
	before := int64(-1)
	if !eventually(func() bool {
		n := sent.Load()
		still := n == before && n > 0
		before = n
		<-time.After(100 * time.Millisecond)
		return still
	}) {
		t.Error("the origin is not stopped")
	}
	// A stream: the client's window, ours, what waits between them, and the origin's own buffer.
	if n := sent.Load(); n > slow*(3*65536+64<<10) {
		t.Errorf("%d bytes were taken from the origin", n)
	}
	for i := range 50 {
		id := uint32(2*(slow+i) + 1)
		c.headers(id, true, path("/small")...)
		if head, body, _, err := c.answer(id); err != nil || head.get(":status") != "200" || string(body) != "ok" {
			t.Fatalf("%v %q %v", head, body, err)
		}
	}
	for i := range slow {
		c.reset(uint32(2*i+1), http2.ErrCodeCancel)
	}
	r.settled()
}

// TestWindowsAreRestored (H2-FC-103): thousands of streams that are over before their bodies have come cost the
// connection's window nothing; neither does padding.
func TestWindowsAreRestored(t *testing.T) {
	origin, _ := serveHTTP(t, true, func(w http.ResponseWriter, q *http.Request) {
		n, _ := io.Copy(io.Discard, q.Body)
		_, _ = fmt.Fprint(w, n)
	})
	r := newRig(t, setup{
		config: strings.Replace(plain2, "policy:", `routes: [{match: {path: /early}, respond: {status: 204}}], policy:`, 1), origins: []string{origin},
	})
	c := r.dial2()
	resets := 10_000
	if raceEnabled || testing.Short() {
		resets = 3000
	}
	window := make(chan int64, 1<<16) // credit that came
	ended := make(chan event, 1<<10)
	go func() {
		defer close(ended)
		for {
			e, err := c.frame()
			if err != nil {
				return
			}
			switch {
			case e.kind == http2.FrameWindowUpdate && e.id == 0:
				window <- int64(e.n)
			case e.kind == http2.FrameRSTStream, e.kind == http2.FrameGoAway, e.end && e.has(":status") == false, e.kind == http2.FrameWindowUpdate:
				ended <- e
			}
		}
	}()
	left := int64(65535)
	take := func(n int64) {
		for left < n {
			select {
			case w := <-window:
				left += w
			case <-time.After(patience):
				t.Fatalf("the connection's window stays at %d", left)
			}
		}
		left -= n
	}
	id := uint32(1)
	early := []string{":method", "POST", ":scheme", "http", ":path", "/early", ":authority", "svc"}
	padded := make([]byte, 100)
	for n := 0; n < resets; n++ {
		c.headers(id, false, early...)
		take(1024)
		c.mu.Lock()
		_ = c.out.WriteDataPadded(id, false, make([]byte, 1024-101), padded)
		c.mu.Unlock()
		if n%50 == 49 { // all of them are over
			for range 50 {
				select {
				case e := <-ended:
					if e.kind != http2.FrameRSTStream || e.code != http2.ErrCodeNo && e.code != http2.ErrCodeRefusedStream {
						t.Fatalf("after %d streams: %v", n, e)
					}
				case <-time.After(patience):
					t.Fatalf("after %d streams nothing comes", n)
				}
			}
		}
		id += 2
	}
	c.headers(id, false, post...)
	const upload = 10 << 20
	streamLeft := int64(65536)
	for sent := 0; sent < upload; {
		n := int64(16384)
		for streamLeft < n {
			select {
			case e := <-ended:
				if e.kind != http2.FrameWindowUpdate {
					t.Fatalf("%v while uploading", e)
				}
				if e.id == id {
					streamLeft += int64(e.n)
				}
			case <-time.After(patience):
				t.Fatalf("the upload stands after %d bytes", sent)
			}
		}
		take(n)
		streamLeft -= n
		sent += int(n)
		c.data(id, sent == upload, make([]byte, n))
	}
	for {
		select {
		case e := <-ended:
			if e.kind == http2.FrameData && e.id == id || e.kind == http2.FrameRSTStream {
				_ = c.nc.Close()
				for range ended {
				}
				r.settled()
				if e.kind != http2.FrameData || string(e.data) != "" && string(e.data) != fmt.Sprint(upload) {
					t.Errorf("%v %q", e, e.data)
				}
				return
			}
		case <-time.After(patience):
			t.Fatal("no answer to the upload")
		}
	}
}

// TestStalledStreamIsGivenUp (H2-FC-105): a client that lets nothing come is not waited for.
func TestStalledStreamIsGivenUp(t *testing.T) {
	origin, _ := serveHTTP(t, true, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) })
	r := newRig(t, setup{
		config: plain2, origins: []string{origin}, limits: func(l *h2.Limits) { l.IdleTimeout = time.Second },
	})
	c := r.dial2(window(0))
	c.headers(1, true, get...)
	c.want("HEADERS#1 200")
	if e, err := c.next(); err != nil || e.kind != http2.FrameRSTStream {
		t.Errorf("%v %v instead of a reset", e, err)
	}
	r.settled()
}

// TestWindowChanges (H2-FC-107): settings that change the windows of open streams up and down leave exact sums.
func TestWindowChanges(t *testing.T) {
	origin, _ := serveHTTP(t, true, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 100_000)) })
	r := newRig(t, setup{config: plain2, origins: []string{origin}})
	c := r.dial2(window(1000))
	c.greedy = true
	c.credit(0, 1<<30)
	const streams = 50
	for i := range streams {
		c.headers(uint32(2*i+1), true, get...)
	}
	got := map[uint32]int{}
	read := func(want int) {
		t.Helper()
		for full := 0; full < streams; {
			e, err := c.next()
			if err != nil {
				t.Fatal(err, got)
			}
			if e.kind == http2.FrameRSTStream || e.kind == http2.FrameGoAway {
				t.Fatal(e)
			}
			got[e.id] += len(e.data)
			if got[e.id] > want {
				t.Fatalf("stream %d got %d bytes of %d allowed", e.id, got[e.id], want)
			}
			if e.kind == http2.FrameData && got[e.id] == want {
				full++
			}
		}
	}
	read(1000)
	for i := range 200 {
		c.settings(window(uint32(1000 - 5*(i%200)))) // they sink below zero, and rise again
		c.settings(window(0))
		c.settings(window(900))
	}
	c.settings(window(5000))
	read(5000)
	for i := range streams {
		c.credit(uint32(2*i+1), 95_000)
	}
	read(100_000)
	r.settled()
}

// TestHeadsDoNotPileUp (H2-FC-106): a client that takes no answers cannot have us keep more and more of them.
func TestHeadsDoNotPileUp(t *testing.T) {
	large := strings.Repeat("x", 4000)
	r := newRig(t, setup{config: `
services:
  svc:
    endpoints: ["127.0.0.1:1"]
    routes: [{match: {path: /}, respond: {status: 204, headers: {X-Large: "` + large + `"}}}]
`})
	c := r.dial2()
	block := []byte{0x82, 0x86, 0x84, 0x01, 3, 's', 'v', 'c'}
	busy := func() bool {
		open, idle := r.server.Counts()
		return open != idle
	}
	id := uint32(1)
	for range 200 { // 40 MB in all; the system's own buffers take some
		for range 50 {
			_ = c.out.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: true, EndHeaders: true})
			id += 2
		}
		<-time.After(4 * time.Millisecond)
		for end := time.Now().Add(time.Second); busy(); runtime.Gosched() {
			if time.Now().After(end) {
				_ = c.nc.Close()
				r.settled()
				return
			}
		}
	}
	t.Error("40 MB of answers are kept for a client that takes none")
}

// far is an origin at the other end of a long link: it answers the PINGs that measure it late. It sends without end on each
// stream, as far as it may.
type far struct {
	sent atomic.Int64
	ends atomic.Bool // streams end with what may be sent
}

func (f *far) serve(p *peer) {
	p.deaf = true
	conn, streams := int64(65535), map[uint32]int64{}
	for {
		e, err := p.frame()
		if err != nil {
			return
		}
		switch {
		case e.kind == http2.FramePing && !e.ack:
			time.AfterFunc(20*time.Millisecond, func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				_ = p.out.WritePing(true, [8]byte{'s', 'i', 'd', 'e', 'c', 'a', 'r', '?'})
			})
		case e.kind == http2.FrameHeaders:
			p.headers(e.id, false, ":status", "200")
			streams[e.id] = 64 << 10
		case e.kind == http2.FrameRSTStream:
			delete(streams, e.id)
		case e.kind == http2.FrameWindowUpdate && e.id == 0:
			conn += int64(e.n)
		case e.kind == http2.FrameWindowUpdate:
			streams[e.id] += int64(e.n)
		}
		for id, n := range streams {
			for n > 0 && conn > 0 {
				m := min(n, conn, 16384)
				end := f.ends.Load()
				p.data(id, end, make([]byte, m))
				f.sent.Add(m)
				conn, n = conn-m, n-m
				if streams[id] = n; end {
					delete(streams, id)
					break
				}
			}
		}
	}
}

// TestWindowsGrow: on a long link the window of a stream that is taken as it comes grows, within the budget of the process,
// which gets all back. When its client stops reading, the origin is stopped after the window that it has by then.
func TestWindowsGrow(t *testing.T) {
	for _, budget := range []int64{0, 300 << 10, 4 << 20} {
		t.Run(fmt.Sprint(budget), func(t *testing.T) {
			var f far
			origin := serve2(t, nil, f.serve)
			memory := h2.NewWindowMemory(budget)
			r := newRig(t, setup{config: plain2, origins: []string{origin}, limits: func(l *h2.Limits) { l.Windows = memory }})
			c := r.dial2(window(1 << 20))
			c.credit(0, 1<<30)
			c.headers(1, true, get...)
			var got atomic.Int64
			over := make(chan struct{})
			taking := atomic.Bool{}
			taking.Store(true)
			go func() {
				defer close(over)
				for {
					c.greedy = !taking.Load()
					e, err := c.next()
					if err != nil || e.kind == http2.FrameRSTStream {
						return
					}
					got.Add(int64(len(e.data)))
				}
			}()
			if !eventually(func() bool { return got.Load() > 4<<20 && memory.Used() >= min(budget, 1<<20) }) {
				t.Errorf("%d octets came, and %d are promised of %d", got.Load(), memory.Used(), budget)
			}
			taking.Store(false)
			before, looks := int64(0), 0
			if !eventually(func() bool {
				<-time.After(50 * time.Millisecond)
				now := f.sent.Load() + got.Load()
				if looks++; now != before {
					before, looks = now, 0
				}
				return looks == 5
			}) {
				t.Error("the origin is not stopped")
			}
			// What waits: our window, and a buffer on the way out.
			if held := f.sent.Load() - got.Load(); held > 64<<10+budget+128<<10 || memory.Used() > budget {
				t.Errorf("%d octets are held, %d promised of %d", held, memory.Used(), budget)
			}
			f.ends.Store(true)
			c.reset(1, http2.ErrCodeCancel)
			if !eventually(func() bool { return memory.Used() == 0 }) {
				t.Errorf("%d are not given back", memory.Used())
			}
			r.settled()
			_ = c.nc.Close()
			<-over
		})
	}
}
