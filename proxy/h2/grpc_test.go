package h2_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

var message = []byte{0, 0, 0, 0, 1, 'x'}

// grpcConfig is a service whose policy is given.
func grpcConfig(policy string) string {
	return "services: {svc: {protocol: http2, endpoints: [ORIGIN], policy: {breaker: none, outlier: none, " + policy + "}}}\n"
}

// call makes a call with one message and returns the events of its answer.
func call(c *peer, id uint32, more ...string) string {
	c.headers(id, false, with(grpc, more...)...)
	c.data(id, true, message)
	return outcome(c, id)
}

// outcome reads the events of a stream until its end, with the status of gRPC behind them.
func outcome(c *peer, id uint32) string {
	var s []string
	for {
		e, err := c.next()
		if err != nil {
			return strings.Join(append(s, err.Error()), ", ")
		}
		if e.id != id {
			continue
		}
		what := strings.Replace(e.String(), fmt.Sprint("#", id), "", 1)
		if e.kind == http2.FrameHeaders && e.has("grpc-status") {
			what = "TRAILERS"
			if e.has(":status") {
				what = "ONLY " + e.get(":status")
			}
			what += " " + e.get("grpc-status")
			if m := e.get("grpc-message"); m != "" && !e.has("x-sidecar-reason") {
				what += " " + m
			}
			if e.has("x-sidecar-reason") {
				what += " " + e.get("x-sidecar-reason")
			}
			if e.end {
				what += " ES"
			}
		}
		s = append(s, what)
		if e.end || e.kind == http2.FrameRSTStream {
			return strings.Join(s, ", ")
		}
	}
}

// TestGRPCPasses (GR-001 … GR-021): what an origin answers arrives as it was.
func TestGRPCPasses(t *testing.T) {
	const ct = "application/grpc"
	for _, tc := range []struct {
		name  string
		reply func(p *peer, id uint32)
		want  string
	}{
		{"unary", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200", "content-type", ct)
			p.data(id, false, message)
			p.headers(id, true, "grpc-status", "0")
		}, "HEADERS 200, DATA 6, TRAILERS 0 ES"},
		{"trailers only", func(p *peer, id uint32) {
			p.headers(id, true, ":status", "200", "content-type", ct, "grpc-status", "5", "grpc-message", "no%20such %E2%9C%93 %zz")
		}, "ONLY 200 5 no%20such %E2%9C%93 %zz ES"},
		{"trailers without DATA", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200", "content-type", ct)
			p.headers(id, true, "grpc-status", "7")
		}, "HEADERS 200, TRAILERS 7 ES"},
		{"no trailers", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200", "content-type", ct)
			p.data(id, true, message)
		}, "HEADERS 200, DATA 6, DATA 0 ES"},
		{"status in both", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200", "content-type", ct, "grpc-status", "0")
			p.headers(id, true, "grpc-status", "3")
		}, "ONLY 200 0, TRAILERS 3 ES"},
		{"strange status", func(p *peer, id uint32) {
			p.headers(id, true, ":status", "200", "content-type", ct, "grpc-status", "007")
		}, "ONLY 200 007 ES"},
		{"503 of the origin", func(p *peer, id uint32) { p.headers(id, true, ":status", "503", "content-type", "text/html") }, "HEADERS 503 ES"},
		{"404 of the origin", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "404", "content-type", "text/html")
			p.data(id, true, []byte("<html>"))
		}, "HEADERS 404, DATA 6, DATA 0 ES"},
	} {
		for _, policy := range []string{"", "retry: {count: 1, when: [grpc:aborted]}"} {
			t.Run(tc.name+" "+policy, func(t *testing.T) {
				r := newRig(t, setup{config: grpcConfig(policy), origins: []string{replying(t, tc.reply)}})
				got := strings.ReplaceAll(call(r.dial2(), 1), "DATA 6 ES", "DATA 6, DATA 0 ES")
				if got != tc.want {
					t.Errorf("%s, want %s", got, tc.want)
				}
				r.settled()
			})
		}
	}
}

// TestGRPCRequestPasses: te, metadata and messages of a call reach the origin.
func TestGRPCRequestPasses(t *testing.T) {
	heads, bodies := make(chan event, 1), make(chan []byte, 1)
	origin := serve2(t, nil, func(p *peer) {
		var body []byte
		for {
			e, err := p.next()
			if err != nil {
				return
			}
			if e.kind == http2.FrameHeaders {
				heads <- e
			}
			body = append(body, e.data...)
			if e.end {
				bodies <- body
				p.headers(e.id, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "0")
			}
		}
	})
	r := newRig(t, setup{config: grpcConfig(""), origins: []string{origin}})
	c := r.dial2()
	c.headers(1, false, with(grpc, "x-bin", "AAE", "x-bin", "AAE=,AAI", "grpc-encoding", "gzip", "grpc-previous-rpc-attempts", "9")...)
	for i := range message {
		c.data(1, i == len(message)-1, message[i:i+1])
	}
	if got := outcome(c, 1); got != "ONLY 200 0 ES" {
		t.Error(got)
	}
	head, body := <-heads, <-bodies
	var bins []string
	for _, f := range head.fields {
		if f.Name == "x-bin" {
			bins = append(bins, f.Value)
		}
	}
	if head.get("te") != "trailers" || head.get("content-type") != "application/grpc" || head.get("grpc-encoding") != "gzip" ||
		fmt.Sprint(bins) != "[AAE AAE=,AAI]" || string(body) != string(message) || head.has("grpc-previous-rpc-attempts") {
		t.Errorf("%v %q", head.fields, body)
	}
	r.settled()
}

// TestGRPCFailures (GR-101 … GR-117): failures of our own have a status of gRPC, before the head and behind it.
func TestGRPCFailures(t *testing.T) {
	started := func(end func(p *peer, id uint32)) func(*peer, uint32) {
		return func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200", "content-type", "application/grpc")
			p.data(id, false, message)
			p.moment()
			end(p, id)
		}
	}
	silent := func(*peer, uint32) {}
	for _, tc := range []struct {
		name, policy, want string
		reply              func(p *peer, id uint32)
		more               []string
	}{
		{"no service", "", "ONLY 200 12 no_route ES", nil, []string{":authority", "other"}},
		{"connection refused", "", "ONLY 200 14 connect_failed ES", nil, nil},
		{"reset", "", "ONLY 200 14 upstream_reset ES", func(p *peer, id uint32) { p.reset(id, http2.ErrCodeCancel) }, nil},
		{"timeout of the policy", "timeout: 100ms", "ONLY 200 4 timeout ES", silent, nil},
		{"deadline", "", "ONLY 200 4 timeout ES", silent, []string{"grpc-timeout", "100m"}},
		{"deadline over", "", "ONLY 200 4 timeout ES", silent, []string{"grpc-timeout", "0S"}},
		{"malformed", "", "ONLY 200 13 upstream_protocol ES", func(p *peer, id uint32) { p.headers(id, true, "x", "y") }, nil},
		{"cut midway", "", "HEADERS 200, DATA 6, TRAILERS 14 ES", started(func(p *peer, _ uint32) { _ = p.nc.Close() }), nil},
		{"reset midway", "", "HEADERS 200, DATA 6, TRAILERS 14 ES", started(func(p *peer, id uint32) { p.reset(id, http2.ErrCodeInternal) }), nil},
		{"GOAWAY midway", "", "HEADERS 200, DATA 6, TRAILERS 14 ES", started(func(p *peer, _ uint32) { p.goAway(0, http2.ErrCodeNo) }), nil},
		{"deadline midway", "", "HEADERS 200, DATA 6, TRAILERS 4 ES", started(silent), []string{"grpc-timeout", "1500m"}},
		{"malformed midway", "", "HEADERS 200, DATA 6, TRAILERS 13 ES", started(func(p *peer, id uint32) { p.headers(id, true, ":x", "y") }), nil},
		{"cut in a message", "", "HEADERS 200, DATA 6, DATA 3, RST INTERNAL_ERROR", started(func(p *peer, id uint32) {
			p.data(id, false, message[:3])
			p.moment()
			_ = p.nc.Close()
		}), nil},
		{"not gRPC", "timeout: 100ms", "HEADERS 504, DATA", silent, []string{"content-type", "application/grpcfoo"}},
		{"gRPC with a subtype", "timeout: 100ms", "ONLY 200 4 timeout ES", silent, []string{"content-type", "application/grpc+proto"}},
		{"gRPC-Web", "timeout: 100ms", "HEADERS 504, DATA", silent, []string{"content-type", "application/grpc-web"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			origin := "127.0.0.1:1"
			if tc.reply != nil {
				origin = replying(t, tc.reply)
			}
			r := newRig(t, setup{config: grpcConfig(tc.policy), origins: []string{origin}})
			c := r.dial2()
			fields := with(grpc)
			for i := 0; i < len(tc.more); i += 2 {
				replaced := false
				for j := 0; j < len(fields); j += 2 {
					if fields[j] == tc.more[i] {
						fields[j+1], replaced = tc.more[i+1], true
					}
				}
				if !replaced {
					fields = append(fields, tc.more[i], tc.more[i+1])
				}
			}
			c.headers(1, false, fields...)
			c.data(1, true, message)
			got := outcome(c, 1)
			if i := strings.Index(got, " upstream_reset:"); i > 0 { // what people are told
				got = got[:i] + " ES"
			}
			for _, reason := range []string{"timeout", "upstream_protocol"} {
				if i := strings.Index(got, " "+reason+":"); i > 0 {
					got = got[:i] + " ES"
				}
			}
			if got != tc.want && !(strings.HasSuffix(tc.want, "DATA") && strings.HasPrefix(got, tc.want)) {
				t.Errorf("%s, want %s", got, tc.want)
			}
			r.settled()
		})
	}
}

// TestGRPCRetries (GR-206 … GR-209): an attempt that fails with a status at once is repeated, whether the status stands in
// the head or behind it; pushback is obeyed; the origin is told how often it was tried.
func TestGRPCRetries(t *testing.T) {
	for _, tc := range []struct {
		name, pushback, want string
		attempts             int64
		apart, least         time.Duration
		behind, afterMessage bool
	}{
		{name: "trailers only", want: "ONLY 200 0 ES", attempts: 3},
		{name: "behind the head", want: "ONLY 200 0 ES", attempts: 3, behind: true},
		{name: "too late behind the head", want: "HEADERS 200, TRAILERS 14 ES", attempts: 1, behind: true, apart: 200 * time.Millisecond},
		{name: "behind a message", want: "HEADERS 200, DATA 6, TRAILERS 14 ES", attempts: 1, afterMessage: true},
		{name: "pushback", want: "ONLY 200 0 ES", attempts: 3, pushback: "150", least: 300 * time.Millisecond},
		{name: "negative pushback", want: "ONLY 200 14 ES", attempts: 1, pushback: "-1"},
		{name: "pushback abc", want: "ONLY 200 14 ES", attempts: 1, pushback: "abc"},
		{name: "pushback 007", want: "ONLY 200 14 ES", attempts: 1, pushback: "007"},
		{name: "large pushback", want: "ONLY 200 14 ES", attempts: 1, pushback: "2147483648"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var n atomic.Int64
			origin := serve2(t, nil, func(p *peer) {
				for {
					e, err := p.next()
					if err != nil {
						return
					}
					if e.kind == http2.FrameHeaders {
						want := ""
						if k := n.Add(1); k > 1 {
							want = strconv.FormatInt(k-1, 10)
						}
						if got := e.get("grpc-previous-rpc-attempts"); got != want {
							t.Errorf("attempt %d: grpc-previous-rpc-attempts %q", n.Load(), got)
						}
					}
					if !e.end {
						continue
					}
					status := []string{"grpc-status", "14"}
					if tc.pushback != "" {
						status = append(status, "grpc-retry-pushback-ms", tc.pushback)
					}
					head := []string{":status", "200", "content-type", "application/grpc"}
					switch {
					case n.Load() == 3:
						p.headers(e.id, true, with(head, "grpc-status", "0")...)
					case tc.afterMessage:
						p.headers(e.id, false, head...)
						p.data(e.id, false, message)
						p.headers(e.id, true, status...)
					case tc.apart > 0:
						p.headers(e.id, false, head...)
						<-time.After(tc.apart)
						p.headers(e.id, true, status...)
					case tc.behind: // in one piece: it has 10 ms to come
						p.together(func() {
							p.headers(e.id, false, head...)
							p.headers(e.id, true, status...)
						})
					default:
						p.headers(e.id, true, with(head, status...)...)
					}
				}
			})
			r := newRig(t, setup{config: grpcConfig("retry: {count: 3, when: [grpc:unavailable]}, idempotent: true"), origins: []string{origin}})
			c := r.dial2()
			start := time.Now()
			got := call(c, 1)
			// What is 10 ms for us may be more or less on a machine that stands still.
			for id := uint32(3); tc.behind && (got != tc.want || n.Load() != tc.attempts) && id < 40; id += 2 {
				n.Store(0)
				got = call(c, id)
			}
			if got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			if took := time.Since(start); n.Load() != tc.attempts || took < tc.least {
				t.Errorf("%d attempts in %v", n.Load(), took)
			}
			r.settled()
		})
	}
}

// TestGRPCTimeouts (GR-202, GR-203): the deadline that is sent on is never later than the caller's; what is no deadline is
// not sent on.
func TestGRPCTimeouts(t *testing.T) {
	var got sync.Map // what was sent on, by the call's number
	origin := serve2(t, nil, func(p *peer) {
		for {
			e, err := p.next()
			if err != nil {
				return
			}
			if e.kind == http2.FrameHeaders {
				got.Store(e.get("x-call"), e.get("grpc-timeout"))
				p.headers(e.id, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "0")
			}
		}
	})
	r := newRig(t, setup{config: grpcConfig(""), origins: []string{origin}})
	c := r.dial2()
	id := uint32(1)
	ask := func(timeout string) (result, sent string) {
		number := strconv.Itoa(int(id))
		c.headers(id, true, with(grpc, "grpc-timeout", timeout, "x-call", number)...)
		result = outcome(c, id)
		id += 2
		if v, ok := got.Load(number); ok {
			sent = v.(string)
		}
		return result, sent
	}
	unit := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': 1}
	read := func(s string) time.Duration {
		n, err := strconv.ParseUint(s[:len(s)-1], 10, 32)
		if err != nil || len(s) > 9 || unit[s[len(s)-1]] == 0 {
			t.Fatalf("%q was sent on", s)
		}
		return time.Duration(n) * unit[s[len(s)-1]]
	}
	for _, s := range []string{"1H", "1M", "10S", "9000m", "9000000u", "99999999n", "99999999u", "99999999m", "99999S", "99999999S", "00000017S"} {
		start := time.Now()
		result, sent := ask(s)
		for tries := 0; result != "ONLY 200 0 ES" && time.Since(start) > read(s) && tries < 100; tries++ { // this machine took its time
			start = time.Now()
			result, sent = ask(s)
		}
		took := time.Since(start)
		if result != "ONLY 200 0 ES" {
			t.Fatal(s, result)
		}
		if was, is := read(s), read(sent); is > was || is < was-was/100-took && is < 86_000*time.Hour {
			t.Errorf("%s: %v was sent on %v later", s, is, took)
		}
	}
	for _, s := range []string{"1s", "S", "-1S", "+1S", "123456789S", "1.5S", ""} {
		result, sent := ask(s)
		if result != "ONLY 200 0 ES" {
			t.Fatal(s, result)
		}
		if sent != "" {
			t.Errorf("%q was sent on for %q", sent, s)
		}
	}
	r.settled()
}
