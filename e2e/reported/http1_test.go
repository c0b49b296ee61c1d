package reported

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// TestReported011_BothLengthAndChunked: a message that says its length in two ways is refused, whoever sends it, and its
// connection serves nobody else.
func TestReported011_BothLengthAndChunked(t *testing.T) {
	t.Run("request", func(t *testing.T) {
		origin := sidecartest.Answer(t, sidecartest.OK("ok"))
		p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
		c := sidecartest.Dial(t, p.Outbound)
		m := c.Ask(t, "POST / HTTP/1.1\r\nHost: svc\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: svc\r\n\r\n")
		if m.Status() != 400 || m.Get("x-sidecar-reason") != "bad_request" {
			t.Errorf("%s, reason %q", m.Start, m.Get("x-sidecar-reason"))
		}
		c.Closed(t, 15*time.Second)
		if origin.Requests() != 0 {
			t.Errorf("the server saw %d requests", origin.Requests())
		}
	})
	t.Run("response", func(t *testing.T) {
		origin := sidecartest.Answer(t, func(*sidecartest.Message) string {
			return "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
		})
		p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
		for i := range 2 {
			m := sidecartest.Dial(t, p.Outbound).Ask(t, get, "")
			if m.Status() != 502 || m.Get("x-sidecar-reason") != "upstream_protocol" {
				t.Errorf("%s, reason %q", m.Start, m.Get("x-sidecar-reason"))
			}
			if origin.Accepted() != i+1 {
				t.Errorf("request %d came on connection %d", i+1, origin.Accepted())
			}
		}
	})
}

// TestReported013_NoFramingWithoutBody: a server that claims a body where there can be none is put right.
func TestReported013_NoFramingWithoutBody(t *testing.T) {
	origin := sidecartest.Answer(t, func(m *sidecartest.Message) string {
		switch m.Target() {
		case "/204":
			return "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"
		case "/early":
			return "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nTransfer-Encoding: chunked\r\n\r\n" + sidecartest.Reply(200, "ok")
		case "/304":
			return "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"
		case "/up":
			return "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nTransfer-Encoding: chunked\r\n\r\n"
		}
		return "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" // HEAD
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	for _, row := range []struct {
		method, target string
		status         int
		length         string
	}{
		{"GET", "204", 204, ""},
		{"GET", "304", 304, "5"},
		{"HEAD", "head", 200, "5"},
	} {
		// On one connection: an octet too many or too few would spoil the next answer.
		m := c.Ask(t, "%s /%s HTTP/1.1\r\nHost: svc\r\n\r\n", row.method, row.target)
		if m.Status() != row.status || m.Get("content-length") != row.length || m.Has("transfer-encoding") {
			t.Errorf("%s: %+v", row.target, m)
		}
	}
	_ = c.Send(get, "early")
	if m, err := c.Response("GET"); err != nil || m.Status() != 103 || m.Get("link") != "</a>" || m.Has("transfer-encoding") {
		t.Errorf("early: %+v %v", m, err)
	}
	if m := c.Answer(t, "GET"); m.Status() != 200 || string(m.Body) != "ok" {
		t.Errorf("early: %+v", m)
	}
	m := c.Ask(t, "GET /up HTTP/1.1\r\nHost: svc\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if m.Status() != 101 || m.Has("transfer-encoding") || m.Has("content-length") {
		t.Errorf("up: %+v", m)
	}
}

// TestReported014_TrailersPass: fields behind the body pass both ways, but for those that must not stand there.
func TestReported014_TrailersPass(t *testing.T) {
	got := make(chan *sidecartest.Message, 1)
	origin := sidecartest.Answer(t, func(m *sidecartest.Message) string {
		got <- m
		return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Checksum: abc\r\nContent-Length: 7\r\n\r\n"
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	m := c.Ask(t, "POST / HTTP/1.1\r\nHost: svc\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\nHost: evil\r\n\r\n")
	if string(m.Body) != "ok" || !slices.Equal(m.Trailers, []string{"X-Checksum: abc"}) {
		t.Errorf("the client got body %q, trailers %q", m.Body, m.Trailers)
	}
	if q := <-got; string(q.Body) != "abc" || !slices.Equal(q.Trailers, []string{"X-Sum: 1"}) {
		t.Errorf("the server got body %q, trailers %q", q.Body, q.Trailers)
	}
}

// TestReported015_TrailersDoNotBreakTheBody: an unannounced trailer neither cuts the body nor spoils the connection.
func TestReported015_TrailersDoNotBreakTheBody(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 4096)
	origin := sidecartest.Answer(t, func(*sidecartest.Message) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nTrailing: yes\r\n\r\n", len(body), body)
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	for range 3 {
		if m := c.Ask(t, get, ""); string(m.Body) != body || m.Trailer("trailing") != "yes" {
			t.Errorf("%s, %d octets, trailers %q", m.Start, len(m.Body), m.Trailers)
		}
	}
	if origin.Accepted() != 1 {
		t.Errorf("%d connections", origin.Accepted())
	}
}

// TestReported016_HTTP10Caller: a client of HTTP/1.0, which sends no Host, calls our app.
func TestReported016_HTTP10Caller(t *testing.T) {
	origin := sidecartest.Answer(t, func(m *sidecartest.Message) string {
		if m.Target() == "/length" {
			return sidecartest.Reply(200, "ok")
		}
		return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
	})
	p := sidecartest.Run(t, `
node: {service: shop}
services: {svc: {endpoints: ["127.0.0.1:1"]}}
inbound: [{service: shop, app: %q}]
`, origin.Address)
	for _, target := range []string{"/length", "/chunked"} {
		c := sidecartest.Dial(t, p.Inbound)
		m := c.Ask(t, "GET %s HTTP/1.0\r\n\r\n", target)
		if m.Status() != 200 || string(m.Body) != "ok" || m.Has("transfer-encoding") {
			t.Errorf("%s: %+v", target, m)
		}
		c.Closed(t, 15*time.Second)
	}
	c := sidecartest.Dial(t, p.Inbound)
	for range 2 {
		m := c.Ask(t, "GET /length HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
		if m.Status() != 200 || !strings.EqualFold(m.Get("connection"), "keep-alive") {
			t.Errorf("keep-alive: %+v", m)
		}
	}
}

// TestReported017_NamesKeepTheirBytes: names of fields keep case and order both ways.
func TestReported017_NamesKeepTheirBytes(t *testing.T) {
	fields := []string{"X-Jenkins-JNLP-Port: 1", "APP_Key: x", "aPP-kEY: y", "x-lower: z", "APP_Key: again"}
	got := make(chan []string, 1)
	origin := sidecartest.Answer(t, func(m *sidecartest.Message) string {
		got <- m.Fields
		return sidecartest.Reply(200, "ok", fields...)
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	m := sidecartest.Dial(t, p.Outbound).Ask(t, "GET / HTTP/1.1\r\nhOst: svc\r\n%s\r\n\r\n", strings.Join(fields, "\r\n"))
	if q := <-got; len(q) < 6 || !slices.Equal(q[:6], append([]string{"hOst: svc"}, fields...)) {
		t.Errorf("the server got %q", q)
	}
	if len(m.Fields) < 5 || !slices.Equal(m.Fields[:5], fields) {
		t.Errorf("the client got %q", m.Fields)
	}
}

// TestReported019_HalfClosedClient: a client that ends its side with its request, as BusyBox's wget did, is served.
func TestReported019_HalfClosedClient(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	origin := sidecartest.Answer(t, func(*sidecartest.Message) string {
		close(started)
		<-release
		return sidecartest.Reply(200, "ok")
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	_ = c.Send("GET / HTTP/1.1\r\nHost: svc\r\nConnection: close\r\n\r\n")
	_ = c.CloseWrite()
	<-started
	sidecartest.Never(t, 200*time.Millisecond, "the call was given up", func() bool { return origin.Open() == 0 })
	close(release)
	if m := c.Answer(t, "GET"); m.Status() != 200 || string(m.Body) != "ok" {
		t.Errorf("%+v", m)
	}
	c.Closed(t, 15*time.Second)
}

// TestReported019_ResetCancels: a client that leaves with a reset cancels the work behind us.
func TestReported019_ResetCancels(t *testing.T) {
	started, cancelled := make(chan struct{}), make(chan error, 1)
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		if _, err := c.Request(); err != nil {
			return
		}
		close(started)
		_, err := c.R.ReadByte()
		cancelled <- err
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	_ = c.Send(get, "slow")
	<-started
	c.Reset()
	select {
	case err := <-cancelled:
		if err == nil {
			t.Error("the server was sent another octet")
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the server still works for a client that has left")
	}
	if r := p.Record(t, "/slow"); r.Reason != "caller_gone" || r.Status != 499 {
		t.Errorf("logged as %d %q", r.Status, r.Reason)
	}
}

// TestReported020_PortInHost: a service is found whatever port the host names, and the server sees what was sent.
func TestReported020_PortInHost(t *testing.T) {
	got := make(chan string, 1)
	origin := sidecartest.Answer(t, func(m *sidecartest.Message) string {
		got <- m.Get("host")
		return sidecartest.Reply(200, "ok")
	})
	p := sidecartest.Run(t, `services: {svc: {hosts: [envoy.localhost, "*.wild.test"], endpoints: [%q]}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	for _, host := range []string{"envoy.localhost", "envoy.localhost:80", "envoy.localhost:31234", "a.wild.test:8443", "ENVOY.localhost:80"} {
		m := c.Ask(t, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		if m.Status() != 200 {
			t.Errorf("%s: %s %s", host, m.Start, m.Body)
			continue
		}
		if g := <-got; g != host {
			t.Errorf("%s arrived as %s", host, g)
		}
	}
}

// TestReported022_PathKeepsItsBytes: a path arrives as it came, escapes and double slashes included. Only what a server
// might understand in another way than our rules do is put right first, so that both see the same.
func TestReported022_PathKeepsItsBytes(t *testing.T) {
	got := make(chan string, 1)
	origin := sidecartest.Answer(t, func(m *sidecartest.Message) string {
		got <- m.Target()
		return sidecartest.Reply(200, "ok")
	})
	p := sidecartest.Run(t, `
services:
  svc:
    endpoints: [%q]
    routes: [{match: /admin/*, respond: {status: 403}}]
`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	for target, want := range map[string]string{
		"/wiki/http://example.org/%C3%A9t%C3%A9": "", "/a//b": "", "//a///b/": "", "/a%2Fb": "", "/caf%C3%A9": "", "/;p=1//": "",
		"/q?u=http://a//b/../c&v=%2F%2e": "", "/a/x/../b": "/a/b", "/a/./b": "/a/b", "/%7ea": "/~a", "/a%2eb": "/a.b",
	} {
		if m := c.Ask(t, "GET %s HTTP/1.1\r\nHost: svc\r\n\r\n", target); m.Status() != 200 {
			t.Errorf("%s: %s %s", target, m.Start, m.Body)
			continue
		}
		if g := <-got; g != cmp.Or(want, target) {
			t.Errorf("%s arrived as %s", target, g)
		}
	}
	for _, target := range []string{"/admin/x", "/admin//x", "/x/../admin/x", "/%61dmin/x", "/./admin//x"} {
		c := sidecartest.Dial(t, p.Outbound)
		if m := c.Ask(t, "GET %s HTTP/1.1\r\nHost: svc\r\n\r\n", target); m.Status() != 403 {
			t.Errorf("%s got around the rule: %s", target, m.Start)
		}
	}
}

// TestReported023_LongRequestLine: a request line of more than 8 KiB does not confuse the detection of the protocol, in
// one piece or in two.
func TestReported023_LongRequestLine(t *testing.T) {
	origin := sidecartest.Answer(t, sidecartest.OK("ok"))
	p := sidecartest.Run(t, `
node: {service: shop}
inbound: [{service: shop, app: %q, protocol: auto}]
`, origin.Address)
	for _, size := range []int{8000, 8400, 9000, 15000} {
		for _, split := range []int{0, 1, 3, 8191, 8192, 8193} {
			request := "GET /?" + strings.Repeat("q", size) + " HTTP/1.1\r\nHost: shop\r\n\r\n"
			c := sidecartest.Dial(t, p.Inbound)
			if split > 0 && split < size {
				_ = c.Send("%s", request[:split])
				<-time.After(20 * time.Millisecond) // so that it goes out as a piece of its own
				request = request[split:]
			}
			start := time.Now()
			m := c.Ask(t, "%s", request)
			if m.Status() != 200 || time.Since(start) > 2*time.Second {
				t.Errorf("size %d, split at %d: %s after %v", size, split, m.Start, time.Since(start))
			}
			_ = c.Close()
		}
	}
}

// TestReported025_BigResponseHead: a head larger than the limit is a 502 that says so.
func TestReported025_BigResponseHead(t *testing.T) {
	origin := sidecartest.Answer(t, func(m *sidecartest.Message) string {
		var n int
		_, _ = fmt.Sscanf(m.Target(), "/%d", &n)
		return sidecartest.Reply(200, "ok", "X-Big: "+strings.Repeat("b", n<<10))
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q], policy: {outlier: none}}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	if m := c.Ask(t, get, "50"); m.Status() != 200 || len(m.Get("x-big")) != 50<<10 {
		t.Errorf("50 KiB: %s", m.Start)
	}
	m := c.Ask(t, get, "70")
	if m.Status() != 502 || m.Get("x-sidecar-reason") != "upstream_protocol" || !strings.Contains(string(m.Body), "header_bytes") {
		t.Errorf("70 KiB: %s, reason %q: %s", m.Start, m.Get("x-sidecar-reason"), m.Body)
	}
	if m := c.Ask(t, get, "1"); m.Status() != 200 {
		t.Errorf("the connection serves no more: %s", m.Start)
	}
}

// TestReported026_BigCookie: a cookie of 17 KB passes in both directions of the mesh; too large a head is a 431 of ours.
func TestReported026_BigCookie(t *testing.T) {
	origin := sidecartest.Answer(t, func(m *sidecartest.Message) string {
		return sidecartest.Reply(200, fmt.Sprint(len(m.Get("cookie"))))
	})
	p := sidecartest.Run(t, `
node: {service: shop}
services: {svc: {endpoints: [%q]}}
inbound: [{service: shop, app: %q}]
`, origin.Address, origin.Address)
	for _, address := range []string{p.Outbound, p.Inbound} {
		c := sidecartest.Dial(t, address)
		m := c.Ask(t, "GET / HTTP/1.1\r\nHost: svc\r\nCookie: %s\r\n\r\n", strings.Repeat("c", 17<<10))
		if m.Status() != 200 || string(m.Body) != fmt.Sprint(17<<10) {
			t.Errorf("17 KiB: %s %s", m.Start, m.Body)
		}
		m = c.Ask(t, "GET / HTTP/1.1\r\nHost: svc\r\nCookie: %s\r\n\r\n", strings.Repeat("c", 90<<10))
		if m.Status() != 431 || m.Get("x-sidecar-reason") != "bad_request" {
			t.Errorf("90 KiB: %s", m.Start)
		}
	}
}

// TestReported028_UnknownUpgradeIsIgnored: a Java client offers TLS on a plain connection. It is served as if it had not.
func TestReported028_UnknownUpgradeIsIgnored(t *testing.T) {
	got := make(chan *sidecartest.Message, 1)
	origin := sidecartest.Answer(t, func(m *sidecartest.Message) string {
		got <- m
		return sidecartest.Reply(200, "ok")
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	for range 2 {
		m := c.Ask(t, "GET / HTTP/1.1\r\nHost: svc\r\nConnection: Upgrade\r\nUpgrade: TLS/1.2\r\n\r\n")
		if m.Status() != 200 || string(m.Body) != "ok" {
			t.Errorf("%+v", m)
		}
		if q := <-got; strings.Contains(strings.ToLower(q.Get("upgrade")), "tls") {
			t.Errorf("the server was offered %q", q.Get("upgrade"))
		}
	}
}

// TestReported030_Expect: a client that waits for 100 gets it from the server, or from us where the server is silent, and
// not at all where the server has answered.
func TestReported030_Expect(t *testing.T) {
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		for {
			m, err := c.Head()
			if err != nil {
				return
			}
			if m.Get("expect") != "100-continue" {
				t.Errorf("the server was sent Expect: %q", m.Get("expect"))
			}
			var status int
			switch _, _ = fmt.Sscanf(m.Target(), "/%d", &status); status {
			case 100:
				_ = c.Send("HTTP/1.1 100 Continue\r\nX-From: server\r\n\r\n")
			case 200:
			default:
				_ = c.Send("%s", sidecartest.Reply(status, "no", "Connection: close"))
				if rest, _ := io.ReadAll(c.R); len(rest) > 0 {
					t.Errorf("after %d came a body: %q", status, rest)
				}
				return
			}
			body := make([]byte, 4)
			if _, err := io.ReadFull(c.R, body); err != nil {
				return
			}
			_ = c.Send("%s", sidecartest.Reply(200, string(body)))
		}
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q], policy: {outlier: none}}}`, origin.Address)
	const request = "POST /%d HTTP/1.1\r\nHost: svc\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
	for _, row := range []struct {
		status int
		from   string
		after  time.Duration
	}{{100, "server", 0}, {200, "", 900 * time.Millisecond}} {
		c := sidecartest.Dial(t, p.Outbound)
		start := time.Now()
		_ = c.Send(request, row.status)
		m, err := c.Response("POST")
		took := time.Since(start)
		if err != nil || m.Status() != 100 || m.Get("x-from") != row.from || took < row.after || took > row.after+4*time.Second {
			t.Fatalf("%d: %+v %v after %v", row.status, m, err, took)
		}
		if m := c.Ask(t, "body"); m.Status() != 200 || string(m.Body) != "body" {
			t.Errorf("%d: %+v", row.status, m)
		}
	}
	for _, status := range []int{401, 413, 417} {
		c := sidecartest.Dial(t, p.Outbound)
		_ = c.Send(request, status)
		if m, err := c.Response("POST"); err != nil || m.Status() != status {
			t.Errorf("%d: %+v %v", status, m, err)
		}
	}
}

// TestReported031_HopByHop: fields that are meant for one hop, and those that Connection names, go no further.
func TestReported031_HopByHop(t *testing.T) {
	got := make(chan *sidecartest.Message, 1)
	origin := sidecartest.Answer(t, func(m *sidecartest.Message) string {
		got <- m
		return sidecartest.Reply(200, "ok", "Connection: X-Bar", "X-Bar: 1", "Keep-Alive: timeout=5", "X-Stays: 1")
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	m := c.Ask(t, "GET / HTTP/1.1\r\nHost: svc\r\nConnection: x-foo, keep-alive\r\nX-Foo: 1\r\nKeep-Alive: 5\r\nProxy-Connection: keep-alive\r\nTE: gzip\r\nX-Stays: 1\r\n\r\n")
	q := <-got
	for _, name := range []string{"connection", "x-foo", "x-bar", "keep-alive", "proxy-connection", "te"} {
		if q.Has(name) {
			t.Errorf("the server got %s: %s", name, q.Get(name))
		}
		if m.Has(name) {
			t.Errorf("the client got %s: %s", name, m.Get(name))
		}
	}
	if !q.Has("x-stays") || !m.Has("x-stays") {
		t.Error("X-Stays did not stay")
	}
	// Our own answers carry what this connection needs, and nothing of the request.
	m = c.Ask(t, "GET / HTTP/1.1\r\nHost: nobody\r\nConnection: x-foo\r\nX-Foo: 1\r\n\r\n")
	if m.Status() != 404 || m.Has("connection") || m.Has("x-foo") || m.Get("x-sidecar-reason") != "no_route" {
		t.Errorf("local reply: %+v", m)
	}
	m = c.Ask(t, "GET / HTTP/1.1\r\nHost: nobody\r\nConnection: close\r\n\r\n")
	if m.Status() != 404 || m.Get("connection") != "close" {
		t.Errorf("local reply: %+v", m)
	}
	c.Closed(t, 15*time.Second)
}

// TestReported033_RouteChangeReachesOpenConnections: the next request of a kept-alive connection takes the new route.
func TestReported033_RouteChangeReachesOpenConnections(t *testing.T) {
	one := sidecartest.Answer(t, sidecartest.OK("one"))
	two := sidecartest.Answer(t, sidecartest.OK("two"))
	const document = `
services:
  one: {endpoints: [%q]}
  two: {endpoints: [%q]}
  svc: {endpoints: ["127.0.0.1:1"], routes: [{match: /*, to: {service: %s}}]}
`
	p := sidecartest.Run(t, document, one.Address, two.Address, "one")
	c := sidecartest.Dial(t, p.Outbound)
	if m := c.Ask(t, get, "x"); string(m.Body) != "one" {
		t.Fatalf("%s %s", m.Start, m.Body)
	}
	p.Write(t, document, one.Address, two.Address, "two")
	sidecartest.Eventually(t, 10*time.Second, "the new route serves the connection", func() bool {
		m, err := func() (*sidecartest.Message, error) {
			if err := c.Send(get, "x"); err != nil {
				return nil, err
			}
			return c.Response("GET")
		}()
		if err != nil && !errors.Is(err, io.EOF) || m == nil || m.Status() != 200 {
			t.Fatalf("%+v %v", m, err)
		}
		return string(m.Body) == "two"
	})
}
