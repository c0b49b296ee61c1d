package admin

import (
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// TestAdvice: time limits are compared with what was seen (S-140, S-141, S-241).
func TestAdvice(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, tt := range []struct {
		name, policy string
		p999, p9999  time.Duration // P50 and P90 are a tenth and a half of P999
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
		{"does not fit", "timeout: 1s, retry: 2, per_try_timeout: 400ms", ms(100), ms(200), 5000, 0, "per_try_timeout 333ms"},
		{"cuts attempts", "timeout: 2s, retry: 1, per_try_timeout: 100ms", ms(99), ms(300), 5000, 0, "per_try_timeout 200ms"},
		{"cuts every second call of a few", "timeout: 2s, per_try_timeout: 3ms", ms(40), ms(40), 20, 0, "per_try_timeout 80ms"},
		{"of too few", "timeout: 2s, per_try_timeout: 3ms", ms(40), ms(40), 19, 0, ""},
		{"cuts one in ten of a hundred", "timeout: 2s, per_try_timeout: 20ms", ms(40), ms(40), 100, 0, "per_try_timeout 80ms"},
		{"one in ten of too few", "timeout: 2s, per_try_timeout: 20ms", ms(40), ms(40), 99, 0, ""},
		{"inversion", "timeout: 2s", ms(500), ms(900), 5000, time.Second, "timeout 1s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			snap := meshtest.Compile(t, "services: {a: {endpoints: ['10.0.0.1:80'], policy: {"+tt.policy+"}, routes: [{match: /same}, {match: /gone, respond: {}}]}}\n")
			a, _ := snap.Outbound.Get("a")
			var got []string
			for _, v := range advise(telemetry.Outbound, a, telemetry.Quantiles{
				P50: tt.p999 / 10, P90: tt.p999 / 2, P99: tt.p999 * 3 / 4, P999: tt.p999, P9999: tt.p9999, Count: tt.count,
			}, tt.inbound) {
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

// TestAdviceOfRoutes: quantiles are of the whole service. A route whose time limit is shorter than a slow neighbour's is advised
// when calls of its own ran into it, not because the neighbour takes long.
func TestAdviceOfRoutes(t *testing.T) {
	rec, err := telemetry.New(telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	snap := meshtest.Compile(t, `services: {a: {endpoints: ['10.0.0.1:80'], policy: {timeout: 1s}, routes: [{name: export, match: /export, policy: {timeout: 60s}}]}}`)
	meshtest.Bind(snap, rec, func(*snapshot.Service, *snapshot.Endpoint) {})
	a, _ := snap.Outbound.Get("a")
	slow := telemetry.Quantiles{P50: time.Millisecond, P90: 10 * time.Millisecond, P99: 20 * time.Second, P999: 30 * time.Second, P9999: 40 * time.Second, Count: 5000}
	if got := advise(telemetry.Outbound, a, slow, 0); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	s := a.Rest.Meters.(*telemetry.Series)
	s.Begin()
	rec.Record(&telemetry.Outcome{Series: s, Service: "a", Reason: resilience.Timeout, Status: 504})
	if got := advise(telemetry.Outbound, a, slow, 0); len(got) != 1 || got[0].Route != "" || got[0].Field != "timeout" {
		t.Errorf("%+v", got)
	}
}
