package h1_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
	"github.com/sidecar-mesh/sidecar/resilience"
)

// counted is an origin that counts the bytes it gets, and answers each request as the test says.
type counted struct {
	address string
	bytes   atomic.Int64
	answer  atomic.Pointer[string]
}

func newCounted(t *testing.T) *counted {
	o := &counted{}
	o.says("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nreal")
	o.address = newOrigin(t, func(nc *net.TCPConn) {
		in := bufio.NewReader(io.TeeReader(nc, countWriter{o}))
		for {
			q, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, q.Body); err != nil {
				return
			}
			text := *o.answer.Load()
			if text == "" {
				return // it closes
			}
			if _, err := io.WriteString(nc, text); err != nil {
				return
			}
		}
	})
	return o
}

type countWriter struct{ o *counted }

func (w countWriter) Write(p []byte) (int, error) {
	w.o.bytes.Add(int64(len(p)))
	return len(p), nil
}

func (o *counted) says(text string) { o.answer.Store(&text) }

// get makes a request and returns its answer in one line: status, x-sidecar-reason, body.
func get(t *testing.T, c *net.TCPConn, head string) string {
	t.Helper()
	text, _ := getAll(t, c, head)
	return text
}

// getAll does the same, and returns the fields of the answer too.
func getAll(t *testing.T, c *net.TCPConn, head string) (string, http.Header) {
	t.Helper()
	send(t, c, head+"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", resp.StatusCode, resp.Header.Get("X-Sidecar-Reason"), body)), resp.Header
}

const askOrders = "GET /orders/17?q=a%22b HTTP/1.1\r\nHost: orders\r\nX-User: \"x\""

// TestShield: while a switch is on, no byte reaches the endpoint, in each form; off again, calls are made at once (S-160,
// S-161).
func TestShield(t *testing.T) {
	for _, tt := range []struct{ name, answer, want string }{
		{"null", "empty: {}", "200 degraded"},
		{"null with a status", "empty: {status: 204}", "204 degraded"},
		{"exception", "error: {status: 500, message: no orders today}", "500 degraded degraded: service orders: no orders today"},
		{"mock", `answer: {status: 203, headers: {content-type: application/json}, body: "[]"}`, "203 degraded []"},
		{
			"template", `answer: {headers: {content-type: application/json}, template: true, body: '{"p":"{{path}}","u":"{{header.x-user}}","q":"{{query.q}}","r":"{{reason}}","no":"{{header.none}}"}'}`,
			`200 degraded {"p":"/orders/17","u":"\"x\"","q":"a\"b","r":"degraded","no":""}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newCounted(t)
			r := newRig(t, setup{
				config:  "services: {orders: {endpoints: [ORIGIN]}}\nswitches: {away: {service: orders, " + tt.answer + "}}\n",
				origins: []string{o.address},
			})
			c := r.dial()
			expect(t, get(t, c, askOrders), "200  real")
			before, w := o.bytes.Load(), r.store.Load().Switch("away")
			w.State.Set(true)
			if got := get(t, c, askOrders); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if n := o.bytes.Load() - before; n != 0 {
				t.Errorf("%d bytes reached the endpoint", n)
			}
			w.State.Set(false)
			expect(t, get(t, c, askOrders), "200  real")
		})
	}
}

// TestShieldRoute: a switch for one route leaves the others alone.
func TestShieldRoute(t *testing.T) {
	o := newCounted(t)
	c := newRig(t, setup{config: `
services: {orders: {endpoints: [ORIGIN], routes: [{name: list, match: /orders}]}}
switches: {away: {service: orders, route: list, enabled: true, empty: {}}}
`, origins: []string{o.address}}).dial()
	expect(t, get(t, c, "GET /orders HTTP/1.1\r\nHost: orders"), "200 degraded")
	expect(t, get(t, c, "GET /other HTTP/1.1\r\nHost: orders"), "200  real")
}

// TestShieldLocal: our own app stands in.
func TestShieldLocal(t *testing.T) {
	o, app := newCounted(t), newCounted(t)
	app.says("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\napp")
	r := newRig(t, setup{config: `
services: {orders: {endpoints: [ORIGIN]}}
switches: {away: {service: orders, enabled: true, local: "http://ORIGIN/fallback"}}
`, origins: []string{o.address, app.address}})
	c := r.dial()
	expect(t, get(t, c, askOrders), "200  app")
	if o.bytes.Load() != 0 {
		t.Error("the endpoint was called")
	}
	r.store.Load().Switch("away").State.Set(false)
	expect(t, get(t, c, askOrders), "200  real")
}

// TestAutoSwitch: the rule turns the switch on when calls fail.
func TestAutoSwitch(t *testing.T) {
	o := newCounted(t)
	r := newRig(t, setup{config: `
services: {orders: {endpoints: [ORIGIN], policy: {breaker: none, outlier: none}}}
switches: {away: {service: orders, empty: {}, auto: {when: {error_ratio: 50%, for: 100ms}}}}
`, origins: []string{o.address}})
	c := r.dial()
	o.says("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
	for end := time.Now().Add(patience); ; {
		if got := get(t, c, askOrders); got == "200 degraded" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("never degraded")
		}
	}
	if s := r.store.Load().Switch("away").State.State(); s != resilience.SwitchAuto {
		t.Errorf("state %v", s)
	}
}

// TestFallback: what failed is answered by what stands in for it, and what did not is relayed (S-162, S-166, S-164, X-28).
func TestFallback(t *testing.T) {
	const answer = `answer: {status: 200, body: "stand-in"}`
	closed := closedAddress(t)
	for _, tt := range []struct{ name, service, says, want string }{
		{"connect", "{endpoints: [" + closed + "], policy: {fallback: {" + answer + "}}}", "", "200 connect_failed stand-in"},
		{"reset", "{endpoints: [ORIGIN], policy: {fallback: {" + answer + "}}}", "", "200 upstream_reset stand-in"},
		{"decoding", "{endpoints: [ORIGIN], policy: {fallback: {" + answer + "}}}", "nonsense\r\n\r\n", "200 upstream_protocol stand-in"},
		{"no endpoints", "{routes: [{match: /*, to: {labels: {a: b}}, policy: {fallback: {" + answer + "}}}], endpoints: [ORIGIN]}", "", "200 no_endpoints stand-in"},
		{"429", "{endpoints: [ORIGIN], policy: {fallback: {" + answer + "}}}", "HTTP/1.1 429 No\r\nContent-Length: 0\r\n\r\n", "200 degraded stand-in"},
		{"500 is not covered", "{endpoints: [ORIGIN], policy: {fallback: {" + answer + "}}}", "HTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\nbad", "500  bad"},
		{
			"500 is covered", "{endpoints: [ORIGIN], routes: [{match: /*, policy: {fallback: {when: [5xx], " + answer + "}}}]}",
			"HTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\nbad", "200 degraded stand-in",
		},
		{"only what is listed", "{endpoints: [ORIGIN], policy: {fallback: {when: [connect], " + answer + "}}}", "", "502 upstream_reset"},
		{"critical", "{endpoints: [ORIGIN], critical: true, policy: {fallback: {" + answer + "}}}", "", "502 upstream_reset"},
		{"success", "{endpoints: [ORIGIN], policy: {fallback: {" + answer + "}}}", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nreal", "200  real"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newCounted(t)
			o.says(tt.says)
			c := newRig(t, setup{config: "services: {orders: " + tt.service + "}\n", origins: []string{o.address}}).dial()
			for range 2 { // the connection goes on
				expect(t, get(t, c, "POST /orders HTTP/1.1\r\nHost: orders\r\nContent-Length: 0"), tt.want)
			}
		})
	}
}

// closedAddress is one that nobody listens on.
func closedAddress(t *testing.T) string {
	t.Helper()
	return meshtest.FreeAddress(t)
}

// TestFallbackLocal: our own app is asked, and told for whom and why; that it fails too is said as it is.
func TestFallbackLocal(t *testing.T) {
	o, app := newCounted(t), newCounted(t)
	o.says("")
	app.says("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\napp")
	c := newRig(t, setup{config: `services: {orders: {endpoints: [ORIGIN], policy: {fallback: {local: "http://ORIGIN/stand/in"}}}}` + "\n", origins: []string{o.address, app.address}}).dial()
	expect(t, get(t, c, askOrders), "200  app")
	app.says("")
	expect(t, get(t, c, askOrders), "502 upstream_reset")
}

// TestFallbackLocalIsNoSuccess: that our own app stood in says nothing good of the service, which is given up as ever.
func TestFallbackLocalIsNoSuccess(t *testing.T) {
	o, app := newCounted(t), newCounted(t)
	o.says("")
	app.says("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\napp")
	r := newRig(t, setup{config: `services: {orders: {endpoints: [ORIGIN], policy: {outlier: none, breaker: {request_volume: 3}, fallback: {local: "http://ORIGIN/"}}}}` + "\n", origins: []string{o.address, app.address}})
	c := r.dial()
	for range 3 {
		expect(t, get(t, c, askOrders), "200  app")
	}
	before := o.bytes.Load()
	expect(t, get(t, c, askOrders), "200  app") // on the same connection: the calls before it have been counted
	if o.bytes.Load() != before {
		t.Error("the endpoint was called though the breaker is open")
	}
	s, _ := r.store.Load().Outbound.Get("orders")
	for end := time.Now().Add(patience); s.Rest.Breaker.State(time.Now()) != resilience.Open; runtime.Gosched() { // a call is judged behind its answer
		if time.Now().After(end) {
			t.Fatal("the breaker is closed after three calls that failed")
		}
	}
}

// TestFallbackLocalBody: our own app gets the body of the request too, whole; where that is not at hand any more the failure
// stands.
func TestFallbackLocalBody(t *testing.T) {
	for _, tt := range []struct {
		name, says, policy string
		size               int
		want               string
	}{
		{"sent and answered", "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "", 5, "200  5 bytes"},
		{"sent and reset", "", "", 5, "200  5 bytes"},
		{"never sent", "", "breaker: {request_volume: 1, sleep_window: 1h}, ", 200 << 10, "200  204800 bytes"},
		{"answered, and too large to keep", "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "", 200 << 10, "503"},
		{"reset, and too large to keep", "", "", 200 << 10, "502 upstream_reset"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newCounted(t)
			o.says(tt.says)
			app := newOrigin(t, func(nc *net.TCPConn) {
				in := bufio.NewReader(nc)
				for {
					q, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					n, err := io.Copy(io.Discard, q.Body)
					if err != nil {
						return
					}
					text := fmt.Sprintf("%d bytes", n)
					if _, err := fmt.Fprintf(nc, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text); err != nil {
						return
					}
				}
			})
			r := newRig(t, setup{config: "services: {orders: {endpoints: [ORIGIN], policy: {outlier: none, " + tt.policy + `fallback: {local: "http://ORIGIN/"}}}}` + "\n", origins: []string{o.address, app}})
			c := r.dial()
			if tt.policy != "" {
				expect(t, get(t, c, "GET / HTTP/1.1\r\nHost: orders"), "200  0 bytes") // opens the breaker
			}
			head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: orders\r\nContent-Length: %d\r\n\r\n", tt.size)
			got := get(t, c, head+strings.Repeat("x", tt.size))
			if !strings.HasPrefix(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestFallbackSwitch: a person may degrade what is critical.
func TestFallbackSwitch(t *testing.T) {
	o := newCounted(t)
	o.says("")
	r := newRig(t, setup{config: `
services: {orders: {endpoints: [ORIGIN], critical: true}}
switches: {soft: {service: orders, mode: fallback, answer: {body: stand-in}}}
`, origins: []string{o.address}})
	c := r.dial()
	expect(t, get(t, c, askOrders), "502 upstream_reset")
	r.store.Load().Switch("soft").State.Set(true)
	expect(t, get(t, c, askOrders), "200 upstream_reset stand-in")
	o.says("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nreal")
	expect(t, get(t, c, askOrders), "200  real")
}

// TestFallbackStale: the last good answer stands in, for the same request only, and never one that was somebody's.
func TestFallbackStale(t *testing.T) {
	o := newCounted(t)
	c := newRig(t, setup{config: "services: {orders: {endpoints: [ORIGIN], policy: {breaker: none, outlier: none, fallback: {stale: 10m}}}}\n", origins: []string{o.address}}).dial()
	const one, other, mine = "GET /1 HTTP/1.1\r\nHost: orders", "GET /2 HTTP/1.1\r\nHost: orders", "GET /1 HTTP/1.1\r\nHost: orders\r\nCookie: a=b"
	ask := func(what string) string { return get(t, c, what) }
	expect(t, ask(one), "200  real")
	o.says("HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 4\r\n\r\nmine")
	expect(t, ask(other), "200  mine")
	o.says("")
	for range 2 {
		expect(t, ask(one), "200 upstream_reset real")
		expect(t, ask(other), "502 upstream_reset")
		expect(t, ask(mine), "502 upstream_reset")
		expect(t, ask("GET /1? HTTP/1.1\r\nHost: orders"), "502 upstream_reset")
		expect(t, ask("GET /1 HTTP/1.1\r\nHost: orders\r\nAccept: text/html"), "502 upstream_reset")
	}
	o.says("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")
	expect(t, ask(one), "200 degraded real")
	expect(t, ask(other), "503")
}

// TestStaleForbidden: what may not be served later, or is for another page, never stands in (RFC 9111 4.2.4, 4.1).
func TestStaleForbidden(t *testing.T) {
	for _, tt := range []struct{ name, fields, later, want string }{
		{"nothing against it", "", "", "200 upstream_reset real"},
		{"fresh for a time", "Cache-Control: max-age=5\r\n", "", "200 upstream_reset real"},
		{"private", "Cache-Control: max-age=5, Private\r\n", "", "502 upstream_reset"},
		{"no-cache", "Cache-Control: no-cache\r\n", "", "502 upstream_reset"},
		{"must-revalidate", "Cache-Control: max-age=5, must-revalidate\r\n", "", "502 upstream_reset"},
		{"the same page", "Vary: Origin\r\n", "Origin: https://a.example\r\n", "200 upstream_reset real"},
		{"another page", "Vary: Origin\r\n", "Origin: https://b.example\r\n", "502 upstream_reset"},
		{"who asks is no part of it", "", "User-Agent: x\r\nX-B3-TraceId: 1\r\nX-Forwarded-For: 10.0.0.1\r\nIf-None-Match: a\r\n", "200 upstream_reset real"},
		{"another user", "", "X-User: ann\r\n", "502 upstream_reset"},
		{"another key", "", "X-Api-Key: 1\r\n", "502 upstream_reset"},
		{"a grey call", "", "X-Grey: next\r\n", "502 upstream_reset"},
		{"another user, and it is said so", "Vary: Accept, X-User\r\n", "X-User: ann\r\n", "502 upstream_reset"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newCounted(t)
			o.says("HTTP/1.1 200 OK\r\nAge: 7\r\n" + tt.fields + "Content-Length: 4\r\n\r\nreal")
			c := newRig(t, setup{config: "services: {orders: {endpoints: [ORIGIN], policy: {fallback: {stale: 10m}}}}\n", origins: []string{o.address}}).dial()
			first := ""
			if strings.Contains(tt.later, "Origin") {
				first = "Origin: https://a.example\r\n"
			}
			expect(t, get(t, c, strings.TrimSuffix("GET /1 HTTP/1.1\r\nHost: orders\r\n"+first, "\r\n")), "200  real")
			o.says("")
			got, header := getAll(t, c, strings.TrimSuffix("GET /1 HTTP/1.1\r\nHost: orders\r\n"+tt.later, "\r\n"))
			if !strings.HasPrefix(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if age := header.Values("Age"); strings.HasPrefix(got, "200") && len(age) != 1 {
				t.Errorf("Age: %q", age)
			}
		})
	}
}
