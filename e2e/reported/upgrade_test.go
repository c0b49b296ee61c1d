package reported

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

const handshake = "GET /chat HTTP/1.1\r\nHost: svc\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"

// echo is an origin that agrees to any upgrade and then sends back what comes.
func echo(t *testing.T) *sidecartest.Origin {
	return sidecartest.Serve(t, func(c *sidecartest.Conn) {
		m, err := c.Head()
		if err != nil {
			return
		}
		if m.Get("upgrade") != "websocket" || !strings.EqualFold(m.Get("connection"), "upgrade") {
			_ = c.Send("%s", sidecartest.Reply(400, "no upgrade"))
			return
		}
		_ = c.Send(switching)
		_, _ = io.Copy(c, c.R)
	})
}

// TestReported049_TimeoutEndsWithThe101: the time-out of the request no longer bounds what was upgraded, busy or quiet.
func TestReported049_TimeoutEndsWithThe101(t *testing.T) {
	origin := echo(t)
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q], policy: {timeout: 1s, per_try_timeout: 900ms}}}`, origin.Address)
	quiet, busy := sidecartest.Dial(t, p.Outbound), sidecartest.Dial(t, p.Outbound)
	for _, c := range []*sidecartest.Conn{quiet, busy} {
		if m := c.Ask(t, handshake); m.Status() != 101 {
			t.Fatalf("%+v", m)
		}
	}
	for i := range 10 {
		<-time.After(150 * time.Millisecond)
		_ = busy.Send("busy %d\n", i)
		busy.Expect(t, fmt.Sprintf("busy %d\n", i))
	}
	_ = quiet.Send("still here\n")
	quiet.Expect(t, "still here\n")
}

// TestReported050_UnansweredUpgradeTimesOut: until the 101 the time-out does apply.
func TestReported050_UnansweredUpgradeTimesOut(t *testing.T) {
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) { _, _ = io.Copy(io.Discard, c.R) })
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q], policy: {timeout: 300ms}}}`, origin.Address)
	start := time.Now()
	m := sidecartest.Dial(t, p.Outbound).Ask(t, handshake)
	if took := time.Since(start); m.Status() != 504 || m.Get("x-sidecar-reason") != "timeout" || took < 300*time.Millisecond || took > 5*time.Second {
		t.Errorf("%s, reason %q after %v", m.Start, m.Get("x-sidecar-reason"), took)
	}
	sidecartest.Eventually(t, 20*time.Second, "the connection to the server is closed", func() bool { return origin.Open() == 0 })
}

// TestReported051_UpgradesAreOn: a browser's handshake passes without any setting, outbound and inbound.
func TestReported051_UpgradesAreOn(t *testing.T) {
	origin := echo(t)
	p := sidecartest.Run(t, `
node: {service: shop}
services: {svc: {endpoints: [%q]}}
inbound: [{service: shop, app: %q}]
`, origin.Address, origin.Address)
	for _, address := range []string{p.Outbound, p.Inbound} {
		c := sidecartest.Dial(t, address)
		if m := c.Ask(t, handshake); m.Status() != 101 {
			t.Fatalf("%+v", m)
		}
		_ = c.Send("hello")
		c.Expect(t, "hello")
	}
}

// TestReported053_FirstFrameWithHandshake: what the client sends along with its handshake, and the server along with its
// answer, arrives; a refused upgrade leaves nothing open.
func TestReported053_FirstFrameWithHandshake(t *testing.T) {
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		m, err := c.Head()
		if err != nil {
			return
		}
		if m.Target() != "/chat" {
			_ = c.Send("%s", sidecartest.Reply(403, "no"))
			_, _ = c.R.ReadByte()
			return
		}
		_ = c.Send(switching + "greeting|")
		_, _ = io.Copy(c, c.R)
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	early := strings.Repeat("early frame ", 20000) // more than any buffer that the head was read into
	go func() { _ = c.Send("%s", handshake+early) }()
	if m := c.Answer(t, "GET"); m.Status() != 101 {
		t.Fatalf("%+v", m)
	}
	c.Expect(t, "greeting|"+early)
	_ = c.CloseWrite()
	c.Closed(t, 15*time.Second)

	c = sidecartest.Dial(t, p.Outbound)
	m := c.Ask(t, "%s", strings.Replace(handshake, "/chat", "/refused", 1))
	if m.Status() != 403 || string(m.Body) != "no" {
		t.Errorf("%+v", m)
	}
	_ = c.Close()
	sidecartest.Eventually(t, 20*time.Second, "at most the pooled connection is left", func() bool { return origin.Open() <= 1 })
}

// TestReported054_HandshakeFieldsPass: subprotocol, extensions, cookies and the app's own fields pass unchanged both ways.
func TestReported054_HandshakeFieldsPass(t *testing.T) {
	sent := []string{
		"Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: mqtt, mqttv3.1",
		"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits", "Cookie: a=1; b=2", "X-Own: 1", "Origin: http://app.test",
	}
	answered := []string{"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "Sec-WebSocket-Protocol: mqtt", "Set-Cookie: c=3", "Set-Cookie: d=4", "X-Own: 2"}
	got := make(chan []string, 1)
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		m, err := c.Head()
		if err != nil {
			return
		}
		got <- m.Fields
		_ = c.Send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%s\r\n\r\n", strings.Join(answered, "\r\n"))
		_, _ = io.Copy(c, c.R)
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	m := sidecartest.Dial(t, p.Outbound).Ask(t, "GET /chat HTTP/1.1\r\nHost: svc\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%s\r\n\r\n", strings.Join(sent, "\r\n"))
	fields := <-got
	for _, want := range sent {
		if !slices.Contains(fields, want) {
			t.Errorf("the server did not get %q but %q", want, fields)
		}
	}
	for _, want := range append(answered, "Upgrade: websocket") {
		if !slices.Contains(m.Fields, want) {
			t.Errorf("the client did not get %q but %q", want, m.Fields)
		}
	}
	if !strings.EqualFold(m.Get("connection"), "upgrade") {
		t.Errorf("Connection: %q", m.Get("connection"))
	}
}

// TestReported055_Connect: CONNECT reaches the services that are meant for it and nothing else; what was sent along
// arrives, and each side may end first.
func TestReported055_Connect(t *testing.T) {
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
	c := sidecartest.Dial(t, p.Outbound)
	m := c.Ask(t, "CONNECT proxy.corp:3128 HTTP/1.1\r\nHost: proxy.corp:3128\r\nProxy-Authorization: Basic eDp5\r\n\r\nalong|")
	if m.Status() != 200 || m.Has("content-length") || m.Has("transfer-encoding") {
		t.Fatalf("%+v", m)
	}
	c.Expect(t, "ready|along|")
	_ = c.Send("more")
	c.Expect(t, "more")
	_ = c.CloseWrite()
	c.Expect(t, "|bye")
	c.Closed(t, 15*time.Second)

	for host, status := range map[string]int{"other.corp:3128": 405, "unknown.test:443": 404} {
		c := sidecartest.Dial(t, p.Outbound)
		if m := c.Ask(t, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", host, host); m.Status() != status {
			t.Errorf("%s: %s", host, m.Start)
		}
	}
	if other.Accepted() != 0 {
		t.Errorf("CONNECT reached a service that is none of its business")
	}
}

// TestReported055_AbsoluteForm: an app that uses us as its proxy is served by the target's host, whatever Host says.
func TestReported055_AbsoluteForm(t *testing.T) {
	got := make(chan *sidecartest.Message, 1)
	origin := sidecartest.Answer(t, func(m *sidecartest.Message) string {
		got <- m
		return sidecartest.Reply(200, "ok")
	})
	p := sidecartest.Run(t, `services: {svc: {hosts: [svc.test], endpoints: [%q]}}`, origin.Address)
	m := sidecartest.Dial(t, p.Outbound).Ask(t, "GET http://svc.test:8080/a?b=%%2F HTTP/1.1\r\nHost: wrong\r\nAuthorization: Basic eDp5\r\n\r\n")
	if m.Status() != 200 {
		t.Fatalf("%s %s", m.Start, m.Body)
	}
	q := <-got
	if q.Start != "GET /a?b=%2F HTTP/1.1" || q.Get("host") != "svc.test:8080" || q.Get("authorization") != "Basic eDp5" {
		t.Errorf("the server got %+v", q)
	}
}
