package netio_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// TestActivityKeepsItsClock: the end of a stream's patience is a time of the monotonic clock, so that setting the clock of the wall does
// not bring it about.
func TestActivityKeepsItsClock(t *testing.T) {
	var a netio.Activity
	now := time.Now()
	a.Start(now, time.Minute)
	if over := a.Over(); !over.Equal(now.Add(time.Minute)) || !strings.Contains(over.String(), " m=") {
		t.Errorf("over at %v, began at %v", over, now)
	}
	a.Touch(now.Add(time.Second))
	a.Lower(time.Second)
	if over := a.Over(); over.Sub(now) != 2*time.Second || !strings.Contains(over.String(), " m=") {
		t.Errorf("over at %v, began at %v", over, now)
	}
}
