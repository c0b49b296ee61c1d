package stories

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// hostOf is the host of an address.
func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

// TestReadsDoNotHurtWrites: reads and writes have nodes of their own, by the printed rules (S-122). Both read nodes are
// killed: not one write fails, and no read goes to a write node (S-113).
func TestReadsDoNotHurtWrites(t *testing.T) {
	var nodes []*sidecartest.Endpoint
	var list, hosts []string
	for range 4 {
		e := sidecartest.NewEndpoint(t)
		nodes, list, hosts = append(nodes, e), append(list, fmt.Sprintf("%q", e.Address)), append(hosts, hostOf(e.Address))
	}
	p := sidecartest.Run(t, `services:
  users:
    endpoints: [%s]
    rules: "method = find*,list*,get*,is* => host =%s,%s method != find*,list*,get*,is* => host = %s,%s"
    routes:
      - {name: getUser, match: GET /users/*}
      - {name: saveUser, match: PUT /users/*}
`, strings.Join(list, ","), hosts[0], hosts[1], hosts[2], hosts[3])
	p.Says(t, "2 rules on one line")
	reads := sidecartest.Steady(t, sidecartest.Call{Address: p.Outbound, Host: "users", Path: "/users/7", Callers: 1, Pause: time.Millisecond})
	writes := sidecartest.Steady(t, sidecartest.Call{Address: p.Outbound, Host: "users", Path: "/users/7", Method: "PUT", Callers: 2, Pause: time.Millisecond})
	more(t, reads, 50)
	more(t, writes, 50)
	nodes[0].Kill()
	nodes[1].Kill()
	sidecartest.Eventually(t, 10*time.Second, "reads fail", func() bool { _, failed := reads.Count(); return failed > 20 })
	more(t, writes, 200)
	none(t, writes, 250)
	_, failed := reads.Count()
	reads.Stop()
	if failed == 0 {
		t.Error("reads do not notice that their nodes are gone")
	}
	for _, r := range p.Records(t, reads.Calls+writes.Calls) {
		host := hostOf(r.Endpoint)
		isRead := host == hosts[0] || host == hosts[1]
		if r.Method == "GET" && r.Endpoint != "" && !isRead || r.Method == "PUT" && isRead {
			t.Fatalf("%s went to %s", r.Method, r.Endpoint)
		}
	}
}

// TestBanned: a caller that a rule bans is refused by its own sidecar, and by the sidecar of the app that it calls directly;
// a file is all it takes, and all to end it (S-117, S-120).
func TestBanned(t *testing.T) {
	app := sidecartest.Answer(t, sidecartest.OK("hello"))
	provider := func(rule string) string {
		return fmt.Sprintf(quiet+"node: {service: shop}\ninbound: [{app: %q, protocol: http}]\nrules: {shop: [%s]}", app.Address, rule)
	}
	p := sidecartest.Run(t, "%s", provider(`"host = 127.77.7.7 =>"`))
	caller := sidecartest.Run(t, quiet+"node: {service: web, address: 127.77.7.7}\nservices: {shop: {endpoints: [%q], rules: \"host = 127.77.7.7 =>\"}}", p.Inbound)
	m := sidecartest.Dial(t, caller.Outbound).Ask(t, "GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
	if m.Status() != 403 || m.Get("x-sidecar-reason") != "forbidden" {
		t.Errorf("at the caller: %d %q", m.Status(), m.Get("x-sidecar-reason"))
	}
	ask := func(from string) int {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
		c, err := d.Dial("tcp", p.Inbound)
		if err != nil {
			t.Fatal(err)
		}
		conn := sidecartest.NewConn(c)
		t.Cleanup(func() { _ = c.Close() })
		return conn.Ask(t, "GET / HTTP/1.1\r\nHost: shop\r\n\r\n").Status()
	}
	if n := p.Metric(t, "sidecar_rules", `service="shop"`, `rank="file"`); n != 1 {
		t.Errorf("the pod's local rules are not flagged: %v", n)
	}
	if status := ask("127.77.7.7"); status != 403 {
		t.Errorf("the banned caller, directly: %d", status)
	}
	if status := ask("127.77.7.8"); status != 200 {
		t.Errorf("another caller: %d", status)
	}
	if app.Requests() != 1 {
		t.Errorf("the app saw %d requests", app.Requests())
	}
	p.Reload(t, "%s", provider(`{rule: "host = 127.77.7.7 =>", enabled: false}`))
	if status := ask("127.77.7.7"); status != 200 {
		t.Errorf("when the ban is over: %d", status)
	}
}

// TestGroupSwitch: five sidecars read one file beside their own. One write switches the group away: five seconds later no
// request goes there; another write restores it (S-112, S-133, S-110, S-202).
func TestGroupSwitch(t *testing.T) {
	bj, sh, gz := sidecartest.Answer(t, sidecartest.OK("bj")), sidecartest.Answer(t, sidecartest.OK("sh")), sidecartest.Answer(t, sidecartest.OK("gz"))
	shared := filepath.Join(t.TempDir(), "groups.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(shared+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(shared+".new", shared); err != nil {
			t.Fatal(err)
		}
	}
	write("groups: []\n")
	both := filepath.Join(t.TempDir(), "both") // the sidecar with one more file
	if err := os.WriteFile(both, []byte("#!/bin/sh\nexec "+sidecartest.Build(t)+` "$@" -c `+shared+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	document := fmt.Sprintf(quiet+`services:
  svc:
    group: bj
    endpoints: [{address: %q, group: bj}, {address: %q, group: sh}, {address: %q, group: gz}]
`, bj.Address, sh.Address, gz.Address)
	var loads []*sidecartest.Load
	for range 5 {
		p := sidecartest.Start(t, both, document)
		loads = append(loads, sidecartest.Steady(t, sidecartest.Call{Address: p.Outbound, Host: "svc", Path: "/", Callers: 1, Pause: 2 * time.Millisecond}))
	}
	all := func(n int) {
		t.Helper()
		for _, l := range loads {
			more(t, l, n)
		}
	}
	all(20)
	if sh.Requests()+gz.Requests() > 0 {
		t.Fatalf("before the switch, sh had %d requests and gz %d", sh.Requests(), gz.Requests())
	}
	write("groups: [{service: \"*\", from: bj, to: [sh, gz]}]\n")
	<-time.After(5 * time.Second)
	at := bj.Requests()
	before := sh.Requests() + gz.Requests()
	all(50)
	if n := bj.Requests() - at; n > 0 {
		t.Errorf("5 s after the write bj still had %d requests", n)
	}
	if n := sh.Requests() + gz.Requests() - before; n < 250 || sh.Requests() == 0 || gz.Requests() == 0 {
		t.Errorf("sh has %d requests and gz %d", sh.Requests(), gz.Requests())
	}
	write("groups: []\n")
	<-time.After(5 * time.Second)
	at, before = sh.Requests()+gz.Requests(), bj.Requests()
	all(50)
	if n := sh.Requests() + gz.Requests() - at; n > 0 || bj.Requests()-before < 250 {
		t.Errorf("restored, sh and gz still had %d requests, bj %d", n, bj.Requests()-before)
	}
	for _, l := range loads {
		none(t, l, 100)
	}
}

// TestGreyChain: of the calls of a gateway, those of some users are grey: each app on their way is the grey one, though
// only the first hop sees the user. All others meet no grey app, and a rollback is one write (S-232, S-227, S-111, X-14).
func TestGreyChain(t *testing.T) {
	const grey = "grey: {v2: {match: {header: {x-uid: {mod: 20, in: [3]}}}, labels: {version: grey}, enabled: %v}}\n"
	stock := func(name string) string {
		o := sidecartest.Answer(t, sidecartest.OK(name))
		return o.Address
	}
	normal, newer := stock("stock"), stock("stock-grey")
	// The second hop: the app cart calls stock through its sidecar. It passes the mark on, and nothing else.
	second := sidecartest.Run(t, quiet+grey+`services: {stock: {endpoints: [%q, {address: %q, labels: {version: grey}}]}}`, true, normal, newer)
	cart := func(name string) string {
		return sidecartest.Answer(t, func(m *sidecartest.Message) string {
			mark := ""
			if m.Has("x-grey") {
				mark = "X-Grey: " + m.Get("x-grey") + "\r\n"
			}
			c := sidecartest.Dial(t, second.Outbound)
			answer := c.Ask(t, "GET / HTTP/1.1\r\nHost: stock\r\n%sConnection: close\r\n\r\n", mark)
			return sidecartest.Reply(200, name+" "+string(answer.Body))
		}).Address
	}
	document := fmt.Sprintf(quiet+grey+`services: {cart: {endpoints: [%q, {address: %q, labels: {version: grey}}]}}`, true, cart("cart"), cart("cart-grey"))
	p := sidecartest.Run(t, "%s", document)
	ask := func(uid int) string {
		t.Helper()
		return string(sidecartest.Dial(t, p.Outbound).Ask(t, "GET / HTTP/1.1\r\nHost: cart\r\nX-Uid: %d\r\n\r\n", uid).Body)
	}
	for uid := range 40 {
		want := "cart stock"
		if uid%20 == 3 {
			want = "cart-grey stock-grey"
		}
		if got := ask(uid); got != want {
			t.Errorf("user %d: %q, want %q", uid, got, want)
		}
	}
	if n := p.Metric(t, "sidecar_version_requests_total", `service="cart"`, `version="grey"`, `status="2xx"`); n != 2 {
		t.Errorf("the new version is counted with %v requests", n)
	}
	p.Reload(t, "%s", strings.Replace(document, "enabled: true", "enabled: false", 1))
	for range 10 {
		if got := ask(23); got != "cart stock" {
			t.Errorf("after the rollback: %q", got)
		}
	}
}

// TestRulesOfRPC: of a gRPC call the method is the last part of its path. A method that is forbidden is PERMISSION_DENIED,
// and a TCP connection that is, a reset (S-115, S-117).
func TestRulesOfRPC(t *testing.T) {
	serve := func(name string) *sidecartest.Origin {
		return sidecartest.ServeHTTP2(t, func(p *sidecartest.Peer) {
			for {
				f, err := p.Next()
				if err != nil {
					return
				}
				if f.Type == http2.FrameHeaders {
					p.Headers(f.StreamID, false, ":status", "200", "content-type", "application/grpc")
					p.Headers(f.StreamID, true, "grpc-status", "0", "grpc-message", name)
				}
			}
		})
	}
	reader, writer := serve("reader"), serve("writer")
	raw := sidecartest.Answer(t, sidecartest.OK("raw"))
	port := sidecartest.FreeAddress(t)
	p := sidecartest.Run(t, quiet+`node: {service: shop}
services:
  users:
    protocol: grpc
    endpoints: [%q, %q]
    rules: ["method = get* => host = %s", "method != get* => host = %s", "method = drop* & application = shop =>"]
  raw: {protocol: tcp, listen: %q, endpoints: [%q], rules: "application = shop =>"}
`, reader.Address, writer.Address, hostOf(reader.Address), hostOf(writer.Address), port, raw.Address)
	c := sidecartest.DialHTTP2(t, p.Outbound)
	for i, want := range []struct{ path, status, message string }{
		{"/shop.Users/getUser", "0", "reader"},
		{"/shop.Users/saveUser", "0", "writer"},
		{"/shop.Users/get", "0", "reader"},
		{"/shop.Users/dropUser", "7", "forbid"},
	} {
		id := uint32(2*i + 1)
		c.Call(id, "users", want.path)
		s, err := c.Answer(id)
		f := s.Trailers
		if f.Fields == nil {
			f = s.Head
		}
		if err != nil || f.Get("grpc-status") != want.status || !strings.Contains(f.Get("grpc-message"), want.message) {
			t.Errorf("%s: %v, %v", want.path, f.Fields, err)
		}
	}
	if conn, err := net.DialTimeout("tcp", port, 5*time.Second); err == nil { // the reset may come that early
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = conn.Write([]byte("GET / HTTP/1.1\r\nHost: raw\r\n\r\n"))
		if n, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("over TCP: %d bytes, %v", n, err)
		}
		_ = conn.Close()
	}
	if raw.Requests() > 0 {
		t.Error("what is forbidden arrived")
	}
}

// TestScripts: the printed script chooses (S-123); one that never ends costs its time and no more, and is counted.
func TestScripts(t *testing.T) {
	a, b := sidecartest.Answer(t, sidecartest.OK("a")), sidecartest.Answer(t, sidecartest.OK("b"))
	p := sidecartest.Run(t, quiet+`services:
  printed:
    endpoints: [%[1]q, %[2]q]
    rules:
      - script: |
          (function route(invokers) {
              var result = new java.util.ArrayList(invokers.size());
              for (i = 0; i < invokers.size(); i ++) {
                  if ("%[3]s".equals(invokers.get(i).getUrl().getHost())) {
                      result.add(invokers.get(i));
                  }
              }
              return result;
          } (invokers));
  each: {endpoints: [%[1]q, %[2]q], rules: [{runtime: true, script: "request.header('x-to') === 'a' ? [0] : [1]"}]}
  endless: {endpoints: [%[1]q, %[2]q], rules: [{runtime: true, script: "while (true) {}"}]}
  strict: {endpoints: [%[1]q, %[2]q], rules: [{runtime: true, force: true, script: "while (true) {}"}]}
`, a.Address, b.Address, hostOf(b.Address))
	ask := func(host, to string) *sidecartest.Message {
		t.Helper()
		return sidecartest.Dial(t, p.Outbound).Ask(t, "GET / HTTP/1.1\r\nHost: %s\r\nX-To: %s\r\n\r\n", host, to)
	}
	for range 4 {
		if got := string(ask("printed", "").Body); got != "b" {
			t.Errorf("the printed script: %q", got)
		}
	}
	// It has 20 ms, which a machine that stands still takes from it.
	sidecartest.Eventually(t, patience, "a script for each call chooses", func() bool {
		return string(ask("each", "a").Body)+string(ask("each", "b").Body) == "ab"
	})
	failed := p.Metric(t, "sidecar_script_failures_total")
	if m := ask("endless", ""); m.Status() != 200 {
		t.Errorf("a script without end: %d", m.Status())
	}
	if m := ask("strict", ""); m.Status() != 503 || m.Get("x-sidecar-reason") != "no_endpoints" {
		t.Errorf("a script without end, with force: %d %q", m.Status(), m.Get("x-sidecar-reason"))
	}
	if n := p.Metric(t, "sidecar_script_failures_total") - failed; n != 2 {
		t.Errorf("%v failures are counted", n)
	}
}

// TestGreyFallsBack: the only grey endpoint dies. Where the release says any, its calls are answered by a normal one at once,
// by way of a retry; where it says fail, they fail, and no normal one sees them (S-232).
func TestGreyFallsBack(t *testing.T) {
	for _, c := range []struct {
		orElse string
		normal bool
	}{{"any", true}, {"fail", false}} {
		normal, dead := sidecartest.Answer(t, sidecartest.OK("normal")), sidecartest.FreeAddress(t)
		p := sidecartest.Run(t, quiet+`services: {svc: {endpoints: [%q, {address: %q, labels: {version: grey}}], policy: {retry: 1, outlier: none, breaker: none}}}
grey: {v2: {match: {cookie: {grey: "1"}}, labels: {version: grey}, else: %s}}
`, normal.Address, dead, c.orElse)
		for range 10 {
			m := sidecartest.Dial(t, p.Outbound).Ask(t, "GET / HTTP/1.1\r\nHost: svc\r\nCookie: grey=1\r\n\r\n")
			if (m.Status() == 200) != c.normal {
				t.Errorf("else: %s: %d %s", c.orElse, m.Status(), m.Body)
			}
		}
		if !c.normal && normal.Requests() > 0 {
			t.Errorf("else: %s: a normal endpoint saw %d requests", c.orElse, normal.Requests())
		}
	}
}

// TestGreyFallsBackWithinScripts: a retry that leaves the endpoints of a grey release stays within what a script leaves (S-123).
func TestGreyFallsBackWithinScripts(t *testing.T) {
	never, normal := sidecartest.Answer(t, sidecartest.OK("never")), sidecartest.Answer(t, sidecartest.OK("normal"))
	p := sidecartest.Run(t, quiet+`services:
  svc:
    endpoints: [%q, %q, {address: %q, labels: {version: grey}}]
    rules: [{runtime: true, script: "endpoints.filter(function (e) { return e.host !== '%s'; })"}]
    policy: {retry: 1, outlier: none, breaker: none}
grey: {v2: {match: {cookie: {grey: "1"}}, labels: {version: grey}}}
`, never.Address, normal.Address, sidecartest.FreeAddress(t), hostOf(never.Address))
	cut := func() float64 { return p.Metric(t, "sidecar_script_failures_total") } // by a machine that stood still: a run has 20 ms
	for calls, most := 0, 50; calls < 10; calls++ {
		before := cut()
		m := sidecartest.Dial(t, p.Outbound).Ask(t, "GET / HTTP/1.1\r\nHost: svc\r\nCookie: grey=1\r\n\r\n")
		switch {
		case string(m.Body) == "normal":
		case cut() > before && most > 0:
			most--
			calls--
		default:
			t.Errorf("%d %s", m.Status(), m.Body)
		}
	}
}
