package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
	"github.com/sidecar-mesh/sidecar/resilience"
)

// TestReplaced: what a caller gets while a breaker is open, which is not always the refusal; a rule that forbids comes first, and
// of switches the one for the route.
func TestReplaced(t *testing.T) {
	s := meshtest.Compile(t, `
services:
  a:
    endpoints: ["10.0.0.1:80"]
    policy: {breaker: {request_volume: 1}, fallback: {answer: {status: 203, body: cached}}}
    rules: ["method = banned =>"]
    routes:
      - {name: none, match: /none, policy: {fallback: none}}
      - {name: other, match: /other, policy: {fallback: {when: [timeout], empty: {}}}}
      - {name: stale, match: /stale, policy: {fallback: {stale: 1m}}}
      - {name: banned, match: /banned}
      - {name: route, match: /route}
switches:
  all: {service: a, empty: {status: 204}}
  one: {service: a, route: route, empty: {status: 205}}
  soft: {service: a, mode: fallback, empty: {status: 206}}
`)
	now := time.Unix(1_000_000_000, 0)
	a, _ := s.Outbound.Get("a")
	a.Rest.Breaker.Record(now, 0, resilience.CallFailed)
	turn := func(name string, on bool) {
		s.Switch(name).State.Set(on)
	}
	for _, c := range []struct{ path, header, on, want string }{
		{"/", "", "", "answered here with 203 breaker_open: too many calls failed; nothing is sent until the sleep window is over; the fallback answers"},
		{"/", "content-type: application/grpc", "", "answered here with 200 breaker_open"},
		{"/", "", "soft", "answered here with 206 breaker_open: too many calls failed; nothing is sent until the sleep window is over; the switch soft answers"},
		{"/none", "", "", "refused with 503 breaker_open"},
		{"/other", "", "", "refused with 503 breaker_open"},
		{"/stale", "", "", "the last good answer stands in for it, if there is one"},
		{"/banned", "", "", "refused with 403 forbidden"},
		{"/", "", "all one", "answered here with 204 degraded"},
		{"/route", "", "all one", "answered here with 205 degraded"},
	} {
		for _, name := range strings.Fields(c.on) {
			turn(name, true)
		}
		r := Request{URL: "http://a" + c.path}
		if c.header != "" {
			h, err := ParseHeader(c.header)
			if err != nil {
				t.Fatal(err)
			}
			r.Method, r.Header = "POST", []Header{h}
		}
		e, err := Explain(s, r, now)
		if err != nil {
			t.Fatal(err)
		}
		if text := e.Text(now); !strings.Contains(text, c.want) {
			t.Errorf("%s with %q on: no %q in\n%s", c.path, c.on, c.want, text)
		}
		for _, name := range strings.Fields(c.on) {
			turn(name, false)
		}
	}
}
