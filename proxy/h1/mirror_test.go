package h1_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// shadow is an origin that tells what it got and answers when it is told to.
type shadow struct {
	address string
	got     chan *http.Request
	bodies  chan string
	answer  chan struct{}
}

func newShadow(t *testing.T) *shadow {
	s := &shadow{got: make(chan *http.Request, 16), bodies: make(chan string, 16), answer: make(chan struct{})}
	s.address = newOrigin(t, func(nc *net.TCPConn) {
		in := bufio.NewReader(nc)
		for {
			q, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, err := io.ReadAll(q.Body)
			if err != nil {
				return
			}
			s.got <- q
			s.bodies <- string(body)
			if _, open := <-s.answer; !open {
				return
			}
			request{conn: nc}.answer("dropped")
		}
	})
	return s
}

func (s *shadow) next(t *testing.T) (*http.Request, string) {
	t.Helper()
	select {
	case q := <-s.got:
		return q, <-s.bodies
	case <-time.After(patience):
		t.Fatal("no copy came")
		return nil, ""
	}
}

func mirrored(t *testing.T, o *counted, s *shadow, how string) *rig {
	return newRig(t, setup{config: `
services:
  orders: {endpoints: [ORIGIN], policy: {mirror: {service: next, ` + how + `}}}
  next: {endpoints: [ORIGIN]}
`, origins: []string{o.address, s.address}})
}

// TestMirror: the copy says the same, body included; who asks waits for none of it, be the mirror as slow as it likes.
func TestMirror(t *testing.T) {
	o, s := newCounted(t), newShadow(t)
	c := mirrored(t, o, s, "ratio: 1").dial()
	expect(t, get(t, c, "GET /a?b=c HTTP/1.1\r\nHost: orders\r\nX-User: 7"), "200  real")
	q, _ := s.next(t)
	if q.RequestURI != "/a?b=c" || q.Host != "orders" || q.Header.Get("X-User") != "7" || q.Header.Get("X-Mirrored-From") != "orders" {
		t.Errorf("got %s of %s, %v", q.RequestURI, q.Host, q.Header)
	}
	expect(t, get(t, c, "GET /second HTTP/1.1\r\nHost: orders"), "200  real") // the first copy hangs
	s.next(t)
	s.answer <- struct{}{}
	s.answer <- struct{}{}
	send(t, c, "POST /p HTTP/1.1\r\nHost: orders\r\nContent-Length: 4\r\n\r\nbo")
	send(t, c, "dy")
	expect(t, said(t, c), "200 real")
	if q, body := s.next(t); q.Method != "POST" || body != "body" {
		t.Errorf("got %s %q", q.Method, body)
	}
	close(s.answer)
}

// TestMirrorBounds: at most in_flight copies are on their way, a body too large to keep is not copied, and a share of 0 is
// none.
func TestMirrorBounds(t *testing.T) {
	o, s := newCounted(t), newShadow(t)
	r := mirrored(t, o, s, "ratio: 1, in_flight: 1")
	c := r.dial()
	for range 5 {
		expect(t, get(t, c, askOrders), "200  real")
	}
	s.next(t)
	if len(s.got) > 0 {
		t.Error("more copies than in_flight")
	}
	s.answer <- struct{}{}
	m := r.store.Load().Outbound.List[1].Rest.Mirror // next, orders
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); m.Running.Load() > 0; <-tick.C {
		if time.Now().After(end) {
			t.Fatal("the copy never ends")
		}
	}
	large := make([]byte, 100<<10)
	send(t, c, "POST /p HTTP/1.1\r\nHost: orders\r\nContent-Length: 102400\r\n\r\n"+string(large))
	expect(t, said(t, c), "200 real")
	if len(s.got) > 0 || m.Running.Load() > 0 {
		t.Error("a large body was copied")
	}
	close(s.answer)

	none := mirrored(t, o, s, "ratio: 0")
	expect(t, get(t, none.dial(), askOrders), "200  real")
	if len(s.got) > 0 {
		t.Error("a share of 0 is copied")
	}
}

// TestMirrorOfFailed: a request whose call fails is copied like others, also where something stands in for the answer, and as it
// was.
func TestMirrorOfFailed(t *testing.T) {
	for _, fallback := range []string{"answer: {body: real}", `local: "http://ORIGIN/stand-in"`} {
		o, app, s := newCounted(t), newCounted(t), newShadow(t)
		close(s.answer)
		o.says("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")
		c := newRig(t, setup{config: "services:\n  orders: {endpoints: [ORIGIN], policy: {mirror: {service: next, ratio: 1}, fallback: {" + fallback +
			"}}}\n  next: {endpoints: [ORIGIN]}\n", origins: originsOf(fallback, o.address, app.address, s.address)}).dial()
		send(t, c, "POST /p HTTP/1.1\r\nHost: orders\r\nContent-Length: 4\r\n\r\nbo")
		send(t, c, "dy")
		expect(t, said(t, c), "200 real")
		q, body := s.next(t)
		if q.RequestURI != "/p" || body != "body" || q.Header.Get("X-Fallback-For") != "" {
			t.Errorf("%s: got %s %q %v", fallback, q.RequestURI, body, q.Header)
		}
	}
}

// originsOf leaves out the app where nothing asks it.
func originsOf(fallback, origin, app, shadow string) []string {
	if strings.Contains(fallback, "local") {
		return []string{origin, app, shadow}
	}
	return []string{origin, shadow}
}
