package config

import (
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", 50 * time.Millisecond: "50ms", time.Minute: "1m", time.Hour: "1h", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", 20 * time.Second: "20s",
	} {
		if got := Span(d); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
		if back, err := time.ParseDuration(want); err != nil || back != d {
			t.Errorf("%q is %v", want, back)
		}
	}
}
