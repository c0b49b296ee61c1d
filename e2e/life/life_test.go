// Package life tests the life of the real process: start and readiness, reload, drain, the end, and the subcommands that
// look at it from outside.
package life

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

func TestMain(m *testing.M) { sidecartest.Main(m) }

var errRefused = errors.New("refused")

// call asks the admin API; what it answers is decoded into out, which may be nil.
func call(t testing.TB, method, address, path string, out any) (status int, err error) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	q, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(q)
	if err != nil {
		return 0, errRefused
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(body, out); err != nil {
			t.Fatalf("%s %s: %v in %q", method, path, err, body)
		}
	}
	return resp.StatusCode, nil
}

// must is call for what has to be answered with a status.
func must(t testing.TB, method, address, path string, status int, out any) {
	t.Helper()
	if got, err := call(t, method, address, path, out); err != nil || got != status {
		t.Fatalf("%s %s: %d %v, want %d", method, path, got, err, status)
	}
}

const get = "GET / HTTP/1.1\r\nHost: %s\r\n\r\n"

// held is an origin that answers when it is told to.
func held(t testing.TB) (o *sidecartest.Origin, arrived chan struct{}, release chan struct{}) {
	arrived, release = make(chan struct{}, 100), make(chan struct{})
	o = sidecartest.Answer(t, func(*sidecartest.Message) string {
		arrived <- struct{}{}
		<-release
		return sidecartest.Reply(200, "late")
	})
	t.Cleanup(func() {
		select {
		case <-release:
		default:
			close(release)
		}
	})
	return o, arrived, release
}

// TestTermFinishes: what is in flight at SIGTERM finishes, readiness goes at once, new connections are taken for a
// moment, and the exit code is 0.
func TestTermFinishes(t *testing.T) {
	t.Parallel()
	origin, arrived, release := held(t)
	p := sidecartest.Run(t, `
limits: {drain_grace: 3s}
services: {svc: {endpoints: [%q], routes: [{match: /here, respond: {status: 204}}]}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	if err := c.Send(get, "svc"); err != nil {
		t.Fatal(err)
	}
	<-arrived
	p.Signal(t, syscall.SIGTERM)
	var v struct{ Reason, Title string }
	sidecartest.Eventually(t, 2*time.Second, "not ready", func() bool {
		status, _ := call(t, "GET", p.Health, "/ready", &v)
		return status == 503
	})
	if v.Reason != "draining" {
		t.Errorf("not ready because of %q", v.Reason)
	}
	must(t, "GET", p.Admin, "/live", 200, nil)
	late := sidecartest.Dial(t, p.Outbound)
	if m := late.Ask(t, "GET /here HTTP/1.1\r\nHost: svc\r\n\r\n"); m.Status() != 204 || m.Get("connection") != "close" {
		t.Errorf("during the grace: %s, connection %q", m.Start, m.Get("connection"))
	}
	sidecartest.Eventually(t, patience, "no connection is taken any more", func() bool { return sidecartest.Refuses(p.Outbound) })
	close(release)
	if m := c.Answer(t, "GET"); m.Status() != 200 || string(m.Body) != "late" {
		t.Errorf("%s %q", m.Start, m.Body)
	}
	if code := p.Wait(t, patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if r := p.Record(t, "/"); r.Status != 200 {
		t.Errorf("the access log has %+v", r)
	}
}

// TestTermTwice: a second signal ends at once.
func TestTermTwice(t *testing.T) {
	t.Parallel()
	origin, arrived, _ := held(t)
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	_ = c.Send(get, "svc")
	<-arrived
	p.Signal(t, syscall.SIGTERM)
	sidecartest.Eventually(t, patience, "it drains", func() bool {
		status, _ := call(t, "GET", p.Health, "/ready", nil)
		return status == 503
	})
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t, patience); code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d", code)
	}
}

// TestTermTimeOver: what is not over when drain_timeout is gets cut off, and the exit code is 0.
func TestTermTimeOver(t *testing.T) {
	t.Parallel()
	origin, arrived, _ := held(t)
	p := sidecartest.Run(t, `
limits: {drain_grace: 0s, drain_timeout: 600ms}
services: {svc: {endpoints: [%q]}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	_ = c.Send(get, "svc")
	<-arrived
	start := time.Now()
	p.Signal(t, syscall.SIGINT)
	if code := p.Wait(t, patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(start); took < 500*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	if !strings.Contains(p.Said(), "1 connection cut off") {
		t.Errorf("it does not say that something was cut:\n%s", p.Said())
	}
}

// TestTermIdle: idle keep-alive connections alone do not hold the process.
func TestTermIdle(t *testing.T) {
	t.Parallel()
	origin := sidecartest.Answer(t, sidecartest.OK("ok"))
	p := sidecartest.Run(t, `
limits: {drain_grace: 100ms}
services: {svc: {endpoints: [%q]}}`, origin.Address)
	for range 5 {
		sidecartest.Dial(t, p.Outbound).Ask(t, get, "svc")
	}
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t, patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestInboundFirst: while our app is there its calls go on, on connections that are not told to close; calls to it are not
// taken any more. The process ends soon after the app.
func TestInboundFirst(t *testing.T) {
	t.Parallel()
	origin := sidecartest.Answer(t, sidecartest.OK("origin"))
	app := sidecartest.Answer(t, sidecartest.OK("app"))
	p := sidecartest.Run(t, `
limits: {drain_grace: 300ms}
services: {svc: {endpoints: [%q]}}
inbound: [{service: shop, app: %q}]`, origin.Address, app.Address)
	if m := sidecartest.Dial(t, p.Inbound).Ask(t, get, "shop"); string(m.Body) != "app" {
		t.Fatalf("%s %q", m.Start, m.Body)
	}
	out := sidecartest.Dial(t, p.Outbound)
	out.Ask(t, get, "svc")
	p.Signal(t, syscall.SIGTERM)
	sidecartest.Eventually(t, patience, "the inbound side is closed", func() bool { return sidecartest.Refuses(p.Inbound) })
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		if m := out.Ask(t, get, "svc"); m.Status() != 200 || m.Has("connection") {
			t.Fatalf("while the app is there: %s, connection %q", m.Start, m.Get("connection"))
		}
	}
	app.Close()
	// The app has closed its socket and makes its last calls.
	for range 15 {
		if m := sidecartest.Dial(t, p.Outbound).Ask(t, get, "svc"); m.Status() != 200 {
			t.Fatalf("a last call: %s", m.Start)
		}
		<-time.After(100 * time.Millisecond)
	}
	if code := p.Wait(t, patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestInboundBound: an app that does not go holds the outbound side only until the time is nearly over.
func TestInboundBound(t *testing.T) {
	t.Parallel()
	app := sidecartest.Answer(t, sidecartest.OK("app"))
	p := sidecartest.Run(t, `
limits: {drain_grace: 100ms, drain_timeout: 8s}
inbound: [{service: shop, app: %q}]`, app.Address)
	start := time.Now()
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t, patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(start); took < 5900*time.Millisecond || took > 8*time.Second {
		t.Errorf("it took %v, want a little more than 6 s", took)
	}
}

// TestQuit: the end of a job's app. An idle TCP connection to an outside host does not hold the process for long.
func TestQuit(t *testing.T) {
	t.Parallel()
	outside := sidecartest.Serve(t, func(c *sidecartest.Conn) { _, _ = c.Request() })
	port := sidecartest.FreeAddress(t)
	p := sidecartest.Run(t, `
services: {db: {protocol: tcp, listen: %q, endpoints: [%q]}}
inbound: [{service: job, app: %q}]`, port, outside.Address, outside.Address)
	sidecartest.Dial(t, port)
	sidecartest.Eventually(t, patience, "the tunnel is there", func() bool { return outside.Accepted() > 0 })
	start := time.Now()
	must(t, "POST", p.Admin, "/quit", 202, nil)
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("the answer took %v", took)
	}
	if code := p.Wait(t, patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestDrainStays: to drain is not to end.
func TestDrainStays(t *testing.T) {
	t.Parallel()
	origin, arrived, release := held(t)
	p := sidecartest.Run(t, `
limits: {drain_grace: 100ms}
services: {svc: {endpoints: [%q]}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	_ = c.Send(get, "svc")
	<-arrived
	var v struct{ State string }
	must(t, "POST", p.Admin, "/drain", 202, &v)
	if v.State != "draining" {
		t.Errorf("state %q", v.State)
	}
	must(t, "GET", p.Health, "/ready", 503, nil)
	sidecartest.Eventually(t, patience, "no connection is taken any more", func() bool { return sidecartest.Refuses(p.Outbound) })
	close(release)
	if m := c.Answer(t, "GET"); m.Status() != 200 {
		t.Errorf("%s", m.Start)
	}
	must(t, "POST", p.Admin, "/drain?wait=10s", 200, &v)
	if v.State != "drained" {
		t.Errorf("state %q", v.State)
	}
	select {
	case <-p.Exited():
		t.Fatal("the process ended")
	default:
	}
	must(t, "GET", p.Admin, "/live", 200, nil)
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t, patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestTermAfterMove: what is in flight on a listener that the configuration has moved away is waited for, too.
func TestTermAfterMove(t *testing.T) {
	t.Parallel()
	origin, arrived, release := held(t)
	document := fmt.Sprintf("limits: {drain_grace: 100ms}\nservices: {svc: {endpoints: [%q]}}", origin.Address)
	p := sidecartest.Run(t, "%s", document)
	idle, busy := sidecartest.Dial(t, p.Outbound), sidecartest.Dial(t, p.Outbound)
	_ = busy.Send(get, "svc")
	<-arrived
	before := p.Outbound
	p.Outbound = sidecartest.FreeAddress(t)
	p.Write(t, "%s", document)
	sidecartest.Eventually(t, patience, "the listener has moved", func() bool { return sidecartest.Refuses(before) && !sidecartest.Refuses(p.Outbound) })
	idle.Closed(t, 12*time.Second)
	var v struct {
		Downstream []struct {
			Address string
			Active  int
		}
	}
	must(t, "GET", p.Admin, "/connections", 200, &v)
	if len(v.Downstream) < 2 || v.Downstream[0].Active+v.Downstream[1].Active != 1 {
		t.Errorf("%+v", v)
	}
	p.Signal(t, syscall.SIGTERM)
	sidecartest.Eventually(t, patience, "it drains", func() bool { return sidecartest.Refuses(p.Outbound) })
	close(release)
	if m := busy.Answer(t, "GET"); m.Status() != 200 {
		t.Errorf("%s", m.Start)
	}
	if code := p.Wait(t, patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestTermEarly: a connection that was taken before the end, and has not said anything yet, is served.
func TestTermEarly(t *testing.T) {
	t.Parallel()
	app := sidecartest.Answer(t, sidecartest.OK("app"))
	for range 5 {
		p := sidecartest.Run(t, "limits: {drain_grace: 0s}\ninbound: [{service: shop, app: %q}]", app.Address)
		c := sidecartest.Dial(t, p.Inbound)
		sidecartest.Eventually(t, patience, "the connection is taken", func() bool {
			return p.Metric(t, "sidecar_downstream_connections_open", `listener="inbound"`) == 1
		})
		start := time.Now()
		p.Signal(t, syscall.SIGTERM)
		sidecartest.Eventually(t, patience, "it drains", func() bool { return sidecartest.Refuses(p.Inbound) })
		if time.Since(start) < 500*time.Millisecond { // or else this machine stood still: a connection is waited for for a second
			if m := c.Ask(t, get, "shop"); string(m.Body) != "app" {
				t.Errorf("%s %q", m.Start, m.Body)
			}
		}
		p.Signal(t, syscall.SIGTERM)
		p.Wait(t, patience)
	}
}

// TestReadyWaits: ready only when discovery has answered, or the time for it is over; until then it says what for.
func TestReadyWaits(t *testing.T) {
	t.Parallel()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	p := sidecartest.Launch(t, sidecartest.Build(t), `
discovery: {ready_wait: 3s, snapshot_dir: none}
registries: {names: {dns: {servers: ["`+silent.LocalAddr().String()+`"]}}}
services: {far: {hosts: ["far.internal:80"], from: names}}`)
	var v struct {
		Reason, Detail string
		Waiting        []struct{ Service, Source string }
	}
	sidecartest.Eventually(t, patience, "not ready, and why", func() bool {
		status, err := call(t, "GET", p.Health, "/ready", &v)
		return err == nil && status == 503 && len(v.Waiting) == 1
	})
	if v.Reason != "starting" || v.Waiting[0].Service != "far" || v.Waiting[0].Source != "names" {
		t.Errorf("%+v", v)
	}
	must(t, "GET", p.Health, "/live", 200, nil)
	sidecartest.Eventually(t, patience, "ready", func() bool {
		status, _ := call(t, "GET", p.Health, "/ready", nil)
		return status == 200
	})
}

// TestStartFails: a bad configuration, or a port that is taken, ends the start with exit code 1.
func TestStartFails(t *testing.T) {
	t.Parallel()
	p := sidecartest.Launch(t, sidecartest.Build(t), `services: {svc: {polcy: {}}}`)
	if code := p.Wait(t, patience); code != 1 || !strings.Contains(p.Said(), ":2:18: services.svc.polcy: unknown key, did you mean policy?") {
		t.Errorf("exit code %d: %s", code, p.Said())
	}
	taken := sidecartest.Answer(t, sidecartest.OK("ok"))
	p = sidecartest.Launch(t, sidecartest.Build(t), `services: {svc: {listen: "`+taken.Address+`", endpoints: [127.0.0.1:1]}}`)
	if code := p.Wait(t, patience); code != 1 || !strings.Contains(p.Said(), "services.svc.listen: ") {
		t.Errorf("exit code %d: %s", code, p.Said())
	}
}
