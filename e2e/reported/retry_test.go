package reported

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// refusing returns an address that refuses connections.
func refusing(t *testing.T) string { return sidecartest.FreeAddress(t) }

// TestReported056_NoHiddenRetry: a POST that was handled and answered 503 is not sent again: by default nothing is, and
// with a retry policy only what may be repeated.
func TestReported056_NoHiddenRetry(t *testing.T) {
	for _, row := range []struct {
		policy, method string
		want           int
	}{
		{"{}", "POST", 1},
		{"{}", "GET", 1},
		{"{retry: {count: 2, backoff: {base: 1ms}}}", "POST", 1},
		{"{retry: {count: 2, backoff: {base: 1ms}}}", "PATCH", 1},
		{"{retry: {count: 2, backoff: {base: 1ms}}}", "PUT", 3},
		{"{retry: {count: 2, backoff: {base: 1ms}}, idempotent: false}", "GET", 1},
	} {
		t.Run(row.method+row.policy, func(t *testing.T) {
			origin := sidecartest.Answer(t, func(*sidecartest.Message) string { return sidecartest.Reply(503, "paid, then failed") })
			p := sidecartest.Run(t, `services: {svc: {endpoints: [%q], policy: %s}}`, origin.Address, row.policy)
			m := sidecartest.Dial(t, p.Outbound).Ask(t, "%s / HTTP/1.1\r\nHost: svc\r\nContent-Length: 1\r\n\r\nx", row.method)
			if m.Status() != 503 || string(m.Body) != "paid, then failed" || m.Has("x-sidecar-reason") {
				t.Errorf("%+v", m)
			}
			if origin.Requests() != row.want {
				t.Errorf("it was handled %d times, want %d", origin.Requests(), row.want)
			}
		})
	}
}

// TestReported057_LargeBodySurvivesRefusedConnect: the body waits until there is a connection, so no size of it keeps a
// call from going elsewhere. A retry that does need the buffer and cannot have it is named.
func TestReported057_LargeBodySurvivesRefusedConnect(t *testing.T) {
	const size = 2 << 20
	body := strings.Repeat("0123456789abcdef", size/16)
	origin := sidecartest.Answer(t, func(m *sidecartest.Message) string {
		if string(m.Body) != body {
			return sidecartest.Reply(400, "not the body")
		}
		return sidecartest.Reply(200, "ok")
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q, %q], policy: {retry: 1, outlier: none, breaker: none}}}`, refusing(t), origin.Address)
	const calls = 8
	for i := range calls {
		c := sidecartest.Dial(t, p.Outbound)
		m := c.Ask(t, "POST / HTTP/1.1\r\nHost: svc\r\nContent-Length: %d\r\n\r\n%s", size, body)
		if m.Status() != 200 {
			t.Fatalf("call %d: %s %s", i, m.Start, m.Body)
		}
	}
	retries := 0
	for _, r := range p.Records(t, calls) {
		retries += r.Retries
	}
	if retries != calls/2 {
		t.Errorf("%d of %d calls were retried, want half of them", retries, calls)
	}
}

// TestReported057_AbandonedRetryIsNamed: see above.
func TestReported057_AbandonedRetryIsNamed(t *testing.T) {
	origin := sidecartest.Answer(t, func(*sidecartest.Message) string { return sidecartest.Reply(503, "") })
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q], policy: {retry: 1}}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	if m := c.Ask(t, "PUT /large HTTP/1.1\r\nHost: svc\r\nContent-Length: 200000\r\n\r\n%s", strings.Repeat("x", 200000)); m.Status() != 503 {
		t.Errorf("%s", m.Start)
	}
	if origin.Requests() != 1 {
		t.Errorf("%d attempts", origin.Requests())
	}
	if r := p.Record(t, "/large"); !strings.Contains(r.Detail, "limits.replay_bytes") {
		t.Errorf("the log says %q", r.Detail)
	}
}

// TestReported060_RetriedBodyIsWhole: what is retried is the whole body, up to the limit as it is configured; above it
// there is no retry.
func TestReported060_RetriedBodyIsWhole(t *testing.T) {
	for _, row := range []struct{ size, want int }{{90 << 10, 2}, {128 << 10, 2}, {129 << 10, 1}} {
		t.Run(fmt.Sprint(row.size), func(t *testing.T) {
			body := strings.Repeat("0123456789abcdef", row.size/16)
			origin := sidecartest.Answer(t, func(m *sidecartest.Message) string {
				if string(m.Body) != body {
					return sidecartest.Reply(418, "not the body")
				}
				return sidecartest.Reply(503, "whole")
			})
			p := sidecartest.Run(t, "limits: {replay_bytes: 128KiB}\nservices: {svc: {endpoints: [%q], policy: {retry: {count: 1, backoff: {base: 1ms}}}}}", origin.Address)
			for _, head := range []string{fmt.Sprintf("Content-Length: %d", row.size), "Transfer-Encoding: chunked"} {
				sent := body
				if strings.HasPrefix(head, "T") {
					sent = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
				}
				before := origin.Requests()
				m := sidecartest.Dial(t, p.Outbound).Ask(t, "PUT / HTTP/1.1\r\nHost: svc\r\n%s\r\n\r\n%s", head, sent)
				if m.Status() != 503 || string(m.Body) != "whole" {
					t.Errorf("%s: %s %s", head, m.Start, m.Body)
				}
				if n := origin.Requests() - before; n != row.want {
					t.Errorf("%s: %d attempts, want %d", head, n, row.want)
				}
			}
		})
	}
}

// TestReported061_RetryableRouteWithBody: a route that says so is retried with its body.
func TestReported061_RetryableRouteWithBody(t *testing.T) {
	var n atomic.Int64
	origin := sidecartest.Answer(t, func(m *sidecartest.Message) string {
		if string(m.Body) != "payload" {
			return sidecartest.Reply(418, "not the body")
		}
		if n.Add(1) == 1 {
			return sidecartest.Reply(503, "")
		}
		return sidecartest.Reply(200, "ok")
	})
	p := sidecartest.Run(t, `
services:
  svc:
    endpoints: [%q]
    policy: {retry: 1}
    routes: [{match: POST /safe, policy: {idempotent: true}}]
`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	if m := c.Ask(t, "POST /safe HTTP/1.1\r\nHost: svc\r\nContent-Length: 7\r\n\r\npayload"); m.Status() != 200 || n.Load() != 2 {
		t.Errorf("%s after %d attempts", m.Start, n.Load())
	}
	n.Store(0)
	if m := c.Ask(t, "POST /unsafe HTTP/1.1\r\nHost: svc\r\nContent-Length: 7\r\n\r\npayload"); m.Status() != 503 || n.Load() != 1 {
		t.Errorf("%s after %d attempts", m.Start, n.Load())
	}
}

// TestReported064_TimedOutAttemptIsRetried: one attempt may hang for long; the call as a whole is in time.
func TestReported064_TimedOutAttemptIsRetried(t *testing.T) {
	var n atomic.Int64
	release := make(chan struct{})
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		for {
			if _, err := c.Request(); err != nil {
				return
			}
			if n.Add(1) == 1 {
				<-release
			}
			if c.Send("%s", sidecartest.Reply(200, "ok")) != nil {
				return
			}
		}
	})
	t.Cleanup(func() { close(release) })
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q], policy: {timeout: 10s, per_try_timeout: 600ms, retry: {count: 1, backoff: {base: 1ms}}}}}`, origin.Address)
	start := time.Now()
	m := sidecartest.Dial(t, p.Outbound).Ask(t, get, "")
	if took := time.Since(start); m.Status() != 200 || took < 600*time.Millisecond || took > 8*time.Second {
		t.Errorf("%s after %v", m.Start, took)
	}
}

// TestReported066_RetryGoesElsewhere: a retry never goes where the call has just failed, as long as there is another.
func TestReported066_RetryGoesElsewhere(t *testing.T) {
	origin := sidecartest.Answer(t, sidecartest.OK("ok"))
	bad := sidecartest.Answer(t, func(*sidecartest.Message) string { return sidecartest.Reply(503, "") })
	for name, policy := range map[string]string{
		"no ejection":         "{retry: {count: 2, budget: {ratio: 100%, min_per_second: 100}}, outlier: none, breaker: none}",
		"ejection at once":    "{retry: {count: 2, budget: {ratio: 100%, min_per_second: 100}}, outlier: {consecutive_failures: 1}, breaker: none}",
		"random":              "{retry: {count: 2, budget: {ratio: 100%, min_per_second: 100}}, lb: random, outlier: none, breaker: none}",
		"least active":        "{retry: {count: 2, budget: {ratio: 100%, min_per_second: 100}}, lb: least_active, outlier: none, breaker: none}",
		"hash to the bad one": "{retry: {count: 2, budget: {ratio: 100%, min_per_second: 100}}, lb: {consistent_hash: {header: x-user}}, outlier: none, breaker: none}",
	} {
		t.Run(name, func(t *testing.T) {
			p := sidecartest.Run(t, `services: {svc: {endpoints: [%q, %q, %q], policy: %s}}`, refusing(t), bad.Address, origin.Address, policy)
			c := sidecartest.Dial(t, p.Outbound)
			const calls = 60
			for i := range calls {
				if m := c.Ask(t, "GET / HTTP/1.1\r\nHost: svc\r\nX-User: %d\r\n\r\n", i); m.Status() != 200 {
					t.Fatalf("call %d: %s %s", i, m.Start, m.Body)
				}
			}
			for _, r := range p.Records(t, calls) {
				if r.Attempts > 3 || r.Endpoint != origin.Address {
					t.Errorf("%d attempts, the last at %s", r.Attempts, r.Endpoint)
				}
			}
		})
	}
}

// TestReported067_InboundReplays: the race of report 1 between a sidecar and the app beside it is hidden from the caller.
func TestReported067_InboundReplays(t *testing.T) {
	var seen atomic.Int64
	app := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		for n := 0; ; n++ {
			if _, err := c.Request(); err != nil {
				return
			}
			if seen.Add(1); n == 1 {
				return
			}
			_ = c.Send("%s", sidecartest.Reply(200, "ok"))
		}
	})
	p := sidecartest.Run(t, "node: {service: shop}\ninbound: [{service: shop, app: %q}]", app.Address)
	c := sidecartest.Dial(t, p.Inbound)
	const calls = 10
	for i := range calls {
		if m := c.Ask(t, get, ""); m.Status() != 200 {
			t.Fatalf("call %d: %s", i, m.Start)
		}
	}
	if n := seen.Load(); n != 2*calls-1 {
		t.Errorf("%d calls came as %d requests", calls, n)
	}
}

// TestReported068_DeadlineShrinks: what an attempt is told to be left is what is left: no more than its own limit, no
// more than the caller's deadline less what was spent; and it is never raised.
func TestReported068_DeadlineShrinks(t *testing.T) {
	var mu sync.Mutex
	var told []int
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		m, err := c.Request()
		if err != nil {
			return
		}
		ms, _ := strconv.Atoi(m.Get("x-envoy-expected-rq-timeout-ms"))
		mu.Lock()
		told = append(told, ms)
		mu.Unlock()
		_, _ = io.Copy(io.Discard, c.R)
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q], policy: {timeout: 20s, per_try_timeout: 1200ms, retry: {count: 5, backoff: {base: 1ms, max: 2ms}}, breaker: none, outlier: none}}}`, origin.Address)
	start := time.Now()
	m := sidecartest.Dial(t, p.Outbound).Ask(t, "GET / HTTP/1.1\r\nHost: svc\r\nX-Envoy-Expected-Rq-Timeout-Ms: 3000\r\n\r\n")
	if took := time.Since(start); m.Status() != 504 || took < 3*time.Second || took > 10*time.Second {
		t.Errorf("%s after %v", m.Start, took)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 3 {
		t.Fatalf("the attempts were told %d", told)
	}
	if told[0] > 1200 || told[0] < 800 || told[1] > 1200 || told[1] < 800 || told[2] > 600 || told[2] < 1 {
		t.Errorf("the attempts were told %d ms, want about 1200, 1200 and less than 600", told)
	}
}

// TestReported072_StreamsOutliveTheTimeout: the time-out bounds the wait for the head; a stream goes on.
func TestReported072_StreamsOutliveTheTimeout(t *testing.T) {
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		if _, err := c.Head(); err != nil {
			return
		}
		_ = c.Send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
		for range 8 {
			_ = c.Send("9\r\ndata: x\n\n\r\n")
			<-time.After(300 * time.Millisecond)
		}
		_ = c.Send("0\r\n\r\n")
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q], policy: {timeout: 1s, per_try_timeout: 900ms, retry: 1}}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	start := time.Now()
	_ = c.Send(get, "")
	if m, err := c.Head(); err != nil || m.Status() != 200 {
		t.Fatalf("%+v %v", m, err)
	}
	c.Expect(t, "9\r\ndata: x\n\n\r\n")
	if took := time.Since(start); took > 1800*time.Millisecond {
		t.Errorf("the first event took %v: it was held back", took)
	}
	for range 7 {
		c.Expect(t, "9\r\ndata: x\n\n\r\n")
	}
	c.Expect(t, "0\r\n\r\n")

	// A client that has sent all and waits, with its side closed, is not cut off either.
	c = sidecartest.Dial(t, p.Outbound)
	_ = c.Send("POST / HTTP/1.1\r\nHost: svc\r\nContent-Length: 1\r\n\r\nx")
	_ = c.CloseWrite()
	if m := c.Answer(t, "POST"); len(m.Body) != 8*9 {
		t.Errorf("%s with %d octets", m.Start, len(m.Body))
	}
}

// TestReported073_IdleStream: a quiet stream is ended by its idle bound alone, and the log says so.
func TestReported073_IdleStream(t *testing.T) {
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		m, err := c.Head()
		if err != nil {
			return
		}
		_ = c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
		if m.Target() == "/quiet" {
			_, _ = c.R.ReadByte()
			return
		}
		<-time.After(1400 * time.Millisecond) // twice the time-out, less than the idle bound
		_ = c.Send("3\r\ntwo\r\n0\r\n\r\n")
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q], policy: {timeout: 700ms, idle_timeout: 3s}}}`, origin.Address)
	if m := sidecartest.Dial(t, p.Outbound).Ask(t, get, "pause"); string(m.Body) != "onetwo" {
		t.Errorf("%s %q", m.Start, m.Body)
	}
	c := sidecartest.Dial(t, p.Outbound)
	start := time.Now()
	_ = c.Send(get, "quiet")
	m, err := c.Response("GET")
	if took := time.Since(start); err == nil || took < 3*time.Second || took > 12*time.Second {
		t.Errorf("%+v %v after %v", m, err, took)
	}
	if r := p.Record(t, "/quiet"); r.Reason != "timeout" || !strings.Contains(r.Detail, "idle_timeout") {
		t.Errorf("the log says %q: %s", r.Reason, r.Detail)
	}
}
