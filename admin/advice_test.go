package admin

import (
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// TestAdvice: time limits are compared with what was seen (S-140, S-141, S-241).
func TestAdvice(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, tt := range []struct {
		name, policy string
		p999, p9999  time.Duration
		count        uint64
		inbound      time.Duration
		want         string // field suggested, in turn
	}{
		{"fine", "timeout: 1s", ms(200), ms(400), 5000, 0, ""},
		{"no limit", "timeout: 0", ms(200), ms(400), 5000, 0, "timeout "},
		{"far above", "timeout: 15s", ms(80), ms(180), 5000, 0, "timeout 350ms"},
		{"too few calls", "timeout: 15s", ms(80), ms(180), 900, 0, ""},
		{"cuts", "timeout: 300ms", ms(298), ms(300), 5000, 0, "timeout "},
		{"retry without a limit", "timeout: 1s, retry: 1", ms(100), ms(200), 5000, 0, "per_try_timeout 200ms"},
		{"auto", "timeout: 1s, retry: 1, per_try_timeout: auto", ms(100), ms(200), 5000, 0, ""},
		{"does not fit", "timeout: 1s, retry: 2, per_try_timeout: 400ms", ms(100), ms(200), 5000, 0, "per_try_timeout 333.333333ms"},
		{"cuts attempts", "timeout: 2s, retry: 1, per_try_timeout: 100ms", ms(99), ms(300), 5000, 0, "per_try_timeout 200ms"},
		{"inversion", "timeout: 2s", ms(500), ms(900), 5000, time.Second, "timeout 1s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			snap := meshtest.Compile(t, "services: {a: {endpoints: ['10.0.0.1:80'], policy: {"+tt.policy+"}, routes: [{match: /same}, {match: /gone, respond: {}}]}}\n")
			a, _ := snap.Outbound.Get("a")
			var got []string
			for _, v := range advise(telemetry.Outbound, a, telemetry.Quantiles{P999: tt.p999, P9999: tt.p9999, Count: tt.count}, tt.inbound) {
				got = append(got, v.Field+" "+v.Suggested)
				if v.Text == "" || v.Configured == "" {
					t.Errorf("%+v", v)
				}
			}
			if s := strings.Join(got, ", "); s != tt.want {
				t.Errorf("got %q, want %q", s, tt.want)
			}
		})
	}
}
