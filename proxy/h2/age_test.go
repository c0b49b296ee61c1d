package h2_test

import (
	"slices"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"github.com/sidecar-mesh/sidecar/proxy/h2"
)

// TestMaxRequestsDownstream: a client that has used up its connection is told so in two steps; what it has sent meanwhile
// is served.
func TestMaxRequestsDownstream(t *testing.T) {
	origin := replying(t, ok200)
	r := newRig(t, setup{config: plain2, origins: []string{origin}, limits: func(l *h2.Limits) { l.MaxRequests = 3 }})
	c := r.dial2()
	c.deaf = true
	for id := uint32(1); id <= 7; id += 2 {
		c.headers(id, true, get...)
	}
	var away []string
	served := 0
	for served < 4 {
		e, err := c.next()
		switch {
		case err != nil:
			t.Fatal(err)
		case e.kind == http2.FrameGoAway:
			away = append(away, e.String())
		case e.get(":status") == "200":
			served++
		}
	}
	if !slices.Equal(away, []string{"GOAWAY 2147483647 NO_ERROR"}) {
		t.Error(away)
	}
	c.mu.Lock()
	_ = c.out.WritePing(true, [8]byte{'s', 'i', 'd', 'e', 'c', 'a', 'r', '!'})
	c.mu.Unlock()
	c.want("GOAWAY 7 NO_ERROR")
	if _, err := c.next(); err == nil {
		t.Error("the connection stays")
	}
}

// TestMaxRequestsUpstream: a connection to an endpoint takes so many requests, its last ones finish, and it is closed.
func TestMaxRequestsUpstream(t *testing.T) {
	var mu sync.Mutex
	var conns []int // requests of each
	var over int
	release := make(chan struct{})
	origin := serve2(t, nil, func(p *peer) {
		mu.Lock()
		n := len(conns)
		conns = append(conns, 0)
		mu.Unlock()
		for {
			e, err := p.next()
			if err != nil {
				return
			}
			if e.kind == http2.FrameGoAway {
				mu.Lock()
				over++
				mu.Unlock()
			}
			if e.kind != http2.FrameHeaders {
				continue
			}
			mu.Lock()
			conns[n]++
			mu.Unlock()
			if e.get(":path") == "/slow" {
				go func() {
					<-release
					ok200(p, e.id)
				}()
				continue
			}
			ok200(p, e.id)
		}
	})
	r := newRig(t, setup{config: plain2, origins: []string{origin}, limits: func(l *h2.Limits) { l.MaxRequests = 4 }})
	// The client's own connection would end as well: one for every three requests.
	c := r.dial2()
	c.headers(1, true, path("/slow")...)
	ask := func(c *peer, id uint32) {
		t.Helper()
		if got := told(c, id, get...); got != "HEADERS 200 ES" {
			t.Fatal(got)
		}
	}
	ask(c, 3)
	for range 5 {
		d := r.dial2()
		ask(d, 1)
		ask(d, 3)
	}
	close(release)
	if e, err := c.next(); err != nil || e.String() != "HEADERS#1 200 ES" {
		t.Fatal(e, err)
	}
	if !eventually(func() bool { mu.Lock(); defer mu.Unlock(); return over == 3 }) {
		t.Errorf("%d connections were left", over)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(conns, []int{4, 4, 4}) {
		t.Errorf("requests of connections: %v", conns)
	}
	r.settled()
}
