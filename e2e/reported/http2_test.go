package reported

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// two is a service of HTTP/2 without anything that could interfere.
const two = `services: {svc: {protocol: http2, endpoints: [%q], policy: {breaker: none, outlier: none}}}`

func setting(id http2.SettingID, v uint32) http2.Setting { return http2.Setting{ID: id, Val: v} }

// each calls answer for each request of a connection that is complete.
func each(answer func(p *sidecartest.Peer, f sidecartest.Frame)) func(*sidecartest.Peer) {
	return func(p *sidecartest.Peer) {
		for {
			f, err := p.Next()
			if err != nil {
				return
			}
			if f.End() {
				answer(p, f)
			}
		}
	}
}

// TestReported031_HopByHopToHTTP2: what HTTP/1 says about one connection does not reach an HTTP/2 peer, in either
// direction, nor is it in answers of our own.
func TestReported031_HopByHopToHTTP2(t *testing.T) {
	got := make(chan sidecartest.Frame, 1)
	origin := sidecartest.ServeHTTP2(t, func(p *sidecartest.Peer) {
		for {
			f, err := p.Next()
			if err != nil {
				return
			}
			if f.Type == http2.FrameHeaders {
				got <- f
				p.Headers(f.StreamID, true, ":status", "200")
			}
		}
	})
	old := sidecartest.Answer(t, func(*sidecartest.Message) string {
		return sidecartest.Reply(200, "ok", "Connection: close, X-Foo", "X-Foo: 1", "Keep-Alive: timeout=5", "Upgrade: h2c")
	})
	p := sidecartest.Run(t, `services: {svc: {protocol: http2, endpoints: [%q]}, old: {endpoints: [%q]}}`, origin.Address, old.Address)
	m := sidecartest.Dial(t, p.Outbound).Ask(t, "GET / HTTP/1.1\r\nHost: svc\r\nConnection: x-foo, keep-alive, TE\r\nX-Foo: 1\r\nKeep-Alive: 5\r\n"+
		"Proxy-Connection: keep-alive\r\nTE: trailers, deflate\r\nX-Own: 1\r\n\r\n")
	f := <-got
	if m.Status() != 200 || f.Get("te") != "trailers" || f.Get("x-own") != "1" {
		t.Errorf("%+v, %v", m, f.Fields)
	}
	c := sidecartest.DialHTTP2(t, p.Outbound)
	c.Ask(1, "GET", "old", "/")
	answer, err := c.Answer(1)
	c.Ask(3, "GET", "unknown", "/")
	refusal, err2 := c.Answer(3)
	if err != nil || err2 != nil || answer.Status != "200" || refusal.Status != "404" {
		t.Errorf("%v %v, %v %v", answer, err, refusal, err2)
	}
	for _, f := range []sidecartest.Frame{f, answer.Head, refusal.Head} {
		for _, name := range []string{"connection", "keep-alive", "proxy-connection", "x-foo", "upgrade", "transfer-encoding"} {
			if f.Get(name) != "" {
				t.Errorf("%s: %s", name, f.Get(name))
			}
		}
	}
}

// TestReported032_CookieCrumbs: an HTTP/1 app gets one Cookie line, an HTTP/2 client each Set-Cookie by itself.
func TestReported032_CookieCrumbs(t *testing.T) {
	got := make(chan *sidecartest.Message, 1)
	origin := sidecartest.Answer(t, func(m *sidecartest.Message) string {
		got <- m
		return sidecartest.Reply(200, "ok", "Set-Cookie: a=1", "Set-Cookie: b=2")
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	c := sidecartest.DialHTTP2(t, p.Outbound)
	c.Ask(1, "GET", "svc", "/", "cookie", "a=1", "x-a", "y", "cookie", "csrf=2", "cookie", "c=3")
	s, err := c.Answer(1)
	if err != nil || s.Status != "200" {
		t.Fatal(s, err)
	}
	m := <-got
	lines := slices.DeleteFunc(slices.Clone(m.Fields), func(f string) bool { return !strings.HasPrefix(strings.ToLower(f), "cookie:") })
	if len(lines) != 1 || m.Get("cookie") != "a=1; csrf=2; c=3" {
		t.Errorf("%q", lines)
	}
	n := 0
	for _, f := range s.Head.Fields {
		if f.Name == "set-cookie" {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%v", s.Head.Fields)
	}
}

// TestReported034_TailBehindAClosedWindow: an upstream stream, and its connection, are over while the client's window is
// still closed. Nothing of what it sent is lost.
func TestReported034_TailBehindAClosedWindow(t *testing.T) {
	const size = 60_000
	origin := sidecartest.ServeHTTP2(t, each(func(p *sidecartest.Peer, f sidecartest.Frame) {
		p.Headers(f.StreamID, false, ":status", "200")
		for at := 0; at < size; at += 10_000 {
			p.Data(f.StreamID, false, bytes.Repeat([]byte("x"), 10_000))
		}
		p.Headers(f.StreamID, true, "x-end", "1")
		p.Write(func(out *http2.Framer) error { return out.WriteGoAway(f.StreamID, http2.ErrCodeNo, nil) })
		_ = p.Conn.Close()
	}))
	p := sidecartest.Run(t, two, origin.Address)
	c := sidecartest.DialHTTP2(t, p.Outbound, setting(http2.SettingInitialWindowSize, 0))
	c.Greedy = true
	c.Ask(1, "GET", "svc", "/")
	if f, err := c.Next(); err != nil || f.Get(":status") != "200" {
		t.Fatal(f, err)
	}
	<-time.After(100 * time.Millisecond) // the upstream connection is gone by now
	body := 0
	for body < size {
		c.Credit(1, 7_000)
		f, err := c.Next()
		if err != nil || f.Type != http2.FrameData || f.End() {
			t.Fatalf("%v %v behind %d bytes", f, err, body)
		}
		body += len(f.Data)
	}
	if f, err := c.Next(); err != nil || body != size || !f.End() || f.Get("x-end") != "1" {
		t.Errorf("%d of %d bytes, then %v %v", body, size, f, err)
	}
}

// TestReported035_ResetBehindACompleteAnswer: a server answers in full before the client's last, empty frame and then
// resets with NO_ERROR. The answer arrives.
func TestReported035_ResetBehindACompleteAnswer(t *testing.T) {
	origin := sidecartest.ServeHTTP2(t, func(p *sidecartest.Peer) {
		for {
			f, err := p.Next()
			if err != nil {
				return
			}
			if f.Type == http2.FrameData && len(f.Data) > 0 {
				p.Headers(f.StreamID, false, ":status", "200", "content-type", "application/grpc")
				p.Data(f.StreamID, false, make([]byte, 5))
				p.Headers(f.StreamID, true, "grpc-status", "0")
				p.Write(func(out *http2.Framer) error { return out.WriteRSTStream(f.StreamID, http2.ErrCodeNo) })
			}
		}
	})
	p := sidecartest.Run(t, two, origin.Address)
	c := sidecartest.DialHTTP2(t, p.Outbound)
	for i := range 50 {
		id := uint32(2*i + 1)
		c.Begin(id, "POST", "svc", "/t.S/M", "te", "trailers", "content-type", "application/grpc")
		c.Data(id, false, make([]byte, 5))
		if i%2 == 0 {
			<-time.After(time.Millisecond)
		}
		c.Data(id, true, nil)
		if s, err := c.Answer(id); err != nil || s.Status != "200" || len(s.Body) != 5 || s.Trailers.Get("grpc-status") != "0" {
			t.Fatalf("call %d: %+v %v", i, s, err)
		}
	}
}

// TestReported036_CodesOfResets: a cut answer does not look like success, and a client's cancellation is passed on as one.
func TestReported036_CodesOfResets(t *testing.T) {
	old := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		if _, err := c.Request(); err == nil {
			_ = c.Send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n%s", strings.Repeat("x", 50))
		}
	})
	cancelled := make(chan http2.ErrCode, 1)
	origin := sidecartest.ServeHTTP2(t, func(p *sidecartest.Peer) {
		for {
			f, err := p.Next()
			if err != nil {
				return
			}
			switch {
			case f.Type == http2.FrameRSTStream:
				cancelled <- f.Code
			case f.Get(":path") == "/cut":
				p.Headers(f.StreamID, false, ":status", "200")
				p.Data(f.StreamID, false, []byte("half"))
				<-time.After(20 * time.Millisecond)
				_ = p.Conn.Close()
			case f.Type == http2.FrameHeaders:
				p.Headers(f.StreamID, false, ":status", "200")
			}
		}
	})
	p := sidecartest.Run(t, `services: {svc: {protocol: http2, endpoints: [%q]}, old: {endpoints: [%q]}}`, origin.Address, old.Address)
	c := sidecartest.DialHTTP2(t, p.Outbound)
	c.Ask(1, "GET", "old", "/")
	if s, err := c.Answer(1); err == nil || err.Error() != "reset: INTERNAL_ERROR" || len(s.Body) != 50 {
		t.Errorf("%d bytes, %v", len(s.Body), err)
	}
	c.Ask(3, "GET", "svc", "/")
	if f, err := c.Next(); err != nil || f.Get(":status") != "200" {
		t.Fatal(f, err)
	}
	c.Write(func(f *http2.Framer) error { return f.WriteRSTStream(3, http2.ErrCodeCancel) })
	select {
	case code := <-cancelled:
		if code != http2.ErrCodeCancel {
			t.Error(code)
		}
	case <-time.After(5 * time.Second):
		t.Error("the server is not told")
	}
	one := sidecartest.Dial(t, p.Outbound)
	_ = one.Send(get, "cut")
	if m, err := one.Response("GET"); err == nil || !strings.HasPrefix("half", string(m.Body)) {
		t.Errorf("%+v %v", m, err)
	}
}

// TestReported037_StreamsAboveGOAWAY: a server ends its connection by GOAWAY and has not seen the last requests. They are
// sent again, a POST with its body as well, without any retry policy.
func TestReported037_StreamsAboveGOAWAY(t *testing.T) {
	var handled atomic.Int64
	origin := sidecartest.ServeHTTP2(t, func(p *sidecartest.Peer) {
		for n := 1; ; n++ {
			f, err := p.Next()
			for err == nil && !f.End() {
				f, err = p.Next()
			}
			if err != nil {
				return
			}
			if n > 5 { // the rest is not looked at
				p.Write(func(out *http2.Framer) error { return out.WriteGoAway(f.StreamID-2, http2.ErrCodeNo, nil) })
				_, _ = io.Copy(io.Discard, p.Conn)
				return
			}
			handled.Add(1)
			p.Headers(f.StreamID, true, ":status", "200")
		}
	})
	p := sidecartest.Run(t, two, origin.Address)
	c := sidecartest.DialHTTP2(t, p.Outbound)
	const calls = 52
	for i := range calls {
		id := uint32(2*i + 1)
		c.Begin(id, "POST", "svc", "/")
		c.Data(id, true, []byte("body"))
		if s, err := c.Answer(id); err != nil || s.Status != "200" {
			t.Fatalf("call %d: %v %v %s", i, s.Status, err, s.Body)
		}
	}
	if handled.Load() != calls || origin.Accepted() != (calls+4)/5 {
		t.Errorf("%d calls, handled %d times on %d connections", calls, handled.Load(), origin.Accepted())
	}
}

// TestReported038_TwoStepGOAWAY: a drain loses no request that is on its way.
func TestReported038_TwoStepGOAWAY(t *testing.T) {
	origin := sidecartest.ServeHTTP2(t, each(func(p *sidecartest.Peer, f sidecartest.Frame) { p.Headers(f.StreamID, true, ":status", "200") }))
	p := sidecartest.Run(t, two, origin.Address)
	c := sidecartest.DialHTTP2(t, p.Outbound)
	answered, last, first := map[uint32]bool{}, uint32(0), true
	over := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for {
			f, err := c.Next()
			if err != nil {
				over <- err
				return
			}
			switch {
			case f.Get(":status") == "200":
				answered[f.StreamID] = true
			case f.Type == http2.FrameGoAway && first && f.Last == 1<<31-1:
				first = false
			case f.Type == http2.FrameGoAway:
				last = f.Last
				close(stop)
			default:
				t.Errorf("%v", f)
			}
		}
	}()
	id := uint32(1)
	for n := 0; ; n++ {
		c.Ask(id, "GET", "svc", "/")
		id += 2
		if n == 20 {
			p.Signal(t, syscall.SIGTERM)
		}
		select {
		case <-stop:
		case <-time.After(500 * time.Microsecond):
			continue
		}
		break
	}
	select {
	case err := <-over:
		if first || last < 41 {
			t.Errorf("GOAWAY %d, first %v (%v)", last, !first, err)
		}
		for id := uint32(1); id <= last; id += 2 {
			if !answered[id] {
				t.Errorf("stream %d of %d has no answer", id, last)
			}
		}
	case <-time.After(10 * time.Second):
		t.Error("the connection stays")
	}
	if code := p.Wait(t, 10*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestReported047_StreamLimit: 150 long calls to a server that allows a hundred streams on a connection.
func TestReported047_StreamLimit(t *testing.T) {
	release := make(chan struct{})
	var open atomic.Int64
	origin := sidecartest.ServeHTTP2(t, func(p *sidecartest.Peer) {
		ids := []uint32{}
		for {
			f, err := p.Next()
			if err != nil {
				return
			}
			if f.Type != http2.FrameHeaders {
				return
			}
			if ids = append(ids, f.StreamID); len(ids) > 100 {
				t.Error("more than a hundred streams")
			}
			open.Add(1)
			go func() {
				<-release
				p.Headers(f.StreamID, true, ":status", "200")
			}()
		}
	}, setting(http2.SettingMaxConcurrentStreams, 100))
	p := sidecartest.Run(t, two, origin.Address)
	var clients []*sidecartest.Peer
	for i := range 150 {
		if i%75 == 0 {
			clients = append(clients, sidecartest.DialHTTP2(t, p.Outbound))
		}
		clients[i/75].Ask(uint32(2*(i%75)+1), "GET", "svc", "/")
	}
	sidecartest.Eventually(t, 10*time.Second, "all calls have arrived", func() bool { return open.Load() == 150 })
	close(release)
	for _, c := range clients {
		for n := 0; n < 75; {
			f, err := c.Next()
			if err != nil {
				t.Fatal(err)
			}
			if f.Get(":status") != "200" {
				t.Fatal(fmt.Sprint(f.Fields))
			}
			n++
		}
	}
	if origin.Accepted() != 2 {
		t.Errorf("%d connections", origin.Accepted())
	}
}
