package h1_test

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// steady serves the same answer to each request on a connection, and allocates nothing for it.
func steady(reqLen int, answer []byte) func(*net.TCPConn) {
	return func(nc *net.TCPConn) {
		buf := make([]byte, 64<<10)
		n := 0
		for {
			m, err := nc.Read(buf[n:])
			if err != nil {
				return
			}
			n += m
			i := bytes.Index(buf[:n], []byte("\r\n\r\n"))
			if i < 0 || n < i+4+reqLen {
				continue
			}
			n = 0
			if _, err := nc.Write(answer); err != nil {
				return
			}
		}
	}
}

const (
	plainRequest = "GET /orders/17?full=1 HTTP/1.1\r\nHost: orders\r\nUser-Agent: test/1.0\r\nAccept: */*\r\n" +
		"Accept-Encoding: gzip\r\nCookie: a=b; c=d\r\nX-Tenant: blue\r\n\r\n"
	postRequest = "POST /orders HTTP/1.1\r\nHost: orders\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n" +
		`{"order": 17}`
	tracedRequest = "GET /orders/17 HTTP/1.1\r\nHost: orders\r\nX-Request-Id: 4f2c8a52-0000-4000-8000-1234567890ab\r\n" +
		"Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nX-Forwarded-For: 10.0.0.9\r\n" +
		"Connection: keep-alive\r\nTe: trailers\r\n\r\n"
	lengthAnswer = "HTTP/1.1 200 OK\r\nDate: Mon, 02 Jan 2006 15:04:05 GMT\r\nServer: x\r\nContent-Type: text/plain\r\n" +
		"Content-Length: 11\r\n\r\nhello world"
	chunkedAnswer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n"
)

const (
	plainConfig  = "services:\n  orders: {endpoints: [ORIGIN]}\n"
	routesConfig = `
services:
  orders:
    endpoints: [ORIGIN]
    policy: {retry: {count: 2}, per_try_timeout: 2s}
    routes:
      - {match: {path: /admin/*}, respond: {status: 403}}
      - {match: {header: {X-Tenant: green}}, to: {labels: {version: v2}}}
      - {match: {cookie: {z: "1"}, percent: 5%}, redirect: {to: "http://a/"}}
      - {match: {path: {regex: "^/v[0-9]/"}}, to: {labels: {version: v2}}}
      - {match: {path: {prefix: /orders}}, to: {split: [{weight: 90}, {weight: 10}]}}
`
	guardedConfig = "services:\n  orders: {endpoints: [ORIGIN], policy: {breaker: {per: endpoint, slow: {over: 1s}}}}\n"
	callsConfig   = `
services:
  orders:
    endpoints: [ORIGIN]
    policy: {retry: 1, idempotent: true, backup: p90, fallback: {stale: 10m}, per_try_timeout: auto, tell_deadline: true}
switches:
  away: {service: orders, empty: {}, auto: {when: {error_ratio: 50%}}}
  soft: {service: orders, mode: fallback, empty: {}}
`
	rulesConfig = `
node: {service: shop, address: 10.1.1.1}
services:
  orders:
    endpoints: [ORIGIN]
    rules:
      - "=> host != 10.0.0.9"
      - "method = get* => host = 127.0.0.0/8"
      - "method = save* => host = 10.0.0.9"
      - "host = 10.9.9.9 =>"
    routes: [{name: getOrder, match: GET /orders/*}]
groups: [{from: bj, to: sh}]
grey:
  v2: {match: {header: {X-Tenant: green}, segment: {"2": {mod: 20, in: [3]}}}, labels: {version: v2}}
`
	greyConfig = `
services: {orders: {endpoints: [{address: ORIGIN, labels: {version: v2}}]}}
grey: {v2: {match: {header: {X-Tenant: blue}}, labels: {version: v2}}}
`
	guardConfig = `
inbound: [{service: orders, app: ORIGIN}]
rules: {orders: ["host != 127.0.0.0/8 =>", "host = 10.20.153.10,10.20.153.11 =>", "method = drop* & host = 10.* =>"]}
`
	rewriteConfig = `
services:
  orders:
    endpoints: [ORIGIN]
    routes:
      - match: {path: {prefix: /orders/}}
        rewrite: {prefix: {from: /orders/, to: /o/}, host: other, headers: {set: {X-From: shop}, remove: [Cookie]}}
`
	// mirrorConfig copies next to none.
	mirrorConfig = `
services:
  orders: {endpoints: [ORIGIN], policy: {mirror: {service: next, ratio: 0.0001%}}}
  next: {endpoints: ["127.0.0.1:9"]}
`
	mirrorAllConfig = `
services:
  orders: {endpoints: [ORIGIN], policy: {mirror: {service: next, ratio: 100%}}}
  next: {endpoints: [ORIGIN]}
`
	inboundConfig = `
inbound:
  - {service: orders, app: ORIGIN, policy: {timeout: 1s}, admit: {concurrency: 200, queue: {size: 100, wait: 50ms}}}
`
)

func balancer(lb string) string {
	return "services:\n  orders: {endpoints: [ORIGIN], policy: {lb: " + lb + "}}\n"
}

// TestAllocations holds the steady keep-alive exchange to nothing allocated per request.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops items under the race detector")
	}
	for _, tc := range []struct {
		name, config, request, answer string
		body                          int
		log                           bool
		direction                     telemetry.Direction
	}{
		{name: "get", config: plainConfig, request: plainRequest, answer: lengthAnswer},
		{name: "get, access log", config: plainConfig, request: plainRequest, answer: lengthAnswer, log: true},
		{name: "get, routes and retries", config: routesConfig, request: plainRequest, answer: lengthAnswer, log: true},
		{name: "get, chunked answer", config: routesConfig, request: plainRequest, answer: chunkedAnswer, log: true},
		{name: "get, ids and hop-by-hop fields", config: routesConfig, request: tracedRequest, answer: lengthAnswer, log: true},
		{name: "get, inbound", config: inboundConfig, request: plainRequest, answer: lengthAnswer, direction: telemetry.Inbound},
		{name: "get, peak_ewma", config: balancer("peak_ewma"), request: plainRequest, answer: lengthAnswer},
		{name: "get, least_active", config: balancer("least_active"), request: plainRequest, answer: lengthAnswer},
		{
			name: "get, consistent_hash", config: balancer("{consistent_hash: {header: X-Tenant}}"), request: plainRequest,
			answer: lengthAnswer,
		},
		{name: "get, backup", config: callsConfig, request: plainRequest, answer: lengthAnswer, log: true},
		{name: "post, backup", config: callsConfig, request: postRequest, answer: lengthAnswer, body: 13, log: true},
		{name: "post", config: plainConfig, request: postRequest, answer: lengthAnswer, body: 13, log: true},
		{name: "get, rules", config: rulesConfig, request: plainRequest, answer: lengthAnswer, log: true},
		{name: "get, grey", config: greyConfig, request: plainRequest, answer: lengthAnswer, log: true},
		{name: "get, rules of the provider", config: guardConfig, request: plainRequest, answer: lengthAnswer, direction: telemetry.Inbound},
		{name: "get, rewrite", config: rewriteConfig, request: plainRequest, answer: lengthAnswer},
		{name: "get, mirror that takes no copy", config: mirrorConfig, request: plainRequest, answer: lengthAnswer},
		{name: "get, mirror", config: mirrorAllConfig, request: plainRequest, answer: lengthAnswer},
		{name: "post, mirror", config: mirrorAllConfig, request: postRequest, answer: lengthAnswer, body: 13},
		{name: "get, breaker per endpoint", config: guardedConfig, request: plainRequest, answer: lengthAnswer, log: true},
		{name: "get, all of governance", config: meshtest.Governed(t, false), request: plainRequest, answer: lengthAnswer, log: true},
		{name: "post, all of governance", config: meshtest.Governed(t, false), request: postRequest, answer: lengthAnswer, body: 13, log: true},
		{name: "post, retries", config: routesConfig, request: postRequest, answer: lengthAnswer, body: 13, log: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			origin := newOrigin(t, steady(tc.body, []byte(tc.answer)))
			s := setup{config: tc.config, origins: slices.Repeat([]string{origin}, 4), direction: tc.direction}
			if tc.log {
				s.log = io.Discard
			}
			r := newRig(t, s)
			c := r.dial()
			request, buf := []byte(tc.request), make([]byte, 16<<10)
			end := []byte("hello world")
			if strings.Contains(tc.answer, "chunked") {
				end = []byte("hello world\r\n0\r\n\r\n")
			}
			exchange := func() {
				if _, err := c.Write(request); err != nil {
					t.Fatal(err)
				}
				for n := 0; ; {
					m, err := c.Read(buf[n:])
					if err != nil {
						t.Fatalf("%v after %q", err, buf[:n])
					}
					if n += m; bytes.HasSuffix(buf[:n], end) {
						return
					}
				}
			}
			for range 200 { // pools fill, series come into being
				exchange()
			}
			if !bytes.HasPrefix(buf, []byte("HTTP/1.1 200 OK\r\n")) {
				t.Fatalf("got %q", buf[:100])
			}
			if got := testing.AllocsPerRun(1000, exchange); got != 0 {
				t.Errorf("%v allocations per exchange, want none", got)
			}
		})
	}
}
