package h2_test

import (
	"bytes"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sidecar-mesh/sidecar/proxy/h2"
)

// TestResetsBehindGoAway (H2-DS-104): a client that opens streams, resets them, says GOAWAY and comes again gets no further
// than on one connection, and others are served meanwhile.
func TestResetsBehindGoAway(t *testing.T) {
	var now, most atomic.Int64
	origin := serveConns(t, func(nc net.Conn) { // takes everything, and answers /fair only
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		b := make([]byte, 4<<10)
		for {
			n, err := nc.Read(b)
			if err != nil {
				return
			}
			if bytes.Contains(b[:n], []byte("/fair")) {
				_, _ = nc.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
			}
		}
	})
	r := newRig(t, setup{config: plain1, origins: []string{origin}})
	fair := r.dial2()
	for round := range 20 {
		c := r.dial2()
		for i := range 100 {
			c.headers(uint32(2*i+1), true, get...)
			c.reset(uint32(2*i+1), http2.ErrCodeCancel)
		}
		c.goAway(0, http2.ErrCodeNo)
		_ = c.nc.Close()
		if got := told(fair, uint32(2*round+1), path("/fair")...); got != "HEADERS 204 ES" {
			t.Fatal(got)
		}
	}
	if !eventually(func() bool { return now.Load() <= 1 }) {
		t.Errorf("%d connections upstream stay", now.Load())
	}
	if most.Load() > 500 {
		t.Errorf("%d connections upstream at once", most.Load())
	}
	r.settled()
}

// TestHuffmanBombs (H2-DS-109): blocks of the longest codes are decoded within the bounds of any block, and end in the error
// of their stream or of the budget.
func TestHuffmanBombs(t *testing.T) {
	r := newRig(t, setup{config: plain1, origins: []string{"127.0.0.1:1"}})
	c := r.dial2()
	done := make(chan map[string]int, 1)
	go func() { done <- c.rest() }()
	code := hpack.AppendHuffmanString(nil, strings.Repeat("\x0a\x0d\x16", 20)) // 30 bits each
	field := append([]byte{0, 1, 'a', 0x7f | 0x80, byte(len(code) - 0x7f)}, code...)
	start := time.Now()
	n := 0
	for err := error(nil); err == nil && n < 2000; n++ {
		c.mu.Lock()
		err = open(c.out, uint32(2*n+1), true, block(bytes.Repeat(field, 60)...))
		c.mu.Unlock()
	}
	seen := <-done
	if seen["GOAWAY ENHANCE_YOUR_CALM"]+seen["reset"] == 0 || seen["hangs"] > 0 {
		t.Errorf("after %d blocks: %v", n, seen)
	}
	t.Logf("%d blocks in %v: %v", n, time.Since(start), seen)
	r.settled()
}

// TestLastIdentifier (H2-DS-113): a client may use the last identifier that there is, once; a connection of ours that comes
// near it is left for another.
func TestLastIdentifier(t *testing.T) {
	var cs connections
	origin := serve2(t, nil, func(p *peer) {
		cs.n.Add(1)
		for {
			e, err := p.next()
			if err != nil {
				return
			}
			if e.end {
				ok200(p, e.id)
			}
		}
	})
	r := newRig(t, setup{config: plain2, origins: []string{origin}})
	c := r.dial2()
	if got := told(c, 1<<31-1, get...); got != "HEADERS 200 ES" {
		t.Fatal(got)
	}
	c.headers(1<<31-3, true, get...)
	if seen := c.rest(); seen["GOAWAY PROTOCOL_ERROR"] != 1 {
		t.Errorf("an identifier below the last: %v", seen)
	}
	h2.Burn(r.pools()[0].(*h2.Pool))
	c = r.dial2()
	if got := told(c, 1, get...); got != "HEADERS 200 ES" || cs.n.Load() != 2 {
		t.Errorf("%s, on %d connections", got, cs.n.Load())
	}
	r.settled()
}

// TestConnectAbuse (H2-DS-114): tunnels that are opened and reset in a loop end in the error of the budget, their
// connections are bounded meanwhile, and none stays.
func TestConnectAbuse(t *testing.T) {
	var now, most atomic.Int64
	origin := serveConns(t, func(nc net.Conn) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		b := make([]byte, 1<<10)
		for {
			if _, err := nc.Read(b); err != nil {
				return
			}
		}
	})
	r := newRig(t, setup{
		config: "services: {svc: {protocol: tcp, listen: '127.0.0.1:9', endpoints: [ORIGIN], policy: {breaker: none, outlier: none}}}\n", origins: []string{origin},
	})
	c := r.dial2()
	done := make(chan map[string]int, 1)
	go func() { done <- c.rest() }()
	n := 0
	for err := error(nil); err == nil && n < 5000; n++ {
		id := uint32(2*n + 1)
		c.headers(id, false, ":method", "CONNECT", ":authority", "svc")
		c.mu.Lock()
		err = c.out.WriteRSTStream(id, http2.ErrCodeCancel)
		c.mu.Unlock()
	}
	seen := <-done
	if seen["GOAWAY ENHANCE_YOUR_CALM"]+seen["reset"] == 0 || seen["hangs"] > 0 {
		t.Errorf("after %d tunnels: %v", n, seen)
	}
	if most.Load() > 500 {
		t.Errorf("%d connections at once", most.Load())
	}
	if !eventually(func() bool { return now.Load() == 0 }) {
		t.Errorf("%d connections stay", now.Load())
	}
	r.settled()
}
