package balance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// prospectSet is a random set of a kind: some endpoints out, some of weight 0, some near, some warming up.
func prospectSet(r *rand.Rand, kind Kind, now time.Time) *Set {
	spec := Spec{Kind: kind, PreferNear: r.IntN(2) == 0, SpillBelow: float64(r.IntN(5)) / 4, Panic: Panic(r.IntN(4) / 3), Seed: r.Uint64()}
	if r.IntN(3) == 0 {
		spec.Warmup = time.Minute
	}
	list := make([]Endpoint, r.IntN(7))
	for i := range list {
		m := &Meter{}
		if r.IntN(3) == 0 {
			m.State.Store(1 << r.IntN(4))
		}
		if r.IntN(3) == 0 {
			m.Since.Store(now.Add(-time.Duration(r.IntN(90)) * time.Second).UnixNano())
		}
		m.Active.Store(int64(r.IntN(3)))
		list[i] = Endpoint{Key: mix(uint64(i + 1)), Weight: uint32(r.IntN(4)), Near: r.IntN(2) == 0, Meter: m}
	}
	return New(spec, list, nil)
}

// The next pick is among those that Prospect names, it is the one whose turn it is, and looking changes nothing: a twin
// that nobody looks at picks the same all along.
func TestProspect(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	turns := map[Kind]int{}
	for seed := range uint64(3000) {
		kind := Kind(seed % uint64(len(kinds)))
		watched := prospectSet(rand.New(rand.NewPCG(seed, 1)), kind, now)
		twin := prospectSet(rand.New(rand.NewPCG(seed, 1)), kind, now)
		r := rand.New(rand.NewPCG(seed, 2))
		for range 8 {
			h := Hint{Now: now, Rand: r.Uint64(), Hash: r.Uint64(), HasHash: r.IntN(2) == 0}
			look := h
			look.Rand = r.Uint64() // nobody knows the bits of the pick to come
			v := watched.Prospect(&look)
			i, why := watched.Pick(&h)
			j, _ := twin.Pick(&h)
			name := fmt.Sprintf("seed %d, %v", seed, kind)
			switch {
			case i != j:
				t.Fatalf("%s: looking changed the pick: %d, not %d", name, i, j)
			case (i < 0) != (len(v.Among) == 0):
				t.Fatalf("%s: among %v, picked %d", name, v.Among, i)
			case i < 0 && v.Why != why:
				t.Fatalf("%s: %v, said %v", name, why, v.Why)
			case i >= 0 && !slices.Contains(v.Among, i):
				t.Fatalf("%s: among %v, picked %d (%v)", name, v.Among, i, why)
			case v.Next >= 0 && v.Next != i:
				t.Fatalf("%s: next is %d, picked %d", name, v.Next, i)
			}
			if v.Next >= 0 && len(v.Among) > 1 {
				turns[kind]++
			}
		}
	}
	for _, k := range []Kind{RoundRobin, WeightedRoundRobin, ConsistentHash} {
		if turns[k] < 500 {
			t.Errorf("%v: only %d turns were foretold", k, turns[k])
		}
	}
}
