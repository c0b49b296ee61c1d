package h2_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestSlowConnectionIsAvoided: a connection on which a stream waited in vain gets no new ones until it shows life: by
// answering a PING, or another stream.
func TestSlowConnectionIsAvoided(t *testing.T) {
	for _, proof := range []string{"PING", "answer"} {
		t.Run(proof, func(t *testing.T) {
			var conns atomic.Int32
			served := make(chan int32, 8)
			waits := make(chan uint32, 1)
			first := make(chan *peer, 1)
			origin := serve2(t, nil, func(p *peer) {
				n := conns.Add(1)
				if n == 1 {
					p.deaf = true
					first <- p
				}
				for {
					e, err := p.next()
					if err != nil {
						return
					}
					switch e.get(":path") {
					case "/waits":
						waits <- e.id
					case "/":
						served <- n
						ok200(p, e.id)
					}
				}
			})
			r := newRig(t, setup{
				config:  strings.Replace(plain2, "policy:", "routes: [{match: {path: /hangs}, policy: {timeout: 50ms}}], policy:", 1),
				origins: []string{origin},
			})
			c := r.dial2()
			ask := func(id uint32, p, status string) {
				t.Helper()
				if got := told(c, id, path(p)...); !strings.HasPrefix(got, "HEADERS "+status) {
					t.Fatalf("%s: %s", p, got)
				}
			}
			went := func(id uint32) int32 {
				t.Helper()
				ask(id, "/", "200")
				return <-served
			}
			if n := went(1); n != 1 {
				t.Fatalf("on connection %d", n)
			}
			c.headers(3, true, path("/waits")...) // in no hurry
			other := <-waits
			ask(5, "/hangs", "504")
			if a, b := went(7), went(9); a != 2 || b != 2 {
				t.Fatalf("streams went to connections %d and %d", a, b)
			}
			p := <-first
			if proof == "PING" {
				p.mu.Lock()
				_ = p.out.WritePing(true, [8]byte{'s', 'i', 'd', 'e', 'c', 'a', 'r', '!'})
				p.mu.Unlock()
			} else {
				ok200(p, other)
				if e, err := c.next(); err != nil || e.id != 3 {
					t.Fatal(e, err)
				}
			}
			id := uint32(9)
			if !eventually(func() bool { id += 2; return went(id) == 1 }) {
				t.Error("it is avoided although it lives")
			}
		})
	}
}

// TestCalmIsObeyed (H2-GA-006): when an endpoint asks for calm, the next connection waits a little; a call that is in no
// hurry waits with it.
func TestCalmIsObeyed(t *testing.T) {
	var at [2]atomic.Int64
	var conns atomic.Int32
	origin := serve2(t, nil, func(p *peer) {
		n := conns.Add(1)
		if n <= 2 {
			at[n-1].Store(time.Now().UnixNano())
		}
		for {
			e, err := p.next()
			if err != nil {
				return
			}
			if e.kind == http2.FrameHeaders {
				ok200(p, e.id)
				if n == 1 {
					at[0].Store(time.Now().UnixNano())
					p.goAway(e.id, http2.ErrCodeEnhanceYourCalm)
				}
			}
		}
	})
	r := newRig(t, setup{config: plain2, origins: []string{origin}})
	c := r.dial2()
	if got := told(c, 1, get...); got != "HEADERS 200 ES" {
		t.Fatal(got)
	}
	if !eventually(func() bool { open, _, _ := r.pools()[0].Counts(); return open == 0 }) {
		t.Fatal("the connection stays")
	}
	if got := told(c, 3, get...); got != "HEADERS 200 ES" {
		t.Fatal(got)
	}
	if took := time.Duration(at[1].Load() - at[0].Load()); took < 90*time.Millisecond {
		t.Errorf("the next connection came after %v", took)
	}
	r.settled()
}

// TestStreamGivenUpForCalm: an endpoint that resets a stream with ENHANCE_YOUR_CALM is overloaded, which is what the caller
// is told, and the next connection to it waits a little.
func TestStreamGivenUpForCalm(t *testing.T) {
	for name, tc := range map[string]struct {
		head []string
		want string
	}{
		"HTTP": {get, "503 "},
		"gRPC": {grpc, "200 14"},
	} {
		t.Run(name, func(t *testing.T) {
			var at [2]atomic.Int64
			var conns atomic.Int32
			origin := serve2(t, nil, func(p *peer) {
				n := conns.Add(1)
				if n <= 2 {
					at[n-1].Store(time.Now().UnixNano())
				}
				for {
					e, err := p.next()
					if err != nil {
						return
					}
					switch {
					case e.kind != http2.FrameHeaders:
					case n > 1:
						ok200(p, e.id)
					default:
						at[0].Store(time.Now().UnixNano())
						p.reset(e.id, http2.ErrCodeEnhanceYourCalm)
						p.goAway(e.id, http2.ErrCodeNo)
					}
				}
			})
			r := newRig(t, setup{config: plain2, origins: []string{origin}})
			c := r.dial2()
			c.headers(1, true, tc.head...)
			head, _, _, err := c.answer(1)
			if got := head.get(":status") + " " + head.get("grpc-status"); err != nil || got != tc.want || head.get("x-sidecar-reason") != "overloaded" {
				t.Errorf("%s by %v, %v; want %s by overloaded", got, head, err, tc.want)
			}
			if !eventually(func() bool { open, _, _ := r.pools()[0].Counts(); return open == 0 }) {
				t.Fatal("the connection stays")
			}
			if got := told(c, 3, get...); got != "HEADERS 200 ES" {
				t.Fatal(got)
			}
			if took := time.Duration(at[1].Load() - at[0].Load()); took < 90*time.Millisecond {
				t.Errorf("the next connection came after %v", took)
			}
			r.settled()
		})
	}
}
