package guard

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// TestGate: at any time the share has its turn, everyone has it within 1/share epochs, and the turns do not begin all at once.
func TestGate(t *testing.T) {
	const instances = 300
	for _, share := range []float64{0.1, 0.25, 0.3, 0.01, 0.999} {
		g := Gate{Closed: true, Share: share, Epoch: 30 * time.Second}
		had := make([]bool, instances)
		begins := map[time.Duration]bool{}
		rounds := int(math.Ceil(1 / share))
		for step := range 10 * rounds {
			now := begin.Add(time.Duration(step) * g.Epoch / 10)
			open := 0
			for i := range instances {
				name := fmt.Sprintf("shop-%d", i)
				turn, until := g.Turn(now, name)
				if turn {
					open++
					had[i] = true
				}
				if left := until.Sub(now); left <= 0 || left > time.Duration(rounds)*g.Epoch {
					t.Fatalf("%v: until %v", share, left)
				}
				if again, _ := g.Turn(until.Add(-1), name); again != turn {
					t.Fatalf("%v: the turn of %s is another before it ends", share, name)
				}
				if next, _ := g.Turn(until, name); !turn && !next {
					t.Fatalf("%v: %s waits in vain", share, name)
				}
				begins[until.Sub(begin)%g.Epoch] = true
			}
			if want := share * instances; math.Abs(float64(open)-want) > 4*math.Sqrt(want)+1 {
				t.Errorf("%v: %d of %d have their turn", share, open, instances)
			}
		}
		for i, ok := range had {
			if !ok {
				t.Errorf("%v: instance %d never had its turn", share, i)
			}
		}
		if len(begins) < instances/2 {
			t.Errorf("%v: turns begin at %d moments only", share, len(begins))
		}
	}
	for _, g := range []Gate{{}, {Closed: true}, {Closed: true, Share: 1, Epoch: time.Second}, {Share: 0.1, Epoch: time.Second}} {
		if open, until := g.Turn(begin, "x"); !open || !until.IsZero() {
			t.Errorf("%+v is not open", g)
		}
	}
}
