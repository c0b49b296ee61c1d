// Package lease decides who of a service may be out for restart: of M instances at most floor(ratio × M) at a time, at least one
// (S-136). The places are numbered slots that a store locks for one holder each; the store's lock keeps two from one slot, and
// this package from a slot too many. It is pure: what the store says is an argument. Tests: a table, and a property over random
// orders of taking and giving back.
package lease

import (
	"fmt"
	"math"
)

// Slot is a place that is taken.
type Slot struct {
	Number int
	Holder string // the instance that is out
}

// Verdict says what to do.
type Verdict uint8

// The verdicts.
const (
	Wait Verdict = iota // all places are taken
	Take                // lock the slot; if somebody was faster, ask again
	Held                // we have one already
)

// Decision is a verdict with its reason.
type Decision struct {
	Verdict Verdict
	Slot    int // to take, or held
	Allowed int // places
	Members int // instances that are listed or out
	Out     int // places that are taken
}

// String is the reason, for people.
func (d Decision) String() string {
	return fmt.Sprintf("%d of %d instances are out, %d may be", d.Out, d.Members, d.Allowed)
}

// Size is how many of so many members may be out.
func Size(ratio float64, members int) int {
	const tiny = 1e-9 // of a product that should be whole
	return max(1, int(math.Floor(ratio*float64(members)+tiny)))
}

// Decide says whether me may go out. listed are the instances that the registry has: whoever is out is not, but counts all the same,
// else those that are out would make the places fewer.
func Decide(listed []string, taken []Slot, me string, ratio float64) Decision {
	members := map[string]bool{me: true}
	for _, id := range listed {
		members[id] = true
	}
	used := map[int]bool{}
	d := Decision{Out: len(taken)}
	for _, s := range taken {
		members[s.Holder] = true
		used[s.Number] = true
		if s.Holder == me {
			d.Verdict, d.Slot = Held, s.Number
		}
	}
	d.Members = len(members)
	d.Allowed = Size(ratio, d.Members)
	if d.Verdict == Held || d.Out >= d.Allowed {
		return d
	}
	for n := range d.Allowed {
		if !used[n] {
			d.Verdict, d.Slot = Take, n
			break
		}
	}
	return d
}
