package lease

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func ids(n int) []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprint("i", i))
	}
	return list
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name  string
		list  []string
		taken []Slot
		want  Decision
	}{
		{"the first of twenty", ids(20), nil, Decision{Take, 0, 2, 20, 0}},
		{"one that is out counts", ids(19), []Slot{{0, "x"}}, Decision{Take, 1, 2, 20, 1}},
		{"the lowest free place", ids(20), []Slot{{1, "i3"}}, Decision{Take, 0, 2, 20, 1}},
		{"all are taken", ids(18), []Slot{{0, "x"}, {1, "y"}}, Decision{Wait, 0, 2, 20, 2}},
		{"of few one", ids(3), nil, Decision{Take, 0, 1, 3, 0}},
		{"alone, and not listed", nil, nil, Decision{Take, 0, 1, 1, 0}},
		{"of few not two", ids(3), []Slot{{0, "i2"}}, Decision{Wait, 0, 1, 3, 1}},
		{"a place above the bound counts", ids(10), []Slot{{1, "i2"}}, Decision{Wait, 0, 1, 10, 1}},
		{"ours from before", ids(20), []Slot{{0, "y"}, {1, "i0"}}, Decision{Held, 1, 2, 21, 2}},
	} {
		if got := Decide(c.list, c.taken, "i0", 0.1); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
	for members, want := range map[int]int{1: 1, 9: 1, 10: 1, 19: 1, 20: 2, 99: 9, 100: 10} {
		if got := Size(0.1, members); got != want {
			t.Errorf("%d of %d", got, members)
		}
	}
}

// Whatever the order, and however old what each saw was: never more are out than a tenth of all, and all get their turn.
func TestNeverTooMany(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 1 + r.IntN(45)
		slots, done := map[int]string{}, map[string]bool{}
		see := func() (listed []string, taken []Slot) {
			out := map[string]bool{}
			for k, holder := range slots {
				taken, out[holder] = append(taken, Slot{k, holder}), true
			}
			for _, id := range ids(n) {
				if !out[id] {
					listed = append(listed, id)
				}
			}
			return listed, taken
		}
		for range 100_000 {
			if len(done) == n {
				break
			}
			listed, taken := see()
			if len(slots) > 0 && r.IntN(3) == 0 {
				for k, holder := range slots {
					done[holder] = true
					delete(slots, k)
					break
				}
			}
			me := fmt.Sprint("i", r.IntN(n))
			if done[me] {
				continue
			}
			if d := Decide(listed, taken, me, 0.1); d.Verdict == Take && slots[d.Slot] == "" { // the store's lock
				slots[d.Slot] = me
			}
			if len(slots) > Size(0.1, n) {
				t.Fatalf("seed %d: %v of %d are out", seed, slots, n)
			}
		}
		if len(done) < n {
			t.Fatalf("seed %d: %d of %d had their turn", seed, len(done), n)
		}
	}
}
