package reported

import (
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

const grace = 400 * time.Millisecond // of the documents below

// TestReported086_OutboundOutlivesInbound: on SIGTERM only the inbound side drains. The app calls out until it is gone;
// then the sidecar ends by itself, in order.
func TestReported086_OutboundOutlivesInbound(t *testing.T) {
	app, far := sidecartest.Answer(t, sidecartest.OK("app")), sidecartest.Answer(t, sidecartest.OK("far"))
	p := sidecartest.Run(t, `
node: {service: shop}
limits: {drain_grace: 400ms, drain_timeout: 20s}
services: {svc: {endpoints: [%q]}}
inbound: [{service: shop, app: %q}]
`, far.Address, app.Address)
	p.Signal(t, syscall.SIGTERM)
	sidecartest.Eventually(t, 10*time.Second, "inbound connections are refused", func() bool { return sidecartest.Refuses(p.Inbound) })
	// Longer than grace and quiet time together: each on a connection of its own, as a dying app does.
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		c := sidecartest.Dial(t, p.Outbound)
		if m := c.Ask(t, get, ""); m.Status() != 200 || m.Has("connection") {
			t.Fatalf("a call of the app: %+v", m)
		}
		_ = c.Close()
	}
	app.Close()
	if code := p.Wait(t, 15*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestReported087_DrainPerDirection: while the inbound side drains and says so, answers to the app's own calls stay as
// they were.
func TestReported087_DrainPerDirection(t *testing.T) {
	app, far := sidecartest.Answer(t, sidecartest.OK("app")), sidecartest.Answer(t, sidecartest.OK("far"))
	p := sidecartest.Run(t, `
node: {service: shop}
limits: {drain_grace: 2s, drain_timeout: 20s}
services: {svc: {endpoints: [%q]}}
inbound: [{service: shop, app: %q}]
`, far.Address, app.Address)
	in, out := sidecartest.Dial(t, p.Inbound), sidecartest.Dial(t, p.Outbound)
	for _, c := range []*sidecartest.Conn{in, out} {
		if m := c.Ask(t, get, ""); m.Status() != 200 || m.Has("connection") {
			t.Fatalf("%+v", m)
		}
	}
	p.Signal(t, syscall.SIGTERM)
	sidecartest.Eventually(t, 20*time.Second, "it is not ready any more", func() bool { return status(t, p.Health, "/ready") == 503 })
	if m := in.Ask(t, get, ""); m.Status() != 200 || m.Get("connection") != "close, X-Sidecar-Offline" {
		t.Errorf("inbound: %+v", m)
	}
	in.Closed(t, 15*time.Second)
	for range 20 {
		if m := out.Ask(t, get, ""); m.Status() != 200 || m.Has("connection") {
			t.Fatalf("outbound: %+v", m)
		}
		<-time.After(50 * time.Millisecond)
	}
}

func status(t *testing.T, address, path string) int {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	return r.StatusCode
}

// TestReported088_ActiveStreamsAreNotCut: the drain waits for streams, however many idle connections there are, and is over
// as soon as they are.
func TestReported088_ActiveStreamsAreNotCut(t *testing.T) {
	const streams = 200
	release := make(chan struct{})
	app := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		if _, err := c.Head(); err != nil {
			return
		}
		_ = c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
		<-release
		_ = c.Send("4\r\nlast\r\n0\r\n\r\n")
	})
	p := sidecartest.Run(t, `
node: {service: shop}
limits: {drain_grace: 0s, drain_timeout: 30s}
services: {svc: {endpoints: [%q]}}
`, app.Address)
	var list []*sidecartest.Conn
	for range streams {
		c := sidecartest.Dial(t, p.Outbound)
		_ = c.Send(get, "")
		if m, err := c.Head(); err != nil || m.Status() != 200 {
			t.Fatalf("%+v %v", m, err)
		}
		c.Expect(t, "5\r\nfirst\r\n")
		list = append(list, c)
	}
	idle := sidecartest.Dial(t, p.Outbound)
	idle.Ask(t, "GET / HTTP/1.1\r\nHost: nobody\r\n\r\n")
	p.Signal(t, syscall.SIGTERM)
	idle.Closed(t, 15*time.Second)
	select {
	case <-p.Exited():
		t.Fatal("it ended under open streams")
	case <-time.After(2 * time.Second):
	}
	close(release)
	for i, c := range list {
		if rest, err := io.ReadAll(c.R); err != nil || string(rest) != "4\r\nlast\r\n0\r\n\r\n" {
			t.Fatalf("stream %d: %q %v", i, rest, err)
		}
	}
	if code := p.Wait(t, 15*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestReported088_IdleConnectionsDoNotBlockExit: connections that wait for nothing are closed, and the end comes soon. The
// minimum is kept all the same: new connections are served until the grace is over.
func TestReported088_IdleConnectionsDoNotBlockExit(t *testing.T) {
	origin := sidecartest.Answer(t, sidecartest.OK("ok"))
	p := sidecartest.Run(t, "limits: {drain_grace: 400ms, drain_timeout: 30s}\nservices: {svc: {endpoints: [%q]}}", origin.Address)
	var idle []*sidecartest.Conn
	for range 50 {
		c := sidecartest.Dial(t, p.Outbound)
		c.Ask(t, get, "")
		idle = append(idle, c)
	}
	start := time.Now()
	p.Signal(t, syscall.SIGTERM)
	sidecartest.Eventually(t, 20*time.Second, "it is not ready any more", func() bool { return status(t, p.Health, "/ready") == 503 })
	if time.Since(start) < grace/2 { // or else this machine stood still
		if m := sidecartest.Dial(t, p.Outbound).Ask(t, get, ""); m.Status() != 200 || m.Get("connection") != "close" {
			t.Errorf("within the grace: %+v", m)
		}
	}
	for _, c := range idle {
		c.Closed(t, 15*time.Second)
	}
	if code := p.Wait(t, 15*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(start); took < grace {
		t.Errorf("it took %v, less than the grace", took)
	}
}

// TestReported090_RouteChurnSparesStreams: a service goes and comes back with the same endpoint; what was under way is not
// disturbed.
func TestReported090_RouteChurnSparesStreams(t *testing.T) {
	next := make(chan string)
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		for {
			m, err := c.Head()
			if err != nil {
				return
			}
			if m.Target() != "/stream" {
				_ = c.Send("%s", sidecartest.Reply(200, "ok"))
				continue
			}
			_ = c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			for s := range next {
				_ = c.Send("%x\r\n%s\r\n", len(s), s)
			}
			_ = c.Send("0\r\n\r\n")
		}
	})
	const plain = "services: {svc: {endpoints: [%q]}}"
	p := sidecartest.Run(t, plain, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	_ = c.Send(get, "stream")
	if m, err := c.Head(); err != nil || m.Status() != 200 {
		t.Fatalf("%+v %v", m, err)
	}
	for i, document := range []string{
		"services: {other: {endpoints: [%q]}}",
		plain,
		"services: {svc: {endpoints: [%q], routes: [{match: /x, respond: {status: 410}}], policy: {timeout: 1s}}}",
		plain,
	} {
		p.Reload(t, document, origin.Address)
		next <- "still"
		c.Expect(t, "5\r\nstill\r\n")
		want := 200
		if i == 0 {
			want = 404
		}
		if m := sidecartest.Dial(t, p.Outbound).Ask(t, get, ""); m.Status() != want {
			t.Errorf("step %d: a new call: %s", i, m.Start)
		}
	}
	p.Signal(t, syscall.SIGTERM)
	next <- "until"
	c.Expect(t, "5\r\nuntil\r\n")
	close(next)
	c.Expect(t, "0\r\n\r\n")
	c.Closed(t, 15*time.Second)
	if code := p.Wait(t, 10*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestReported091_SettingsSpareConnections: a change of the access log's format, of limits and policies touches no
// connection: not a tunnel, not a WebSocket, not an idle one.
func TestReported091_SettingsSpareConnections(t *testing.T) {
	up := echo(t)
	raw := sidecartest.Serve(t, func(c *sidecartest.Conn) { _, _ = io.Copy(c, c.R) })
	web := sidecartest.Answer(t, sidecartest.OK("ok"))
	port := sidecartest.FreeAddress(t)
	const document = `
telemetry: {access_log: {format: %s}}
limits: {header_count: %d}
services:
  svc: {endpoints: [%q], policy: {timeout: %s}}
  web: {endpoints: [%q]}
  raw: {protocol: tcp, listen: %q, endpoints: [%q], policy: {idle_timeout: %s}}
`
	p := sidecartest.Run(t, document, "json", 100, up.Address, "1s", web.Address, port, raw.Address, "1m")
	tunnel, socket, idle := sidecartest.Dial(t, port), sidecartest.Dial(t, p.Outbound), sidecartest.Dial(t, p.Outbound)
	socket.Ask(t, handshake)
	const ask = "GET / HTTP/1.1\r\nHost: web\r\n\r\n"
	idle.Ask(t, ask)
	for i, format := range []string{"text", "none", "json", "text"} {
		p.Reload(t, document, format, 90+i, up.Address, "2s", web.Address, port, raw.Address, "2m")
		for _, c := range []*sidecartest.Conn{tunnel, socket} {
			_ = c.Send("still %d", i)
			c.Expect(t, "still "+string(rune('0'+i)))
		}
		if m := idle.Ask(t, ask); m.Status() != 200 {
			t.Errorf("%+v", m)
		}
	}
	if up.Accepted() != 1 || raw.Accepted() != 1 || web.Accepted() != 1 {
		t.Errorf("%d, %d and %d connections", up.Accepted(), raw.Accepted(), web.Accepted())
	}
}

// TestReported093_ReadyMeansServing: it is not ready while a registry has not answered, says whom it waits for, and is
// ready when the wait is over at the latest. A sidecar that is ready serves.
func TestReported093_ReadyMeansServing(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0") // a name server that never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	origin := sidecartest.Answer(t, sidecartest.OK("ok"))
	start := time.Now()
	p := sidecartest.Launch(t, sidecartest.Build(t), strings.NewReplacer("DNS", silent.LocalAddr().String(), "ORIGIN", origin.Address).Replace(`
registries: {names: {dns: {servers: ["DNS"], timeout: 10s}}}
discovery: {ready_wait: 3s, snapshot_dir: none}
services:
  far: {from: names, endpoints: ["far.test:80"]}
  near: {endpoints: ["ORIGIN"]}
`))
	sidecartest.Eventually(t, 10*time.Second, "it says that it is not ready", func() bool {
		return !sidecartest.Refuses(p.Health) && status(t, p.Health, "/ready") == 503
	})
	if n := status(t, p.Health, "/live"); n != 200 {
		t.Errorf("live: %d", n)
	}
	sidecartest.Eventually(t, 10*time.Second, "it is ready", func() bool { return status(t, p.Health, "/ready") == 200 })
	if took := time.Since(start); took < 2900*time.Millisecond {
		t.Errorf("it was ready after %v", took)
	}
	if m := sidecartest.Dial(t, p.Outbound).Ask(t, "GET / HTTP/1.1\r\nHost: near\r\n\r\n"); m.Status() != 200 {
		t.Errorf("%+v", m)
	}
}

// TestReported094_QuitEndsTheJob: a job asks its sidecar to quit, with a connection to an outside host still open and idle.
func TestReported094_QuitEndsTheJob(t *testing.T) {
	raw := sidecartest.Serve(t, func(c *sidecartest.Conn) { _, _ = io.Copy(io.Discard, c.R) })
	web := sidecartest.Answer(t, sidecartest.OK("ok"))
	port := sidecartest.FreeAddress(t)
	p := sidecartest.Run(t, `
node: {service: job}
services:
  raw: {protocol: tcp, listen: %q, endpoints: [%q]}
  web: {endpoints: [%q]}
inbound: [{service: job, app: %q}]
`, port, raw.Address, web.Address, web.Address)
	idle := sidecartest.Dial(t, port)
	_ = idle.Send("once")
	kept := sidecartest.Dial(t, p.Outbound)
	kept.Ask(t, "GET / HTTP/1.1\r\nHost: web\r\n\r\n")
	client := http.Client{Timeout: 5 * time.Second}
	start := time.Now()
	r, err := client.Post("http://"+p.Admin+"/quit", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode/100 != 2 || time.Since(start) > 3*time.Second {
		t.Errorf("%s after %v", r.Status, time.Since(start))
	}
	if code := p.Wait(t, 15*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
