package h2

import (
	"testing"
	"time"
)

// TestWindowMemory: no more is lent than there is, and a smaller budget is noticed.
func TestWindowMemory(t *testing.T) {
	m := NewWindowMemory(100)
	if a, b, c := m.take(70), m.take(70), m.take(1); a != 70 || b != 30 || c != 0 || m.Used() != 100 || m.over() {
		t.Errorf("%d, %d and %d of 100", a, b, c)
	}
	m.Set(50)
	if !m.over() || m.take(1) != 0 {
		t.Error("a smaller budget is not kept to")
	}
	m.give(60)
	if m.over() || m.take(100) != 10 {
		t.Error("what was given back is not there")
	}
	var none *WindowMemory
	if none.take(1) != 0 || none.over() {
		t.Error("no budget is a budget")
	}
}

// TestPace: a window that is used up in a round trip doubles, up to a bound; one that is not is measured less and less.
func TestPace(t *testing.T) {
	now := time.Unix(1000, 0)
	p := pace{window: streamWindow}
	measure := func(taken int64) bool {
		t.Helper()
		if !p.begin(now) || p.begin(now) {
			t.Fatal("one measurement at a time")
		}
		p.taken = taken
		now = now.Add(50 * time.Millisecond)
		return p.end(now)
	}
	if p.end(now) {
		t.Error("an answer to nothing counts")
	}
	for want := int64(2 * streamWindow); want <= maxStreamWindow; want *= 2 {
		if !measure(p.window/2) || p.window != want {
			t.Fatalf("window %d, want %d", p.window, want)
		}
		now = now.Add(measureSoon)
	}
	if measure(p.window) || p.window != maxStreamWindow {
		t.Errorf("the largest window grows to %d", p.window)
	}
	p = pace{window: streamWindow}
	var last time.Duration
	for range 20 {
		if measure(p.window/2 - 1) {
			t.Fatal("a window that is not used up grows")
		}
		if p.begin(now.Add(p.pause - 1)) {
			t.Error("it is measured before its time")
		}
		if p.pause < last || p.pause > measureLate {
			t.Errorf("a pause of %v after %v", p.pause, last)
		}
		last = p.pause
		now = now.Add(p.pause)
	}
	if last != measureLate {
		t.Errorf("still measured every %v", last)
	}
}
