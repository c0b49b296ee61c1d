package reported

import (
	"crypto/sha1" //nolint:gosec // RFC 6455 wants it
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

const grpcType = "application/grpc"

// TestReported040_LargeTrailers: a status with details of any size up to the one limit arrives; beyond it the failure says so.
func TestReported040_LargeTrailers(t *testing.T) {
	origin := sidecartest.ServeHTTP2(t, func(p *sidecartest.Peer) {
		for {
			f, err := p.Next()
			if err != nil {
				return
			}
			if f.Type != http2.FrameHeaders {
				continue
			}
			var n int
			_, _ = fmt.Sscanf(f.Get(":path"), "/t.S/M%d", &n)
			p.Headers(f.StreamID, false, ":status", "200", "content-type", grpcType)
			p.Headers(f.StreamID, true, "grpc-status", "3", "grpc-message", "bad", "grpc-status-details-bin", strings.Repeat("A", n))
		}
	})
	p := sidecartest.Run(t, two, origin.Address)
	c := sidecartest.DialHTTP2(t, p.Outbound)
	id := uint32(1)
	for _, kb := range []int{1, 2, 4, 7, 8, 12, 15, 16, 17, 24, 32, 48} {
		c.Call(id, "svc", fmt.Sprintf("/t.S/M%d", kb<<10))
		s, err := c.Answer(id)
		if err != nil || s.Trailers.Get("grpc-status") != "3" || s.Trailers.Get("grpc-message") != "bad" || len(s.Trailers.Get("grpc-status-details-bin")) != kb<<10 {
			t.Errorf("%d kB: %v, %v", kb, s.Head.Fields, err)
		}
		id += 2
	}
	c.Call(id, "svc", fmt.Sprintf("/t.S/M%d", 100<<10))
	s, err := c.Answer(id)
	f := s.Trailers
	if f.Fields == nil {
		f = s.Head
	}
	if err != nil || f.Get("grpc-status") != "13" || !strings.Contains(f.Get("grpc-message"), "limits.header") {
		t.Errorf("beyond the limit: %v, %v", f.Fields, err)
	}
}

// TestReported041_ConnectionAge: a server ends its connection in the middle of a stream; for the client that is UNAVAILABLE.
func TestReported041_ConnectionAge(t *testing.T) {
	for name, end := range map[string]func(p *sidecartest.Peer){
		"GOAWAY, then the end": func(p *sidecartest.Peer) {
			p.Write(func(f *http2.Framer) error { return f.WriteGoAway(1, http2.ErrCodeNo, []byte("max_age")) })
			<-time.After(50 * time.Millisecond)
			_ = p.Conn.Close()
		},
		"the end": func(p *sidecartest.Peer) { _ = p.Conn.Close() },
		"GOAWAY for it": func(p *sidecartest.Peer) {
			p.Write(func(f *http2.Framer) error { return f.WriteGoAway(0, http2.ErrCodeNo, nil) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			origin := sidecartest.ServeHTTP2(t, each(func(p *sidecartest.Peer, f sidecartest.Frame) {
				p.Headers(f.StreamID, false, ":status", "200", "content-type", grpcType)
				for range 5 {
					p.Data(f.StreamID, false, make([]byte, 5))
					<-time.After(5 * time.Millisecond)
				}
				end(p)
			}))
			p := sidecartest.Run(t, two, origin.Address)
			c := sidecartest.DialHTTP2(t, p.Outbound)
			c.Call(1, "svc", "/t.S/Watch")
			s, err := c.Answer(1)
			if err != nil || s.Status != "200" || len(s.Body) != 25 || s.Trailers.Get("grpc-status") != "14" {
				t.Errorf("%v, %d bytes, %v, %v", s.Status, len(s.Body), s.Trailers.Fields, err)
			}
		})
	}
}

// TestReported042_NoNeedlessPings: a long silent call to a server that counts pings: we send none.
func TestReported042_NoNeedlessPings(t *testing.T) {
	t.Parallel()
	origin := sidecartest.ServeHTTP2(t, each(func(p *sidecartest.Peer, f sidecartest.Frame) {
		go func() {
			<-time.After(12 * time.Second)
			p.Headers(f.StreamID, true, ":status", "200", "content-type", grpcType, "grpc-status", "0", "x-pings", fmt.Sprint(p.Pings))
		}()
	}))
	p := sidecartest.Run(t, `services: {svc: {protocol: http2, endpoints: [%q], policy: {timeout: 20s}}}`, origin.Address)
	c := sidecartest.DialHTTP2(t, p.Outbound)
	c.Call(1, "svc", "/t.S/Long")
	s, err := c.Answer(1)
	if err != nil || s.Head.Get("grpc-status") != "0" || s.Head.Get("x-pings") != "0" {
		t.Errorf("%v %v", s.Head.Fields, err)
	}
}

// TestReported043_SilentPeer: a server stops answering without an end of its connection. What waits for it ends with the
// time limit and a reason, and takes no other service along. (That the connection is given up is tested in proxy/h2: it takes
// more than a minute.)
func TestReported043_SilentPeer(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	silent := sidecartest.ServeHTTP2(t, func(p *sidecartest.Peer) {
		if f, err := p.Next(); err == nil {
			p.Headers(f.StreamID, true, ":status", "200")
		}
		<-over // and reads no more
	})
	fine := sidecartest.ServeHTTP2(t, each(func(p *sidecartest.Peer, f sidecartest.Frame) { p.Headers(f.StreamID, true, ":status", "200") }))
	p := sidecartest.Run(t, `
services:
  svc: {protocol: http2, endpoints: [%q], policy: {timeout: 1s, breaker: none, outlier: none}}
  fine: {protocol: http2, endpoints: [%q]}
`, silent.Address, fine.Address)
	c := sidecartest.DialHTTP2(t, p.Outbound)
	c.Ask(1, "GET", "svc", "/")
	if s, err := c.Answer(1); err != nil || s.Status != "200" {
		t.Fatal(s, err)
	}
	for i := range 20 {
		c.Begin(uint32(4*i+3), "POST", "svc", "/")
		c.Data(uint32(4*i+3), true, make([]byte, 16_000))
		c.Ask(uint32(4*i+5), "GET", "fine", "/")
	}
	statuses := map[string]int{}
	for n := 0; n < 40; {
		f, err := c.Next()
		if err != nil {
			t.Fatal(err, statuses)
		}
		if f.Get(":status") != "" {
			n++
			statuses[f.Get(":status")+" "+f.Get("x-sidecar-reason")]++
		}
	}
	if statuses["200 "] != 20 || statuses["504 timeout"] != 20 {
		t.Error(statuses)
	}
}

// TestReported044_DrainOfHTTP2: a call in flight is waited for when the process is told to end.
func TestReported044_DrainOfHTTP2(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	origin := sidecartest.ServeHTTP2(t, each(func(p *sidecartest.Peer, f sidecartest.Frame) {
		close(arrived)
		<-release
		p.Headers(f.StreamID, true, ":status", "200", "content-type", grpcType, "grpc-status", "0")
	}))
	p := sidecartest.Run(t, two, origin.Address)
	c := sidecartest.DialHTTP2(t, p.Outbound)
	c.Call(1, "svc", "/t.S/M")
	<-arrived
	p.Signal(t, syscall.SIGTERM)
	<-time.After(1500 * time.Millisecond)
	select {
	case <-p.Exited():
		t.Fatal("the process did not wait")
	default:
	}
	close(release)
	if s, err := c.Answer(1); err != nil || s.Head.Get("grpc-status") != "0" {
		t.Errorf("%v %v", s, err)
	}
	if code := p.Wait(t, 10*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestReported045_Trailers: trailers that were not announced, that have no body before them, and those that are the head.
func TestReported045_Trailers(t *testing.T) {
	origin := sidecartest.ServeHTTP2(t, each(func(p *sidecartest.Peer, f sidecartest.Frame) {
		switch id := f.StreamID % 6; id {
		case 1:
			p.Headers(f.StreamID, false, ":status", "200", "content-type", grpcType)
			p.Data(f.StreamID, false, make([]byte, 5))
			p.Headers(f.StreamID, true, "grpc-status", "5", "x-own", "1")
		case 3:
			p.Headers(f.StreamID, false, ":status", "200", "content-type", grpcType)
			p.Headers(f.StreamID, true, "grpc-status", "5", "x-own", "1")
		default:
			p.Headers(f.StreamID, true, ":status", "200", "content-type", grpcType, "grpc-status", "5", "x-own", "1")
		}
	}))
	p := sidecartest.Run(t, two, origin.Address)
	c := sidecartest.DialHTTP2(t, p.Outbound)
	for i := range 30 {
		id := uint32(2*i + 1)
		c.Call(id, "svc", "/t.S/M")
		s, err := c.Answer(id)
		f := s.Trailers
		if id%6 == 5 {
			if f = s.Head; s.Trailers.Fields != nil {
				t.Errorf("call %d: Trailers-Only became two", i)
			}
		}
		if err != nil || f.Get("grpc-status") != "5" || f.Get("x-own") != "1" {
			t.Fatalf("call %d: %v %v, %v", i, s.Head.Fields, s.Trailers.Fields, err)
		}
	}
}

// TestReported049_WebSocketOverHTTP2: the time-out of the request no longer bounds a WebSocket of an HTTP/2 client either.
func TestReported049_WebSocketOverHTTP2(t *testing.T) {
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		m, err := c.Head()
		if err != nil {
			return
		}
		sum := sha1.Sum([]byte(m.Get("sec-websocket-key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		_ = c.Send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n",
			base64.StdEncoding.EncodeToString(sum[:]))
		_, _ = io.Copy(c, c.R)
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q], policy: {timeout: 1s}}}`, origin.Address)
	c := sidecartest.DialHTTP2(t, p.Outbound)
	c.Headers(1, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/chat", ":authority", "svc",
		"sec-websocket-version", "13", "origin", "http://app.test")
	f, err := c.Next()
	if err != nil || f.Get(":status") != "200" || f.Get("sec-websocket-accept") != "" {
		t.Fatal(f.Fields, err)
	}
	for i := range 6 {
		<-time.After(300 * time.Millisecond)
		text := fmt.Sprintf("frame %d", i)
		c.Data(1, i == 5, []byte(text))
		if f, err = c.Next(); err != nil || string(f.Data) != text {
			t.Fatalf("%q %v", f.Data, err)
		}
	}
	if !f.End() {
		f, err = c.Next()
	}
	if err != nil || !f.End() {
		t.Errorf("%v %v instead of the end", f, err)
	}
}

// TestReported050_UnansweredExtendedConnect: until the answer the time-out does apply.
func TestReported050_UnansweredExtendedConnect(t *testing.T) {
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) { _, _ = io.Copy(io.Discard, c.R) })
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q], policy: {timeout: 300ms}}}`, origin.Address)
	c := sidecartest.DialHTTP2(t, p.Outbound)
	c.Headers(1, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/", ":authority", "svc")
	if f, err := c.Next(); err != nil || f.Get(":status") != "504" || f.Get("x-sidecar-reason") != "timeout" {
		t.Errorf("%v %v", f.Fields, err)
	}
	sidecartest.Eventually(t, 20*time.Second, "the connection to the server is closed", func() bool { return origin.Open() == 0 })
}

// TestReported055_ConnectOverHTTP2: CONNECT of an HTTP/2 client reaches the services that are meant for it, and each side
// may end first.
func TestReported055_ConnectOverHTTP2(t *testing.T) {
	proxy := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		_ = c.Send("ready|")
		_, _ = io.Copy(c, c.R)
		_ = c.Send("|bye")
	})
	other := sidecartest.Answer(t, sidecartest.OK("ok"))
	p := sidecartest.Run(t, `
services:
  corporate: {protocol: tcp, listen: %q, hosts: [proxy.corp], endpoints: [%q]}
  other: {hosts: [other.corp], endpoints: [%q]}
`, sidecartest.FreeAddress(t), proxy.Address, other.Address)
	c := sidecartest.DialHTTP2(t, p.Outbound)
	c.Headers(1, false, ":method", "CONNECT", ":authority", "proxy.corp:3128")
	c.Data(1, false, []byte("along|"))
	c.Data(1, true, []byte("more"))
	s, err := c.Answer(1)
	if err != nil || s.Status != "200" || string(s.Body) != "ready|along|more|bye" {
		t.Errorf("%v %q %v", s.Head.Fields, s.Body, err)
	}
	for i, tc := range []struct{ host, status string }{{"other.corp:3128", "405"}, {"unknown.test:443", "404"}} {
		id := uint32(2*i + 3)
		c.Headers(id, true, ":method", "CONNECT", ":authority", tc.host)
		if s, err := c.Answer(id); err != nil || s.Status != tc.status {
			t.Errorf("%s: %v %v", tc.host, s.Head.Fields, err)
		}
	}
	if other.Accepted() != 0 {
		t.Error("CONNECT reached a service that is none of its business")
	}
}
