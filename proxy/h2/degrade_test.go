package h2_test

import (
	"strings"
	"testing"
)

// TestDegradeGRPC: a shield answers calls of gRPC as gRPC wants it, with no call made: an empty message, a status, a
// message (S-160); a fallback answers for a failure.
func TestDegradeGRPC(t *testing.T) {
	const service = "services: {svc: {protocol: http2, endpoints: [ORIGIN], policy: {breaker: none, outlier: none}}}\n"
	const failing = "services: {svc: {protocol: http2, endpoints: [ORIGIN], policy: {breaker: none, outlier: none, fallback: {"
	unavailable := func(p *peer, id uint32) {
		p.headers(id, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "14")
	}
	for _, tc := range []struct {
		name, config, want string
		reached            bool
	}{
		{"null", service + "switches: {away: {service: svc, enabled: true, empty: {}}}\n", "HEADERS 200, DATA 5, TRAILERS 0 ES", false},
		{
			"exception", service + "switches: {away: {service: svc, enabled: true, error: {grpc: resource_exhausted}}}\n",
			"ONLY 200 8 degraded ES", false,
		},
		{
			"mock", service + "switches: {away: {service: svc, enabled: true, answer: {body_base64: AAECAw==}}}\n",
			"HEADERS 200, DATA 9, TRAILERS 0 ES", false,
		},
		{"fallback", failing + "empty: {}}}}}\n", "HEADERS 200, DATA 5, TRAILERS 0 ES", true},
		{"fallback of a status", failing + "when: [\"grpc:unavailable\"], answer: {body_base64: AA==}}}}}\n", "HEADERS 200, DATA 6, TRAILERS 0 ES", true},
		{"nothing that speaks HTTP/1.1 answers for it", failing + "when: [\"grpc:unavailable\"], local: \"http://127.0.0.1:1/\"}}}}\n", "ONLY 200 14 ES", true},
		{"not even when it is off", service + "switches: {away: {service: svc, enabled: true, local: \"http://127.0.0.1:1/\"}}\n", "ONLY 200 14 degraded ES", false},
		{"fallback of another", failing + "when: [\"grpc:internal\"], answer: {body_base64: AA==}}}}}\n", "ONLY 200 14 ES", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			called := make(chan struct{}, 8)
			origin := replying(t, func(p *peer, id uint32) {
				called <- struct{}{}
				unavailable(p, id)
			})
			r := newRig(t, setup{config: tc.config, origins: []string{origin}})
			c := r.dial2()
			for id := uint32(1); id < 5; id += 2 {
				got := strings.ReplaceAll(call(c, id), ", RST_STREAM NO_ERROR", "")
				if got != tc.want {
					t.Errorf("%s, want %s", got, tc.want)
				}
			}
			if reached := len(called) > 0; reached != tc.reached {
				t.Errorf("the endpoint was called: %t", reached)
			}
			r.settled()
		})
	}
}
