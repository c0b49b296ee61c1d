package balance

import (
	"testing"
	"time"
)

// TestOpenEndpoint: one whose breaker is open gets nothing until its time is over, and then is picked like any other, on the
// near side too; under panic it is served, as everybody is.
func TestOpenEndpoint(t *testing.T) {
	for _, kind := range kinds {
		for _, n := range []int{4, 100} {
			e := alike(n)
			for i := range e {
				e[i].Near = i == 1
			}
			e[1].Meter.State.Store(StateOpen)
			e[1].Meter.OpenUntil.Store(epoch.Add(time.Second).UnixNano())
			for _, prefer := range []bool{false, true} {
				s := New(Spec{Kind: kind, PreferNear: prefer, SpillBelow: 0.7}, e, nil)
				p := newPicker(t, 11)
				p.now = epoch.Add(time.Second - 1)
				if got := p.counts(s, 20*n)[1]; got != 0 {
					t.Errorf("%v of %d, prefer %v: %d picks of an open endpoint", kind, n, prefer, got)
				}
				p.now = epoch.Add(time.Second + censusEvery)
				if got := p.counts(s, 20*n)[1]; got == 0 {
					t.Errorf("%v of %d, prefer %v: no pick of one that is to be asked", kind, n, prefer)
				}
				e[1].Meter.State.Store(StateOpen | StateDraining)
				if got := p.counts(s, 20*n)[1]; got != 0 {
					t.Errorf("%v of %d, prefer %v: %d picks of one that drains as well", kind, n, prefer, got)
				}
				e[1].Meter.State.Store(StateOpen)
			}
			for i := range e {
				e[i].Meter.State.Store(StateOpen)
				e[i].Meter.OpenUntil.Store(epoch.Add(time.Second).UnixNano())
			}
			h := newPicker(t, 12).hint()
			if _, why := New(Spec{Kind: kind}, e, nil).Pick(h); why != PickedPanic {
				t.Errorf("%v of %d: all open: %v", kind, n, why)
			}
			if _, why := New(Spec{Kind: kind, Panic: FailFast}, e, nil).Pick(h); why != NoneUsable {
				t.Errorf("%v of %d: all open, fail_fast: %v", kind, n, why)
			}
		}
	}
}
