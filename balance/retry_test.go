package balance

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestWeightedRetryTakesNoTurn: with two endpoints of which one always fails, calls still begin at each of them in turn.
func TestWeightedRetryTakesNoTurn(t *testing.T) {
	for _, kind := range []Kind{WeightedRoundRobin} {
		endpoints := []Endpoint{{Key: 1, Weight: 1, Meter: new(Meter)}, {Key: 2, Weight: 1, Meter: new(Meter)}}
		s := New(Spec{Kind: kind, Seed: 7}, endpoints, nil)
		rnd := rand.New(rand.NewPCG(1, 2))
		bad := 0
		for range 100 {
			h := Hint{Now: time.Unix(1, 0), Rand: rnd.Uint64()}
			first, _ := s.Pick(&h)
			if first != 0 {
				continue
			}
			bad++
			h.Tried, h.Rand = []int{0}, rnd.Uint64()
			if second, why := s.Pick(&h); second != 1 || why != Picked {
				t.Fatalf("%v: the retry went to %d, %v", kind, second, why)
			}
		}
		if bad != 50 {
			t.Errorf("%v: %d of 100 calls began at the bad endpoint, want 50", kind, bad)
		}
	}
}
