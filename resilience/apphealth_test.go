package resilience_test

import (
	"testing"

	"github.com/sidecar-mesh/sidecar/resilience"
)

// TestAppHealth: + a good answer, - a bad one, x nobody there; a verdict behind each, ? as long as there is none.
func TestAppHealth(t *testing.T) {
	for name, tc := range map[string]struct {
		fall, rise    int
		told, verdict string
	}{
		"at once":         {1, 1, "+-+-", "+-+-"},
		"the first":       {3, 3, "-", "-"},
		"second opinion":  {2, 1, "+-+--+", "++++-+"},
		"nobody there":    {5, 2, "+x++", "+--+"},
		"slow to recover": {1, 3, "-++-+++", "------+"},
		"stays":           {2, 2, "++-+-+--", "+++++++-"},
	} {
		var h resilience.AppHealth
		got, changes := "", 0
		last := byte('?')
		for i := range tc.told {
			c := tc.told[i]
			changed := h.Told(resilience.AppConfig{UnhealthyAfter: tc.fall, HealthyAfter: tc.rise}, c == '+', c == 'x')
			is := byte('?')
			if well, known := h.Well(); known && well {
				is = '+'
			} else if known {
				is = '-'
			}
			if changed != (is != last) {
				t.Errorf("%s: step %d: changed %v, from %c to %c", name, i, changed, last, is)
			}
			if changed {
				changes++
			}
			last = is
			got += string(is)
		}
		if got != tc.verdict || changes == 0 {
			t.Errorf("%s: %s makes %s, want %s", name, tc.told, got, tc.verdict)
		}
	}
}
