package reported

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// failing is an origin that answers every request with a status.
func failing(t *testing.T, status int) *sidecartest.Origin {
	reply := sidecartest.Reply(status, "")
	return sidecartest.Answer(t, func(*sidecartest.Message) string { return reply })
}

// TestReported075_NoHiddenPanic: no threshold sends calls to endpoints that are ejected. All but the last usable one can
// be ejected, and then that one serves alone.
func TestReported075_NoHiddenPanic(t *testing.T) {
	var origins []*sidecartest.Origin
	for range 4 {
		origins = append(origins, failing(t, 501))
	}
	p := sidecartest.Run(t, `
services:
  svc:
    endpoints: [%q, %q, %q, %q]
    policy: {outlier: {consecutive_failures: 5, max_ejected: 100%%, eject_for: 1m}, breaker: none}
`, origins[0].Address, origins[1].Address, origins[2].Address, origins[3].Address)
	c := sidecartest.Dial(t, p.Outbound)
	const calls = 200
	for range calls {
		if m := c.Ask(t, get, ""); m.Status() != 501 || m.Has("x-sidecar-reason") {
			t.Fatalf("%+v", m)
		}
	}
	five := 0
	for _, o := range origins {
		if o.Requests() == 5 {
			five++
		}
	}
	if five != 3 {
		t.Errorf("%d endpoints were left alone after 5 failures, want 3", five)
	}
	if n := p.Metric(t, "sidecar_ejections_total"); n != 3 {
		t.Errorf("%v ejections", n)
	}
	if n := p.Metric(t, "sidecar_endpoints", `service="svc"`, `state="usable"`); n != 1 {
		t.Errorf("%v endpoints are said to be usable", n)
	}
}

// TestReported076_EjectedMeansNone: an endpoint gets no call from the one on that ejected it.
func TestReported076_EjectedMeansNone(t *testing.T) {
	for _, lb := range []string{"round_robin", "random", "weighted_round_robin", "least_active"} {
		t.Run(lb, func(t *testing.T) {
			bad := failing(t, 503)
			one, two := sidecartest.Answer(t, sidecartest.OK("ok")), sidecartest.Answer(t, sidecartest.OK("ok"))
			p := sidecartest.Run(t, `
services:
  svc:
    endpoints: [%q, %q, %q]
    policy: {lb: %s, outlier: {consecutive_failures: 3, eject_for: 1m}, breaker: none, panic: fail_fast}
`, bad.Address, one.Address, two.Address, lb)
			c := sidecartest.Dial(t, p.Outbound)
			failed := 0
			for range 200 {
				if c.Ask(t, get, "").Status() == 503 {
					failed++
				}
			}
			if failed != 3 || bad.Requests() != 3 {
				t.Errorf("%d calls failed, %d came to the bad endpoint, want 3", failed, bad.Requests())
			}
		})
	}
}

// TestReported078_CountsAnewAfterReturn: an endpoint that came back is ejected after as many failures as the first time.
func TestReported078_CountsAnewAfterReturn(t *testing.T) {
	bad, good := failing(t, 504), sidecartest.Answer(t, sidecartest.OK("ok"))
	p := sidecartest.Run(t, `
services:
  svc:
    endpoints: [%q, %q]
    policy: {outlier: {consecutive_failures: 3, eject_for: 1s, probe: {tcp: {}, interval: 50ms}}, breaker: none}
`, bad.Address, good.Address)
	c := sidecartest.Dial(t, p.Outbound)
	for ejections := 1; ejections <= 3; ejections++ {
		sidecartest.Eventually(t, 10*time.Second, "it is ejected", func() bool {
			c.Ask(t, get, "")
			return bad.Requests() >= 3*ejections
		})
		for range 20 { // more than it would take to fail again
			c.Ask(t, get, "")
		}
		if bad.Requests() != 3*ejections || p.Metric(t, "sidecar_ejections_total") != float64(ejections) {
			t.Fatalf("at ejection %d it has had %d calls", ejections, bad.Requests())
		}
		sidecartest.Eventually(t, 10*time.Second, "it comes back", func() bool {
			return p.Metric(t, "sidecar_readmissions_total") == float64(ejections)
		})
	}
}

// TestReported079_NoEndpoints: a service without endpoints is refused at once and by name, others are not touched, and it
// serves as soon as there is one.
func TestReported079_NoEndpoints(t *testing.T) {
	origin := sidecartest.Answer(t, sidecartest.OK("ok"))
	const document = "services: {empty: {endpoints: [%s]}, other: {endpoints: [%q]}}"
	p := sidecartest.Run(t, document, "", origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	for range 20 {
		start := time.Now()
		m := c.Ask(t, "GET / HTTP/1.1\r\nHost: empty\r\n\r\n")
		if m.Status() != 503 || m.Get("x-sidecar-reason") != "no_endpoints" || time.Since(start) > 2*time.Second {
			t.Fatalf("%+v after %v", m, time.Since(start))
		}
		if m := c.Ask(t, "GET / HTTP/1.1\r\nHost: other\r\n\r\n"); m.Status() != 200 {
			t.Fatalf("the other service: %+v", m)
		}
	}
	p.Reload(t, document, `"`+origin.Address+`"`, origin.Address)
	if m := c.Ask(t, "GET / HTTP/1.1\r\nHost: empty\r\n\r\n"); m.Status() != 200 {
		t.Errorf("with an endpoint: %+v", m)
	}
}

// TestReported080_ConnectingCountsAsLoad: an endpoint that takes no connection must not look idle to least_active.
func TestReported080_ConnectingCountsAsLoad(t *testing.T) {
	address, _ := sidecartest.SlowAccept(t)
	one, two := sidecartest.Answer(t, sidecartest.OK("ok")), sidecartest.Answer(t, sidecartest.OK("ok"))
	p := sidecartest.Run(t, `
telemetry: {access_log: {format: none}}
services:
  svc:
    endpoints: [%q, %q, %q]
    policy: {lb: least_active, connect_timeout: 1s, per_try_timeout: 1s, outlier: none, breaker: none, retry: {count: 1, budget: {ratio: 100%%, min_per_second: 1000}}}
`, address, one.Address, two.Address)
	var good, bad atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(3 * time.Second)
	for range 8 {
		c := sidecartest.Dial(t, p.Outbound)
		wg.Go(func() {
			for time.Now().Before(end) {
				_ = c.Send(get, "")
				if m, err := c.Response("GET"); err != nil || m.Status() != 200 {
					bad.Add(1)
					return
				}
				good.Add(1)
			}
		})
	}
	wg.Wait()
	// Were each third call stuck for 1 s, 8 clients would do 8 × 3 s / 333 ms = 72.
	if bad.Load() > 0 || good.Load() < 500 {
		t.Errorf("%d calls in 3 s, %d failed", good.Load(), bad.Load())
	}
}

// TestReported082_HashMovesOnlyWhatItMust: when an endpoint goes, only its keys move; when it returns, they return.
func TestReported082_HashMovesOnlyWhatItMust(t *testing.T) {
	var list []string
	names := map[string]int{}
	for i := range 3 {
		o := sidecartest.Answer(t, sidecartest.OK(fmt.Sprint(i)))
		names[fmt.Sprint(i)] = i
		list = append(list, fmt.Sprintf("%q", o.Address))
	}
	const document = "services: {svc: {endpoints: [%s], policy: {lb: {consistent_hash: {header: x-user}}}}}"
	p := sidecartest.Run(t, document, strings.Join(list, ","))
	c := sidecartest.Dial(t, p.Outbound)
	owners := func() (all []int) {
		for key := range 1000 {
			m := c.Ask(t, "GET / HTTP/1.1\r\nHost: svc\r\nX-User: user-%d\r\n\r\n", key)
			owner, ok := names[string(m.Body)]
			if !ok {
				t.Fatalf("%+v", m)
			}
			all = append(all, owner)
		}
		return all
	}
	before := owners()
	count := [3]int{}
	for _, o := range before {
		count[o]++
	}
	if min(count[0], count[1], count[2]) < 150 {
		t.Errorf("the keys are shared %v", count)
	}
	p.Reload(t, document, strings.Join(list[:2], ","))
	for key, owner := range owners() {
		if owner == 2 || before[key] != 2 && owner != before[key] {
			t.Fatalf("key %d moved from %d to %d", key, before[key], owner)
		}
	}
	p.Reload(t, document, strings.Join([]string{list[2], list[0], list[1]}, ","))
	for key, owner := range owners() {
		if owner != before[key] {
			t.Fatalf("key %d did not return from %d to %d", key, owner, before[key])
		}
	}
}

// TestReported085_LimitsQueueOrRefuse: what is above a limit waits in a bounded queue; what is above that is refused, and
// the answer, the log and the metric name the limit.
func TestReported085_LimitsQueueOrRefuse(t *testing.T) {
	for _, row := range []struct {
		limit          string
		served, queued int
		named          string
	}{
		{"connections: 3, waiting: 3", 3, 3, "limit.connections"},
		{"connections: 1, waiting: 0", 1, 0, "limit.connections"},
		{"in_flight: 3, waiting: 3", 3, 3, "limit.waiting"},
		{"in_flight: 1, waiting: 0", 1, 0, "limit.in_flight"},
	} {
		t.Run(row.named+fmt.Sprint(row.served), func(t *testing.T) {
			release := make(chan struct{})
			origin := sidecartest.Answer(t, func(*sidecartest.Message) string {
				<-release
				return sidecartest.Reply(200, "ok")
			})
			p := sidecartest.Run(t, "services: {svc: {endpoints: [%q], policy: {limit: {%s}, outlier: none, breaker: none}}}", origin.Address, row.limit)
			var clients []*sidecartest.Conn
			for i := range row.served + row.queued {
				c := sidecartest.Dial(t, p.Outbound)
				_ = c.Send(get, "held")
				clients = append(clients, c)
				sidecartest.Eventually(t, 20*time.Second, "the call is under way", func() bool {
					return p.Metric(t, "sidecar_requests_in_flight", `service="svc"`) == float64(i+1) && origin.Requests() == min(i+1, row.served)
				})
			}
			m := sidecartest.Dial(t, p.Outbound).Ask(t, get, "refused")
			if m.Status() != 503 || m.Get("x-sidecar-reason") != "overloaded" || !strings.Contains(string(m.Body), row.named) || !m.Has("retry-after") {
				t.Errorf("%+v %s", m, m.Body)
			}
			if r := p.Record(t, "/refused"); !strings.Contains(r.Detail, row.named) {
				t.Errorf("the log says %q", r.Detail)
			}
			if n := p.Metric(t, "sidecar_limit_refusals_total", fmt.Sprintf(`limit="%s"`, row.named)); n != 1 {
				t.Errorf("%v refusals are counted", n)
			}
			close(release)
			for _, c := range clients {
				if m := c.Answer(t, "GET"); m.Status() != 200 {
					t.Errorf("%+v", m)
				}
			}
			if origin.Accepted() > row.served {
				t.Errorf("%d connections", origin.Accepted())
			}
		})
	}
}
