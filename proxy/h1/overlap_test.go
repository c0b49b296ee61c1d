package h1_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/h1"
	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
	"github.com/sidecar-mesh/sidecar/proxy/upstream"
)

// pair is two origins that share a script: what they do with the n-th request of both together.
type pair struct {
	t       *testing.T
	origins []string
	asked   atomic.Int32
	got     chan request
	lost    chan int // requests whose connection ended before they were answered
}

// request is one request at an origin. The script answers it by write, or leaves it.
type request struct {
	n      int
	origin int
	method string
	body   string
	conn   *net.TCPConn
}

func (r request) answer(text string) {
	_, _ = fmt.Fprintf(r.conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text) // it may be gone
}

func newPair(t *testing.T) *pair {
	p := &pair{t: t, got: make(chan request, 16), lost: make(chan int, 16)}
	for i := range 2 {
		p.origins = append(p.origins, newOrigin(t, func(nc *net.TCPConn) { p.serve(i, nc) }))
	}
	return p
}

func (p *pair) serve(origin int, nc *net.TCPConn) {
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
		n := int(p.asked.Add(1))
		p.got <- request{n, origin, q.Method, string(body), nc}
		if _, err := in.Peek(1); err != nil {
			p.lost <- n
			return
		}
	}
}

func (p *pair) next() request {
	p.t.Helper()
	select {
	case r := <-p.got:
		return r
	case <-time.After(patience):
		p.t.Fatal("no request came")
		return request{}
	}
}

func (p *pair) expectLost(want int) {
	p.t.Helper()
	select {
	case n := <-p.lost:
		if n != want {
			p.t.Errorf("request %d was cut, want %d", n, want)
		}
	case <-time.After(patience):
		p.t.Errorf("request %d was not cut", want)
	}
}

func (p *pair) rig(policy string) *rig {
	config := "services:\n  orders: {endpoints: [ORIGIN, ORIGIN], policy: {" + policy + "}}\n"
	return newRig(p.t, setup{config: config, origins: p.origins})
}

const (
	backup = "backup: {after: 200ms, max_ratio: 100%}, idempotent: true" // so late that no call needs one that is not to
	ask    = "GET / HTTP/1.1\r\nHost: orders\r\n\r\n"
)

// said reads one answer with a body of known length.
func said(t *testing.T, c *net.TCPConn) string {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func send(t *testing.T, c *net.TCPConn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// warm leaves an idle connection to each origin.
func (p *pair) warm(c *net.TCPConn) {
	for range 2 {
		send(p.t, c, ask)
		p.next().answer("warm")
		expect(p.t, said(p.t, c), "200 warm")
	}
}

// TestBackup: the first attempt hangs, so another begins on the other endpoint; the first success wins, the other is cut
// (S-145), be the connections there already or not.
func TestBackup(t *testing.T) {
	for _, warm := range []bool{false, true} {
		for _, winner := range []int{1, 2} {
			t.Run(fmt.Sprintf("warm %t, attempt %d wins", warm, winner), func(t *testing.T) {
				p := newPair(t)
				c := p.rig(backup).dial()
				before := 0
				if warm {
					p.warm(c)
					before = 2
				}
				send(t, c, ask)
				first := p.next()
				second := p.next()
				if first.origin == second.origin {
					t.Error("both attempts went to the same endpoint")
				}
				[]request{first, second}[winner-1].answer("won")
				expect(t, said(t, c), "200 won")
				p.expectLost(before + 3 - winner)

				send(t, c, ask) // the connection goes on, and nothing of the race is left
				p.next().answer("next")
				expect(t, said(t, c), "200 next")
			})
		}
	}
}

// TestBackupFailure: a failure waits for the other attempt, and stands when that fails too.
func TestBackupFailure(t *testing.T) {
	p := newPair(t)
	c := p.rig(backup).dial()
	send(t, c, ask)
	first, second := p.next(), p.next()
	fail := func(r request) {
		_, _ = io.WriteString(r.conn, "HTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\nbad")
	}
	fail(second)
	first.answer("good")
	expect(t, said(t, c), "200 good")

	send(t, c, ask)
	first, second = p.next(), p.next()
	fail(second)
	fail(first)
	expect(t, said(t, c), "500 bad")
}

// TestBackupBody: the second attempt sends the same body.
func TestBackupBody(t *testing.T) {
	for _, dual := range []bool{false, true} {
		p := newPair(t)
		policy := backup
		if dual {
			policy = "dual_send: true, idempotent: true"
		}
		c := p.rig(policy).dial()
		send(t, c, "POST / HTTP/1.1\r\nHost: orders\r\nContent-Length: 10\r\n\r\n01234")
		send(t, c, "56789")
		first, second := p.next(), p.next()
		if first.body != "0123456789" || second.body != "0123456789" || second.method != "POST" {
			t.Errorf("got %q and %s %q", first.body, second.method, second.body)
		}
		second.answer("won")
		expect(t, said(t, c), "200 won")
	}
}

// TestNoBackup: not without another endpoint, beyond the cap, for what is not idempotent, or once something of an answer has
// gone on. Each time the first attempt is answered long after a backup would have been due.
func TestNoBackup(t *testing.T) {
	const late = 100 * time.Millisecond
	for _, tt := range []struct{ name, policy, ask string }{
		{"cap", "backup: {after: 5ms, max_ratio: 0}", ask},
		{"method", "backup: {after: 5ms, max_ratio: 100%}", "POST / HTTP/1.1\r\nHost: orders\r\nContent-Length: 0\r\n\r\n"},
		{"samples", "backup: {after: p90, max_ratio: 100%}", ask},
		{"off", "backup: none", ask},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPair(t)
			c := p.rig(tt.policy).dial()
			send(t, c, tt.ask)
			only := p.next()
			time.AfterFunc(late, func() { only.answer("alone") })
			expect(t, said(t, c), "200 alone")
			if n := p.asked.Load(); n != 1 {
				t.Errorf("%d attempts", n)
			}
		})
	}
	t.Run("other endpoint", func(t *testing.T) {
		p := newPair(t)
		c := newRig(t, setup{
			config:  "services:\n  orders: {endpoints: [ORIGIN], policy: {" + backup + "}}\n",
			origins: p.origins[:1],
		}).dial()
		send(t, c, ask)
		only := p.next()
		time.AfterFunc(late, func() { only.answer("alone") })
		expect(t, said(t, c), "200 alone")
		if n := p.asked.Load(); n != 1 {
			t.Errorf("%d attempts", n)
		}
	})
	t.Run("interim", func(t *testing.T) {
		p := newPair(t)
		r := p.rig("backup: {after: 200ms, max_ratio: 100%}")
		c := r.dial()
		p.warm(c)
		send(t, c, ask)
		only := p.next()
		_, _ = io.WriteString(only.conn, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
		time.AfterFunc(4*late, func() { only.answer("alone") })
		hints(t, bufio.NewReader(c))
		if n := p.asked.Load(); n != 3 {
			t.Errorf("%d attempts", n-2)
		}
	})
}

// TestBackupInterim: an interim response of one of two attempts goes on, and that attempt is the one.
func TestBackupInterim(t *testing.T) {
	p := newPair(t)
	c := p.rig(backup).dial()
	send(t, c, ask)
	first, second := p.next(), p.next()
	_, _ = io.WriteString(second.conn, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
	p.expectLost(first.n)
	second.answer("won")
	hints(t, bufio.NewReader(c))
}

// hints reads an interim response and the head of the one behind it.
func hints(t *testing.T, in *bufio.Reader) {
	t.Helper()
	for _, want := range []int{103, 200} {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want {
			t.Errorf("status %d, want %d", resp.StatusCode, want)
		}
	}
}

// TestBackupCallerLeaves: both attempts are cut.
func TestBackupCallerLeaves(t *testing.T) {
	p := newPair(t)
	c := p.rig(backup).dial()
	send(t, c, ask)
	p.next()
	p.next()
	if err := c.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	for range 2 {
		select {
		case <-p.lost:
		case <-time.After(patience):
			t.Fatal("an attempt goes on for nobody")
		}
	}
}

// TestBackupTimeout: both attempts hang, and the call is over by its deadline.
func TestBackupTimeout(t *testing.T) {
	p := newPair(t)
	c := p.rig(backup + ", timeout: 1500ms").dial()
	send(t, c, ask)
	p.next()
	p.next()
	expect(t, said(t, c), "504 timeout")
}

// TestDualSend: both are asked at once, and the first success counts (S-144).
func TestDualSend(t *testing.T) {
	p := newPair(t)
	c := p.rig("dual_send: true").dial()
	for range 3 {
		send(t, c, ask)
		first, second := p.next(), p.next()
		if first.origin == second.origin {
			t.Error("both attempts went to the same endpoint")
		}
		first.answer("won")
		expect(t, said(t, c), "200 won")
	}
	send(t, c, "POST / HTTP/1.1\r\nHost: orders\r\nContent-Length: 0\r\n\r\n")
	p.next().answer("alone")
	expect(t, said(t, c), "200 alone")
	if n := p.asked.Load(); n != 7 {
		t.Errorf("%d attempts, want 7", n)
	}
}

// TestAskTooLate: a request that is sent with the first wait for its head is sent also where that wait is over at once, as it
// is when a backup is due very soon.
func TestAskTooLate(t *testing.T) {
	origin := newOrigin(t, steady(0, []byte(lengthAnswer)))
	pool := h1.NewPool(upstream.New(origin, upstream.Settings{}, nil, nil), 64<<10, 100)
	defer pool.Close()
	q := pipeline.Request{Version: pipeline.HTTP11, Method: "GET", Target: "/", Path: "/", Authority: "orders"}
	for round := range 2 {
		up, err := pool.Open(pipeline.HTTP11, false, patience, time.Now().Add(patience))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(up.SendHead(&q), up.SendEnd(nil, true)); err != nil {
			t.Fatal(err)
		}
		var r pipeline.Response
		if round == 1 { // the connection has served: sending was left to the wait
			if err := up.ReadHead(&r, time.Now().Add(-time.Second)); !errors.Is(err, netio.ErrTimeout) {
				t.Fatalf("got %v", err)
			}
		}
		if err := up.ReadHead(&r, time.Now().Add(patience)); err != nil || r.Status != 200 {
			t.Fatalf("%v %d", err, r.Status)
		}
		if _, err := up.Body().Next(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		up.Close(true)
	}
}
