package h1

import (
	"testing"
	"time"
)

// TestOfflineMark: it counts where Connection names it and the connection closes, since then nobody passed it on; it goes
// no further in any case.
func TestOfflineMark(t *testing.T) {
	for name, tc := range map[string]struct {
		fields []string
		want   time.Duration
	}{
		"our own":     {[]string{"X-Sidecar-Offline: 30", "Connection: close, X-Sidecar-Offline"}, 30 * time.Second},
		"other case":  {[]string{"connection: x-sidecar-offline", "connection: Close", "x-sidecar-OFFLINE: 30"}, 30 * time.Second},
		"no number":   {[]string{"X-Sidecar-Offline: soon", "Connection: close, X-Sidecar-Offline"}, time.Minute},
		"for ever":    {[]string{"X-Sidecar-Offline: 999999999", "Connection: close, X-Sidecar-Offline"}, 10 * time.Minute},
		"at once":     {[]string{"X-Sidecar-Offline: 0", "Connection: close, X-Sidecar-Offline"}, time.Second},
		"passed on":   {[]string{"X-Sidecar-Offline: 30", "Connection: close"}, 0},
		"to be kept":  {[]string{"X-Sidecar-Offline: 30", "Connection: X-Sidecar-Offline"}, 0},
		"only a name": {[]string{"Connection: close, X-Sidecar-Offline"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, _, err := readResponseFrom(whole([]byte(resp("200 OK", append(tc.fields, "Content-Length: 0")...))), "GET")
			if err != nil {
				t.Fatal(err)
			}
			if r.Offline != tc.want {
				t.Errorf("out for %v, want %v", r.Offline, tc.want)
			}
			for _, f := range r.Fields {
				if len(f.Name) == len("X-Sidecar-Offline") && !f.Drop {
					t.Errorf("%s is sent on", f.Name)
				}
			}
		})
	}
}
