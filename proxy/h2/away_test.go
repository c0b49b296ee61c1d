package h2_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sidecar-mesh/sidecar/proxy/upstream"
)

func ok200(p *peer, id uint32) { p.headers(id, true, ":status", "200") }

// TestLeavingInTwoSteps (H2-GA-002, H2-GA-012): a drain asks first and waits a round trip, serves what was on its way,
// passes over what comes later without losing count of windows and compression, and closes when all is done.
func TestLeavingInTwoSteps(t *testing.T) {
	release := make(chan struct{})
	origin, _ := serveHTTP(t, true, func(_ http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/slow" {
			<-release
		}
	})
	r := newRig(t, setup{config: plain2, origins: []string{origin}})
	c := r.dial2()
	c.deaf = true
	c.headers(1, true, path("/slow")...)
	for open := 0; open == 0; open, _ = r.server.Counts() { //nolint:revive // until it is there
		<-time.After(time.Millisecond)
	}
	r.server.Drain()
	c.want("GOAWAY 2147483647 NO_ERROR")
	c.headers(3, true, with(path("/"), "x-new", "one")...) // was on its way
	c.want("HEADERS#3 200 ES")
	c.mu.Lock()
	_ = c.out.WritePing(true, [8]byte{'s', 'i', 'd', 'e', 'c', 'a', 'r', '!'})
	c.mu.Unlock()
	c.want("GOAWAY 3 NO_ERROR")
	c.headers(5, false, with(post, "x-late", "two")...) // comes too late
	c.data(5, true, make([]byte, 1000))
	c.reset(5, http2.ErrCodeCancel)
	close(release)
	c.want("HEADERS#1 200 ES")
	if _, err := c.next(); err == nil {
		t.Error("the connection stays")
	}
	r.settled()
}

// TestDrainOfLateAndIdle: connections that come while the server drains are told so, behind their first settings; idle ones
// go at once when they have answered, and soon when they do not.
func TestDrainOfLateAndIdle(t *testing.T) {
	r := newRig(t, setup{config: plain2, origins: []string{"127.0.0.1:1"}})
	idle, silent := r.dial2(), r.dial2()
	silent.deaf = true
	if !eventually(func() bool { open, _ := r.server.Counts(); return open == 2 }) {
		t.Fatal("not connected")
	}
	r.server.Drain()
	late := r.dial2()
	for _, c := range []*peer{idle, late} {
		if e, err := c.frame(); err != nil || e.kind != http2.FrameSettings {
			t.Fatalf("%v %v instead of settings", e, err)
		}
		c.want("GOAWAY 2147483647 NO_ERROR")
		c.want("GOAWAY 0 NO_ERROR")
		if e, err := c.next(); err == nil {
			t.Errorf("%v instead of the end", e)
		}
	}
	start := time.Now()
	if !eventually(func() bool { return r.server.CloseIdle(time.Now(), 50*time.Millisecond) == 0 }) {
		t.Error("the silent one stays")
	}
	if took := time.Since(start); took > patience/2 {
		t.Errorf("it took %v", took)
	}
}

// TestClientGoesAway (H2-GA-008): a client that says that it leaves has its streams finished, and then the end.
func TestClientGoesAway(t *testing.T) {
	release := make(chan struct{})
	origin, _ := serveHTTP(t, true, func(http.ResponseWriter, *http.Request) { <-release })
	r := newRig(t, setup{config: plain2, origins: []string{origin}})
	c := r.dial2()
	c.headers(1, true, get...)
	c.headers(3, true, get...)
	c.goAway(0, http2.ErrCodeNo)
	c.want("GOAWAY 3 NO_ERROR")
	close(release)
	seen := c.rest()
	if seen["HEADERS 200 ES"] != 2 || seen["end"] != 1 {
		t.Error(seen)
	}
}

// connections counts those of an origin and gives each its number.
type connections struct{ n atomic.Int64 }

// TestServerGoesAway (H2-GA-004): of the streams on a connection that its server leaves, those it has seen go on, and the
// others are sent again elsewhere, whatever their method and without any retry policy.
func TestServerGoesAway(t *testing.T) {
	var cs connections
	var mu sync.Mutex
	var second []string
	origin := serve2(t, nil, func(p *peer) {
		first := cs.n.Add(1) == 1
		var ids []uint32
		for {
			e, err := p.next()
			if err != nil {
				return
			}
			if !first && e.kind == http2.FrameHeaders {
				mu.Lock()
				second = append(second, e.get(":method")+" "+e.get(":path"))
				mu.Unlock()
			}
			switch {
			case !e.end:
			case !first:
				ok200(p, e.id)
			default:
				if ids = append(ids, e.id); len(ids) == 4 {
					p.goAway(3, http2.ErrCodeNo)
					ok200(p, 1)
					p.headers(3, false, ":status", "200")
					p.data(3, true, []byte("late"))
				}
			}
		}
	})
	r := newRig(t, setup{config: plain2, origins: []string{origin}})
	c := r.dial2()
	for i := range 4 {
		id := uint32(2*i + 1)
		c.headers(id, false, ":method", "POST", ":scheme", "http", ":path", fmt.Sprint("/", id), ":authority", "svc")
		c.data(id, true, []byte("body"))
		if i == 0 {
			for cs.n.Load() == 0 { // one connection for all
				<-time.After(time.Millisecond)
			}
		}
	}
	statuses := map[uint32]string{}
	for len(statuses) < 4 {
		e, err := c.next()
		if err != nil {
			t.Fatal(err, statuses)
		}
		if e.has(":status") {
			statuses[e.id] = e.get(":status")
		}
	}
	for id, s := range statuses {
		if s != "200" {
			t.Errorf("stream %d: %s", id, s)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(second) != 2 || cs.n.Load() != 2 {
		t.Errorf("on %d connections, %v on the second", cs.n.Load(), second)
	}
	r.settled()
}

// TestServerLeavesInTwoSteps (H2-GA-005): after the first GOAWAY nothing new goes there, and what is there stays; when it
// is done, we close.
func TestServerLeavesInTwoSteps(t *testing.T) {
	var cs connections
	ended := make(chan struct{}, 4)
	proceed := make(chan struct{})
	origin := serve2(t, nil, func(p *peer) {
		n := cs.n.Add(1)
		for {
			e, err := p.next()
			if err != nil {
				ended <- struct{}{}
				return
			}
			switch {
			case n > 1:
				ok200(p, e.id)
			case e.id == 1:
				p.goAway(1<<31-1, http2.ErrCodeNo)
				<-proceed
				p.goAway(1, http2.ErrCodeNo)
				ok200(p, 1)
			default:
				ok200(p, e.id) // it was on its way
			}
		}
	})
	r := newRig(t, setup{config: plain2, origins: []string{origin}})
	c := r.dial2()
	c.headers(1, true, get...)
	eventually(func() bool { return cs.n.Load() == 1 })
	for id := uint32(3); cs.n.Load() < 2; id += 2 { // until the GOAWAY is known
		c.headers(id, true, get...)
		if cs.n.Load() < 2 {
			<-time.After(5 * time.Millisecond)
		}
	}
	close(proceed)
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("a connection whose server left is kept without a stream")
	}
	r.settled()
	if cs.n.Load() != 2 {
		t.Errorf("%d connections", cs.n.Load())
	}
}

// TestPeerLimits (H2-MX-001 … H2-MX-004): the streams that a server allows are kept to, also when it changes its mind.
func TestPeerLimits(t *testing.T) {
	limit := func(n uint32) http2.Setting {
		return http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: n}
	}
	for _, max := range []int{1, 0} { // connections; 0: as many as it takes
		t.Run(fmt.Sprint(max), func(t *testing.T) {
			var cs connections
			origin := serve2(t, []http2.Setting{limit(2)}, func(p *peer) {
				cs.n.Add(1)
				open := 0
				for {
					e, err := p.next()
					if err != nil {
						return
					}
					if open++; open > 2 {
						t.Errorf("%d streams at once", open)
					}
					go func(id uint32) { //nolint:gosec // ends with its sleep
						<-time.After(5 * time.Millisecond)
						ok200(p, id)
					}(e.id)
					<-time.After(6 * time.Millisecond)
					open--
				}
			})
			r := newRig(t, setup{
				config: plain2, origins: []string{origin},
				pool: func(s *upstream.Settings) {
					if max > 0 {
						s.MaxOpen = max
					}
				},
			})
			c := r.dial2()
			for i := range 10 {
				c.headers(uint32(2*i+1), true, get...)
			}
			for range 10 {
				if e, err := c.next(); err != nil || e.get(":status") != "200" {
					t.Fatal(e, err)
				}
			}
			if max > 0 && cs.n.Load() != int64(max) {
				t.Errorf("%d connections", cs.n.Load())
			}
			r.settled()
		})
	}
	t.Run("none", func(t *testing.T) { // H2-MX-003
		var cs connections
		origin := serve2(t, []http2.Setting{limit(0)}, func(p *peer) {
			cs.n.Add(1)
			p.rest()
		})
		r := newRig(t, setup{config: strings.Replace(plain2, "breaker: none", "timeout: 300ms, breaker: none", 1), origins: []string{origin}})
		c := r.dial2()
		c.headers(1, true, get...)
		if head, _, _, err := c.answer(1); err != nil || head.get(":status")[0] != '5' {
			t.Error(head, err)
		}
		if cs.n.Load() != 1 {
			t.Errorf("%d connections to a server that takes no stream", cs.n.Load())
		}
		r.settled()
	})
	t.Run("lowered", func(t *testing.T) { // H2-MX-002
		var live atomic.Int64
		release := make(chan struct{})
		origin := serve2(t, []http2.Setting{limit(2)}, func(p *peer) {
			var ids []uint32
			for {
				e, err := p.next()
				if err != nil {
					return
				}
				if e.kind == http2.FrameRSTStream {
					t.Error(e)
				}
				if e.kind != http2.FrameHeaders {
					return
				}
				live.Add(1)
				if ids = append(ids, e.id); len(ids) == 2 {
					p.settings(limit(1))
					<-release
					ok200(p, ids[0])
					ok200(p, ids[1])
				} else if len(ids) > 2 {
					ok200(p, e.id)
				}
			}
		})
		r := newRig(t, setup{config: plain2, origins: []string{origin}, pool: func(s *upstream.Settings) { s.MaxOpen = 1 }})
		c := r.dial2()
		for i := range 5 {
			c.headers(uint32(2*i+1), true, get...)
		}
		eventually(func() bool { return live.Load() == 2 })
		close(release)
		for range 5 {
			if e, err := c.next(); err != nil || e.get(":status") != "200" {
				t.Fatal(e, err)
			}
		}
		r.settled()
	})
	t.Run("refused", func(t *testing.T) { // H2-MX-004, GR-211
		var n atomic.Int64
		origin := serve2(t, nil, func(p *peer) {
			var refused []uint32
			for {
				e, err := p.next()
				switch {
				case err != nil:
					return
				case !e.end:
				case n.Add(1) < 3:
					refused = append(refused, e.id)
				case n.Load() == 3:
					for _, id := range append(refused, e.id) {
						p.reset(id, http2.ErrCodeRefusedStream)
					}
				default:
					ok200(p, e.id)
				}
			}
		})
		r := newRig(t, setup{config: plain2, origins: []string{origin}})
		c := r.dial2()
		for i := range 3 { // a POST, of which nothing was done
			c.headers(uint32(2*i+1), false, post...)
			c.data(uint32(2*i+1), true, []byte("x"))
		}
		for range 3 {
			if e, err := c.next(); err != nil || e.get(":status") != "200" {
				t.Error(e, err)
			}
		}
		if n.Load() != 6 {
			t.Errorf("%d requests", n.Load())
		}
		r.settled()
	})
}

// TestRefusedForGood: a server that refuses a stream again and again was asked for nothing: the answer says so, as for a
// connect that failed.
func TestRefusedForGood(t *testing.T) {
	var n atomic.Int64
	origin := serve2(t, nil, func(p *peer) {
		for {
			e, err := p.next()
			if err != nil {
				return
			}
			if e.kind == http2.FrameHeaders {
				n.Add(1)
				p.reset(e.id, http2.ErrCodeRefusedStream)
			}
		}
	})
	r := newRig(t, setup{config: plain2, origins: []string{origin}})
	c := r.dial2()
	c.headers(1, false, post...)
	c.data(1, true, []byte("x"))
	head, body, _, err := c.answer(1)
	if err != nil || head.get(":status") != "503" || head.get("x-sidecar-reason") != "connect_failed" {
		t.Errorf("%v %s %v", head.fields, body, err)
	}
	c.headers(3, false, grpc...)
	c.data(3, true, []byte{0, 0, 0, 0, 0})
	if head, _, _, err := c.answer(3); err != nil || head.get("grpc-status") != "14" {
		t.Errorf("%v %v", head.fields, err)
	}
	if n.Load() != 4 {
		t.Errorf("%d requests, each is sent again once", n.Load())
	}
	r.settled()
}

// TestNoHTTP2There (H2-MX-006, H2-MX-007): an endpoint that says nothing, or something else, is a failure with a name.
func TestNoHTTP2There(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"silent": func(nc net.Conn) { _, _ = io.Copy(io.Discard, nc) },
		"http/1": func(nc net.Conn) {
			_, _ = io.WriteString(nc, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
			_, _ = io.Copy(io.Discard, nc)
		},
		"closes":                   func(nc net.Conn) {},
		"dies behind its settings": func(nc net.Conn) { _, _ = nc.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			origin := serveConns(t, serve)
			r := newRig(t, setup{
				config: strings.Replace(plain2, "breaker: none", "connect_timeout: 200ms, timeout: 20s, breaker: none", 1), origins: []string{origin},
			})
			c := r.dial2()
			start := time.Now()
			c.headers(1, true, get...)
			head, body, _, err := c.answer(1)
			if err != nil || !slices.Contains([]string{"502", "503", "504"}, head.get(":status")) || time.Since(start) > 15*time.Second {
				t.Errorf("%v %s %v after %v", head, body, err, time.Since(start))
			}
			t.Logf("%v %s", head, body)
			if !eventually(func() bool { open, _, _ := r.pools()[0].Counts(); return open == 0 }) {
				t.Error("the dead connection is kept")
			}
			r.settled()
		})
	}
}
