package h2_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// asked is a call at an origin whose request came to its end.
type asked struct {
	p      *peer
	id     uint32
	body   string
	before string // grpc-previous-rpc-attempts
}

// origins2 listens twice; what comes goes to calls, streams that the client resets to resets.
func origins2(t *testing.T) (addresses []string, calls chan asked, resets *atomic.Int32) {
	calls, resets = make(chan asked, 16), new(atomic.Int32)
	for range 2 {
		addresses = append(addresses, serve2(t, nil, func(p *peer) {
			bodies, before := map[uint32]string{}, map[uint32]string{}
			for {
				e, err := p.next()
				if err != nil {
					return
				}
				switch e.kind {
				case http2.FrameHeaders:
					before[e.id] = e.get("grpc-previous-rpc-attempts")
				case http2.FrameData:
					bodies[e.id] += string(e.data)
				case http2.FrameRSTStream:
					resets.Add(1)
				}
				if e.end {
					calls <- asked{p, e.id, bodies[e.id], before[e.id]}
				}
			}
		}))
	}
	return addresses, calls, resets
}

func (a asked) answer() {
	a.p.headers(a.id, false, ":status", "200", "content-type", "application/grpc")
	a.p.data(a.id, false, message)
	a.p.headers(a.id, true, "grpc-status", "0")
}

func nextCall(t *testing.T, calls chan asked) asked {
	t.Helper()
	select {
	case a := <-calls:
		return a
	case <-time.After(patience):
		t.Fatal("no call came")
		return asked{}
	}
}

// TestOverlapGRPC: a call whose first attempt hangs is made a second time, with the same message, at the other endpoint
// (S-145); so is one that is to be sent twice (S-144). The loser's stream is reset, its connection goes on.
func TestOverlapGRPC(t *testing.T) {
	for _, policy := range []string{"backup: {after: 30ms, max_ratio: 100%}", "dual_send: true"} {
		t.Run(policy, func(t *testing.T) {
			origins, calls, resets := origins2(t)
			config := "services: {svc: {protocol: http2, endpoints: [ORIGIN, ORIGIN], policy: {idempotent: true, breaker: none, outlier: none, " + policy + "}}}\n"
			r := newRig(t, setup{config: config, origins: origins})
			c := r.dial2()
			for round := range uint32(3) {
				id := 2*round + 1
				c.headers(id, false, grpc...)
				c.data(id, true, message)
				first, second := nextCall(t, calls), nextCall(t, calls)
				if first.p == second.p || first.body != string(message) || second.body != string(message) {
					t.Errorf("two at the same endpoint (%t), bodies %q and %q", first.p == second.p, first.body, second.body)
				}
				if first.before+second.before != "1" { // which of the two comes first is open
					t.Errorf("grpc-previous-rpc-attempts %q and %q (gRPC A6)", first.before, second.before)
				}
				winner := []asked{first, second}[round&1]
				winner.answer()
				if got := outcome(c, id); !strings.HasSuffix(got, "TRAILERS 0 ES") {
					t.Errorf("got %s", got)
				}
				if !eventually(func() bool { return resets.Load() == int32(round+1) }) {
					t.Errorf("%d streams were reset, want %d", resets.Load(), round+1)
				}
			}
			r.settled()
		})
	}
}

// TestOverlapStatus: a status that says failure waits for the other attempt.
func TestOverlapStatus(t *testing.T) {
	origins, calls, _ := origins2(t)
	config := "services: {svc: {protocol: http2, endpoints: [ORIGIN, ORIGIN], policy: {idempotent: true, backup: {after: 20ms, max_ratio: 100%}}}}\n"
	r := newRig(t, setup{config: config, origins: origins})
	c := r.dial2()
	c.headers(1, false, grpc...)
	c.data(1, true, message)
	first, second := nextCall(t, calls), nextCall(t, calls)
	second.p.headers(second.id, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "14")
	time.AfterFunc(20*time.Millisecond, first.answer)
	if got := outcome(c, 1); !strings.HasSuffix(got, "TRAILERS 0 ES") {
		t.Errorf("got %s", got)
	}
	r.settled()
}

// TestOverlapCallerLeaves: a caller that resets its stream ends both attempts.
func TestOverlapCallerLeaves(t *testing.T) {
	origins, calls, resets := origins2(t)
	config := "services: {svc: {protocol: http2, endpoints: [ORIGIN, ORIGIN], policy: {idempotent: true, backup: {after: 20ms, max_ratio: 100%}}}}\n"
	r := newRig(t, setup{config: config, origins: origins})
	c := r.dial2()
	c.headers(1, false, grpc...)
	c.data(1, true, message)
	nextCall(t, calls)
	nextCall(t, calls)
	c.reset(1, http2.ErrCodeCancel)
	if !eventually(func() bool { return resets.Load() == 2 }) {
		t.Errorf("%d streams were reset, want 2", resets.Load())
	}
	r.settled()
}
