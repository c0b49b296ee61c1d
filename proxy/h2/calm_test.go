package h2

import (
	"testing"
	"time"
)

// TestCalm (H2-GA-006): each complaint doubles the time between PINGs, up to a bound, and the time until the next
// connection; an hour without one takes a doubling back.
func TestCalm(t *testing.T) {
	var c calm
	now := time.Unix(1000, 0)
	if c.left(now) != 0 || c.pingAfter(now) != pingAfter {
		t.Error("the zero value is not undisturbed")
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 16, 16, 16, 16} {
		if got := c.pingAfter(now); i > 0 && got != want*pingAfter {
			t.Errorf("after %d complaints PINGs go every %v", i, got)
		}
		c.complain(now, 0.5)
		if got, want := c.left(now), min(calmMost, calmFirst<<i); got != want {
			t.Errorf("complaint %d: %v to wait, want %v", i+1, got, want)
		}
		now = now.Add(time.Minute)
	}
	before := c.steps
	if c.left(now) != 0 || c.pingAfter(now.Add(2*calmForget)) != pingAfter<<min(before-2, calmSteps) || c.steps != before-2 {
		t.Errorf("%d steps two hours later, were %d", c.steps, before)
	}
	c.complain(now.Add(1000*calmForget), 0)
	if c.steps != 1 {
		t.Errorf("an old complaint still counts: %d", c.steps)
	}
	for range 100 {
		c.complain(now, 0.999)
	}
	if left := c.left(now); left > 3*calmMost/2 {
		t.Errorf("%v to wait", left)
	}
}
