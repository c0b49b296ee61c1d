package guard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

// FuzzGuard plays hostile registries: each pair of bytes is an event. What must hold afterwards is in world.holds.
func FuzzGuard(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		story := make([]byte, 400)
		for i := range story {
			story[i] = byte(rnd.Uint32())
		}
		f.Add(byte(rnd.Uint32()), story)
	}
	f.Fuzz(func(t *testing.T, rules byte, story []byte) {
		w := world{t: t, now: begin, dead: map[string]bool{}, intent: map[string]bool{}}
		w.r = Rules{MaxRemoval: 0.2, Below: 0.5, MinKnown: 3, Hold: 30 * time.Second, Memory: 10 * time.Minute}
		w.r.Meant, w.r.Consumer = rules&1 != 0, rules&2 != 0
		if rules&4 != 0 {
			w.r.MaxRemoval = 0
		}
		if rules&8 != 0 {
			w.r.Below = 0
		}
		w.mortal = rules&16 != 0
		for len(story) >= 2 {
			w.event(story[0], story[1])
			story = story[2:]
			w.settle()
		}
	})
}

// world is what a guard sees in a test.
type world struct {
	t      *testing.T
	g      Guard
	r      Rules
	now    time.Time
	mortal bool               // endpoints die
	dead   map[string]bool    // do not answer checks
	intent map[string]bool    // left or in maintenance
	most   int                // longest list of passing ones
	list   []*config.Endpoint // last answer
	last   Decision
}

const population = 12

func name(i byte) string { return fmt.Sprintf("e%02d", i%population) }

func (w *world) event(what, arg byte) {
	switch what % 8 {
	case 0, 1, 2:
		w.answer(uint64(what)<<8 | uint64(arg))
	case 3:
		w.now = w.now.Add(time.Duration(arg) * 250 * time.Millisecond)
	case 4:
		w.g.Suspect(w.now, name(arg))
	case 5:
		if w.mortal {
			w.dead[name(arg)] = !w.dead[name(arg)]
		}
	case 6:
		if arg < 40 {
			w.g.Left(w.now, name(arg))
			w.intent[name(arg)] = true
		}
	case 7:
		if arg < 20 {
			w.now = w.now.Add(time.Hour)
		}
	}
}

func (w *world) answer(seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	w.list = nil
	share := rnd.Float64()
	for i := range byte(population) {
		if rnd.Float64() >= share {
			continue
		}
		l := &config.Endpoint{Address: name(i)}
		switch n := rnd.IntN(20); {
		case n < 6:
			l.Health = config.HealthCritical
		case n == 6:
			l.Health = config.HealthWarning
		case n == 7 && rnd.IntN(4) == 0:
			l.Health = config.HealthMaintenance
			w.intent[name(i)] = true
		}
		w.list = append(w.list, l)
	}
	w.g.Answer(w.now, w.list)
}

// settle lets the checks that are asked for end, and looks at what was decided.
func (w *world) settle() {
	for range 3 {
		w.last = w.g.Decide(w.now, w.r)
		w.holds()
		for _, e := range w.last.Due {
			problem := ""
			if w.dead[e.Address] {
				problem = "refused"
			}
			w.g.Checked(w.now, e.Address, problem)
		}
		if len(w.last.Due) == 0 {
			break
		}
		w.now = w.now.Add(time.Millisecond)
	}
	if len(w.last.Due) > 0 {
		w.t.Fatal("checks are asked for without end")
	}
}

func (w *world) holds() {
	d := &w.last
	byAddress := func(a, b *config.Endpoint) int { return strings.Compare(a.Address, b.Address) }
	if !slices.IsSortedFunc(d.Use, byAddress) {
		w.t.Fatal("not in order")
	}
	used := map[string]bool{}
	for _, e := range d.Use {
		if used[e.Address] {
			w.t.Fatalf("%s is used twice", e.Address)
		}
		used[e.Address] = true
	}
	listed := map[string]config.Health{}
	passing := 0
	for _, l := range w.list {
		listed[l.Address] = l.Health
		if l.Health.Fit() {
			passing++
		}
	}
	noted, unhealthy := map[string]Why{}, 0
	for _, n := range d.Notes {
		a := n.Endpoint.Address
		noted[a] = n.Why
		_, isListed := listed[a]
		switch {
		case n.Used != used[a]:
			w.t.Fatalf("%s: the note says used=%t", a, n.Used)
		case n.Why == OutOfOrder && n.Used:
			w.t.Fatalf("%s is used although it goes", a)
		case n.Used && n.Check == Dead && n.Why != Unreachable:
			w.t.Fatalf("%s is used although it is dead", a)
		case n.Why == Unhealthy && isListed:
			unhealthy++
		}
	}
	for a := range used {
		if h, ok := listed[a]; noted[a] == InList && (!ok || h == config.HealthMaintenance || h == config.HealthCritical && !w.r.Consumer) {
			w.t.Fatalf("%s is used without a reason", a)
		}
	}
	// Whoever is listed and well is used, unless checks fail or it said that it goes.
	for a, h := range listed {
		if h <= config.HealthWarning && !used[a] && noted[a] != Unreachable && noted[a] != OutOfOrder {
			w.t.Fatalf("%s is well and not used: %v", a, noted[a])
		}
	}
	if !d.Next.IsZero() && d.Next.Before(w.now) {
		w.t.Fatal("the next decision was due before")
	}
	w.lasts(passing)
}

// lasts looks at the promise of it all: as long as endpoints live and nobody says that they go, a list of enough of them
// never becomes nothing.
func (w *world) lasts(passing int) {
	if w.mortal || len(w.intent) > 0 || w.r.MaxRemoval == 0 || w.r.Below == 0 || w.r.Consumer {
		return
	}
	w.most = max(w.most, passing)
	if w.most >= w.r.MinKnown && len(w.last.Use) == 0 {
		w.t.Fatalf("nothing is used; %s, %d listed, %d known", w.last.Mode, w.last.Listed, w.last.Known)
	}
}

// TestMemoryIsBounded: a registry that names others with every answer does not fill the memory.
func TestMemoryIsBounded(t *testing.T) {
	var g Guard
	r := Rules{MaxRemoval: 0.2, Below: 0.5, MinKnown: 3, Hold: 30 * time.Second, Memory: 10 * time.Minute}
	for i := range 200 {
		var list []*config.Endpoint
		for k := range 100 {
			list = append(list, &config.Endpoint{Address: fmt.Sprintf("%03d-%03d", i, k)})
		}
		now := begin.Add(time.Duration(i) * time.Millisecond)
		g.Answer(now, list)
		if d := g.Decide(now, r); d.Mode != Believed || len(d.Use) != 100 {
			t.Fatalf("%s, %d used", d.Mode, len(d.Use))
		}
	}
	if n := len(g.entries); n > leastRemembered+100 {
		t.Errorf("%d endpoints are remembered", n)
	}
}

func BenchmarkAnswer(b *testing.B) {
	var g Guard
	r := Rules{MaxRemoval: 0.2, Below: 0.5, MinKnown: 3, Hold: 30 * time.Second, Memory: 10 * time.Minute}
	var list []*config.Endpoint
	for i := range 10_000 {
		list = append(list, &config.Endpoint{Address: fmt.Sprintf("10.0.%05d", i)})
	}
	b.ReportAllocs()
	for b.Loop() {
		g.Answer(begin, list)
		g.Decide(begin, r)
	}
}
