package h2_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// answerOK is an origin that answers each call with OK and counts what it was asked.
func answerOK(t *testing.T, calls *atomic.Int64) string {
	return replying(t, func(p *peer, id uint32) {
		calls.Add(1)
		p.headers(id, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "0")
	})
}

// TestGRPCHeadTooLarge (GR-109): a call whose head is above the limits ends with RESOURCE_EXHAUSTED in one frame, wherever
// its content type stands; other requests with 431. The connection goes on.
func TestGRPCHeadTooLarge(t *testing.T) {
	plain := []string{":method", "POST", ":scheme", "http", ":path", "/t.S/M", ":authority", "svc"}
	grpcType := []string{"content-type", "application/grpc+proto"}
	large := []string{"x-large", strings.Repeat("a", 70<<10)}
	var many []string
	for i := range 120 {
		many = append(many, fmt.Sprint("x-", i), "1")
	}
	const exhausted = "ONLY 200 8 bad_request: head larger than limits.header_bytes or limits.header_count bad_request ES"
	for _, tc := range []struct {
		name   string
		fields []string
		want   string
	}{
		{"bytes, type before", slices.Concat(plain, grpcType, large), exhausted},
		{"bytes, type behind", slices.Concat(plain, large, grpcType), exhausted},
		{"count, type before", slices.Concat(plain, grpcType, many), exhausted},
		{"count, type behind", slices.Concat(plain, many, grpcType), exhausted},
		{"not gRPC", slices.Concat(plain, large, []string{"content-type", "application/grpcfoo"}), "HEADERS 431"},
		{"no type", slices.Concat(plain, many), "HEADERS 431"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var calls atomic.Int64
			r := newRig(t, setup{config: grpcConfig(""), origins: []string{answerOK(t, &calls)}})
			c := r.dial2()
			c.headers(1, true, tc.fields...)
			var s []string
			for len(s) == 0 || !strings.HasSuffix(s[len(s)-1], "ES") {
				e, err := c.next()
				if err != nil {
					t.Fatal(err)
				}
				what := strings.Replace(e.String(), "#1", "", 1)
				if e.has("grpc-status") {
					what = fmt.Sprintf("ONLY %s %s %s %s ES", e.get(":status"), e.get("grpc-status"), e.get("grpc-message"), e.get("x-sidecar-reason"))
				}
				s = append(s, what)
			}
			if s[0] != tc.want {
				t.Errorf("%s, want %s", s, tc.want)
			}
			if got := call(c, 3); got != "ONLY 200 0 ES" || calls.Load() != 1 {
				t.Errorf("the next call: %s, %d calls", got, calls.Load())
			}
			r.settled()
		})
	}
}

// logLines takes an access log line by line.
type logLines chan string

// Write implements io.Writer.
func (l logLines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// TestGRPCPingPong (GR-009): messages of one octet go to and fro on a stream without waiting for others.
func TestGRPCPingPong(t *testing.T) {
	const rounds = 2000
	origin := serve2(t, nil, func(p *peer) {
		for {
			e, err := p.next()
			if err != nil {
				return
			}
			switch {
			case e.kind == http2.FrameHeaders:
				p.headers(e.id, false, ":status", "200", "content-type", "application/grpc")
			case e.end:
				p.headers(e.id, true, "grpc-status", "0")
			case e.kind == http2.FrameData:
				p.data(e.id, false, e.data)
			}
		}
	})
	log := make(logLines, 1)
	r := newRig(t, setup{config: grpcConfig(""), origins: []string{origin}, log: log})
	c := r.dial2()
	c.headers(1, false, grpc...)
	c.want("HEADERS#1 200")
	took := make([]time.Duration, rounds)
	for i := range took {
		start := time.Now()
		c.data(1, false, message)
		c.want("DATA#1 6")
		took[i] = time.Since(start)
	}
	c.data(1, true, nil)
	if got := outcome(c, 1); got != "TRAILERS 0 ES" {
		t.Error(got)
	}
	slices.Sort(took)
	// A delayed acknowledgement would make it 40 ms, a batch some.
	if half := took[rounds/2]; half > 20*time.Millisecond {
		t.Errorf("half of the rounds took more than %v", half)
	}
	t.Logf("p50 %v, p99 %v", took[rounds/2], took[rounds*99/100])
	r.settled()
	octets, line := rounds*len(message), <-log
	for _, want := range []string{
		fmt.Sprintf(`"messages_in":%d,`, rounds), fmt.Sprintf(`"messages_out":%d}`, rounds),
		fmt.Sprintf(`"bytes_in":%d,`, octets), fmt.Sprintf(`"bytes_out":%d,`, octets),
	} {
		if !strings.Contains(line, want) {
			t.Errorf("no %s in %s", want, line)
		}
	}
}

// TestGRPCRetryBudget (GR-213): a server that fails all calls gets no more than the share of retries that the budget allows.
func TestGRPCRetryBudget(t *testing.T) {
	var attempts atomic.Int64
	origin := replying(t, func(p *peer, id uint32) {
		attempts.Add(1)
		p.headers(id, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "14")
	})
	r := newRig(t, setup{
		config:  grpcConfig("retry: {count: 3, when: [grpc:unavailable], backoff: {base: 1ms, max: 1ms}, budget: {ratio: 10%, min_per_second: 0}}, idempotent: true"),
		origins: []string{origin},
	})
	c := r.dial2()
	const calls = 200
	for i := range uint32(calls) {
		if got := call(c, 2*i+1); got != "ONLY 200 14 ES" {
			t.Fatal(got)
		}
	}
	if n := attempts.Load(); n <= calls || n > calls+calls/10+1 {
		t.Errorf("%d attempts for %d calls", n, calls)
	}
	r.settled()
}

// TestGRPCPings (GR-214): PINGs of a client are answered, however many come by and by, and not passed on.
func TestGRPCPings(t *testing.T) {
	var pings atomic.Int64
	origin := serve2(t, nil, func(p *peer) {
		for {
			e, err := p.frame()
			if err != nil {
				return
			}
			if e.kind == http2.FramePing && !e.ack {
				pings.Add(1)
			}
			if e.end {
				p.headers(e.id, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "0")
			}
		}
	})
	r := newRig(t, setup{config: grpcConfig(""), origins: []string{origin}})
	c := r.dial2()
	for i := range uint32(20) {
		if got := call(c, 2*i+1); got != "ONLY 200 0 ES" {
			t.Fatal(got)
		}
		c.ping()
		for {
			e, err := c.frame()
			if err != nil || e.kind == http2.FrameGoAway {
				t.Fatal(e, err)
			}
			if e.kind == http2.FramePing && e.ack {
				break
			}
		}
	}
	if n := pings.Load(); n > 0 {
		t.Errorf("%d PINGs reached the server", n)
	}
	r.settled()
}

// TestGRPCCancelInBackoff (GR-218): a client that gives up while a retry is being waited for has no further attempt made, and
// its place is given back at once.
func TestGRPCCancelInBackoff(t *testing.T) {
	attempts := make(chan struct{}, 8)
	origin := replying(t, func(p *peer, id uint32) {
		p.headers(id, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "14", "grpc-retry-pushback-ms", "10000")
		attempts <- struct{}{}
	})
	r := newRig(t, setup{config: grpcConfig("retry: {count: 3, when: [grpc:unavailable]}, idempotent: true"), origins: []string{origin}})
	c := r.dial2()
	c.headers(1, false, grpc...)
	c.data(1, true, message)
	<-attempts
	c.moment() // the answer has been read, and the wait begun
	c.reset(1, http2.ErrCodeCancel)
	left := time.Now()
	r.settled()
	if took := time.Since(left); took > 5*time.Second {
		t.Errorf("it was waited for a client that had left, %v", took)
	}
	if n := len(attempts); n > 0 {
		t.Errorf("%d attempts more", n)
	}
}

// TestGRPCRespond: a route that answers by itself answers calls as gRPC does.
func TestGRPCRespond(t *testing.T) {
	for _, tc := range []struct{ respond, want string }{
		{`{status: 403, body: "not for you: 100%"}`, "ONLY 200 7 not for you: 100%25 ES"},
		{`{status: 401}`, "ONLY 200 16 401 is the answer of route * ES"},
		{`{status: 503, headers: {x-why: y}, body: "later\n"}`, "ONLY 200 14 later ES"},
		{`{status: 418}`, "ONLY 200 2 418 is the answer of route * ES"},
		{`{status: 200, headers: {content-type: application/grpc, grpc-status: "5"}}`, "ONLY 200 5 ES"},
	} {
		r := newRig(t, setup{
			config:  "services: {svc: {protocol: grpc, endpoints: [ORIGIN], routes: [{respond: " + tc.respond + "}]}}\n",
			origins: []string{"127.0.0.1:1"},
		})
		c := r.dial2()
		if got := call(c, 1); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.respond, got, tc.want)
		}
		c.headers(3, true, get...)
		if e := outcome(c, 3); !strings.HasPrefix(e, "HEADERS "+strings.TrimSuffix(strings.Fields(strings.Trim(tc.respond, "{}"))[1], ",")) && !strings.HasPrefix(e, "ONLY 200") {
			t.Errorf("%s: a GET got %s", tc.respond, e)
		}
		r.settled()
	}
}
