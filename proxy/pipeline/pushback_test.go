package pipeline

import (
	"math"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 6, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"0":                              0,
		"3":                              3 * time.Second,
		"007":                            7 * time.Second,
		"Mon, 30 Nov 2026 06:00:02 GMT":  2 * time.Second,
		"Monday, 30-Nov-26 06:00:02 GMT": 2 * time.Second,
		"Mon Nov 30 06:00:02 2026":       2 * time.Second,
		"Mon, 30 Nov 2026 05:59:00 GMT":  0,
		"":                               0,
		"-1":                             0,
		"1.5":                            0,
		"soon":                           0,
		"99999999999":                    9223372036 * time.Second,
		"99999999999999999999999":        math.MaxInt64,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}

// TestHoldOff: a 429 is about the caller, a 503 about the endpoint that gave it.
func TestHoldOff(t *testing.T) {
	for _, tc := range []struct {
		status  int
		untried bool
		want    time.Duration
	}{{429, false, time.Second}, {429, true, time.Second}, {503, false, time.Second}, {503, true, 0}, {500, false, 0}} {
		x := &Exchange{}
		x.resp.Fields = []Field{{Name: "Retry-After", Value: "1"}}
		if got := x.holdOff(&resilience.Outcome{Status: tc.status, Untried: tc.untried}); got != tc.want {
			t.Errorf("%d, untried %v: %v, want %v", tc.status, tc.untried, got, tc.want)
		}
	}
}
