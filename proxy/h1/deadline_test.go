package h1_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

// TestTellDeadline: the next hop is told how much time is left where the route says so or our caller told us, never more
// than either allows (S-241).
func TestTellDeadline(t *testing.T) {
	for _, tt := range []struct {
		policy, ask string
		least, most int // milliseconds; 0: the field is not there
	}{
		{"timeout: 5s", "", 0, 0},
		{"timeout: 5s, tell_deadline: true", "", 1, 5000},
		{"timeout: 5s, per_try_timeout: 3s, tell_deadline: true", "", 1, 3000},
		{"timeout: 5s, tell_deadline: true", "X-Envoy-Expected-Rq-Timeout-Ms: 2000\r\n", 1, 2000},
		{"timeout: 5s", "X-Envoy-Expected-Rq-Timeout-Ms: 2000\r\n", 1, 2000},
		{"timeout: 5s", "X-Envoy-Expected-Rq-Timeout-Ms: 9000\r\n", 2001, 5000},
		{"timeout: 5s, per_try_timeout: {auto: p999, floor: 10ms, ceiling: 4s}, tell_deadline: true", "", 1, 4000},
		{"timeout: 5s, tell_deadline: true, backup: 4s", "", 1, 5000},
	} {
		t.Run(tt.policy+" "+tt.ask, func(t *testing.T) {
			heads := make(chan http.Header, 1)
			origin := newOrigin(t, func(nc *net.TCPConn) {
				q, err := http.ReadRequest(bufio.NewReader(nc))
				if err != nil {
					return
				}
				heads <- q.Header
				request{conn: nc}.answer("ok")
			})
			c := newRig(t, setup{config: "services: {orders: {endpoints: [ORIGIN], policy: {" + tt.policy + "}}}\n", origins: []string{origin}}).dial()
			send(t, c, "GET / HTTP/1.1\r\nHost: orders\r\n"+tt.ask+"\r\n")
			expect(t, said(t, c), "200 ok")
			values := (<-heads).Values("X-Envoy-Expected-Rq-Timeout-Ms")
			if tt.most == 0 {
				if len(values) != 0 {
					t.Errorf("told %q", values)
				}
				return
			}
			if len(values) != 1 {
				t.Fatalf("told %q", values)
			}
			if ms, err := strconv.Atoi(values[0]); err != nil || ms < tt.least || ms > tt.most {
				t.Errorf("told %q, want %d to %d", values, tt.least, tt.most)
			}
		})
	}
}

// TestDeadlineTooShort: callers whose deadline is all but over neither open the breaker nor take an endpoint out for those who
// have time; one that leaves time does say something.
func TestDeadlineTooShort(t *testing.T) {
	for _, tt := range []struct {
		left   int // milliseconds
		calls  int
		breaks bool
	}{{1, 3, false}, {1000, 1, true}} {
		o := newOrigin(t, func(nc *net.TCPConn) { _, _ = io.Copy(io.Discard, nc) }) // it never answers
		r := newRig(t, setup{config: `services: {orders: {endpoints: [ORIGIN], policy: {breaker: {request_volume: 1}}}}` + "\n", origins: []string{o}})
		s, _ := r.store.Load().Outbound.Get("orders")
		c := r.dial()
		for range tt.calls {
			got := get(t, c, fmt.Sprintf("GET / HTTP/1.1\r\nHost: orders\r\nX-Envoy-Expected-Rq-Timeout-Ms: %d", tt.left))
			expect(t, got, "504 timeout")
		}
		expect(t, get(t, c, "GET / HTTP/1.1\r\nHost: nobody"), "404 no_route") // behind it, what came before is counted
		if open := s.Rest.Breaker.State(time.Now()) != resilience.Closed; open != tt.breaks {
			t.Errorf("%d ms: the breaker is open: %t", tt.left, open)
		}
		if failures := s.Outlier.State(time.Now(), s.Endpoints[0].Health).Consecutive; (failures > 0) != tt.breaks {
			t.Errorf("%d ms: %d failures of the endpoint count", tt.left, failures)
		}
	}
}
