package balance

import (
	"cmp"
	"slices"
	"time"
)

// Pacing is how lb adaptive weighs (S-105, S-106): once an Interval the endpoints are ranked by the average time of
// their attempts since the last ranking, and the slowest of them weigh less. The weights are kept close to each other so
// that the others are not flooded. They multiply the endpoint's own weight. A zero field has the default written beside it.
type Pacing struct {
	SlowFraction float64       // 0 … 1; 0.2
	SlowWeight   uint32        // 3
	NormalWeight uint32        // 5
	Interval     time.Duration // 1 min
}

func (a Pacing) filled() Pacing {
	if a.SlowFraction <= 0 {
		a.SlowFraction = 0.2
	}
	if a.SlowWeight == 0 {
		a.SlowWeight = 3
	}
	if a.NormalWeight == 0 {
		a.NormalWeight = 5
	}
	if a.Interval <= 0 {
		a.Interval = time.Minute
	}
	return a
}

// slowest says how many of n endpoints weigh less: rounded down, but one from three endpoints on.
func (a Pacing) slowest(n int) int {
	k := int(a.SlowFraction * float64(n) * (1 + 1e-9)) // 0.2 × 5 is 1
	if k == 0 && n >= 3 {
		k = 1
	}
	return min(k, n)
}

// pace is which endpoints of a group are slow. The lock of the group's wheel guards it; positions are those in group.idx.
type pace struct {
	spec Pacing
	idx  []int32
	due  int64  // Unix nanoseconds of the next ranking; 0: nobody was picked yet
	base []work // what the meters said at the last ranking
	slow []bool
}

// work is what an endpoint has done: a reading of its meter.
type work struct{ calls, spent uint64 }

func newPace(spec Pacing, endpoints []Endpoint, idx []int32) *pace {
	t := &pace{spec: spec.filled(), idx: idx, base: make([]work, len(idx)), slow: make([]bool, len(idx))}
	for k, i := range idx {
		t.base[k] = endpoints[i].Meter.work()
	}
	return t
}

// adopt goes on with the ranking of prev: a change of the list neither forgets who is slow nor puts off the next ranking.
func (t *pace) adopt(endpoints []Endpoint, prev *pace, old []Endpoint) {
	t.due = prev.due
	if t.spec.Interval != prev.spec.Interval {
		t.due = 0
	}
	at := make(map[uint64]int, len(prev.idx))
	for k, i := range prev.idx {
		at[old[i].Key] = k
	}
	for k, i := range t.idx {
		p, ok := at[endpoints[i].Key]
		if !ok || old[prev.idx[p]].Meter != endpoints[i].Meter {
			continue
		}
		t.base[k], t.slow[k] = prev.base[p], prev.slow[p]
	}
}

// weights is what each endpoint of the group weighs.
func (t *pace) weights(endpoints []Endpoint) []uint32 {
	w := make([]uint32, len(t.idx))
	for k, i := range t.idx {
		w[k] = max(1, endpoints[i].Weight) * t.weight(k)
	}
	return w
}

func (t *pace) weight(k int) uint32 {
	if t.slow[k] {
		return t.spec.SlowWeight
	}
	return t.spec.NormalWeight
}

// late reports whether a ranking is due, and if so that the next one is an interval later.
func (t *pace) late(now int64) bool {
	switch {
	case t.due == 0:
		t.due = now + int64(t.spec.Interval)
		return false
	case now < t.due:
		return false
	}
	t.due = now + int64(t.spec.Interval)
	return true
}

// rank finds the slowest anew and reports whether they are others than before. An endpoint without attempts since the last
// ranking is normal, and so is one that is no slower than those who would be left.
func (t *pace) rank(endpoints []Endpoint) (changed bool) {
	type average struct {
		ns float64
		at int
	}
	found := make([]average, 0, len(t.idx))
	for k, i := range t.idx {
		is := endpoints[i].Meter.work()
		if n := is.calls - t.base[k].calls; n > 0 {
			found = append(found, average{float64(is.spent-t.base[k].spent) / float64(n), k})
		}
		t.base[k] = is
	}
	slices.SortFunc(found, func(a, b average) int {
		return cmp.Or(cmp.Compare(b.ns, a.ns), cmp.Compare(endpoints[t.idx[a.at]].Key, endpoints[t.idx[b.at]].Key))
	})
	k := t.spec.slowest(len(t.idx))
	if k >= len(found) {
		k = max(0, len(found)-1) // nobody to compare with
	}
	slow := make([]bool, len(t.idx))
	for _, a := range found[:k] {
		slow[a.at] = a.ns > found[k].ns
	}
	changed = !slices.Equal(slow, t.slow)
	t.slow = slow
	return changed
}

// rerank puts a new ranking into w: each endpoint moves to the class of its weight, and the turns go on where they are.
func (w *wheel) rerank(p *pick) {
	if !w.pace.rank(p.set.endpoints) {
		return
	}
	fresh := newWheel(w.pace.idx, w.pace.weights(p.set.endpoints), uint64(w.pace.due))
	fresh.adoptLocked(p.set.endpoints, w, p.set.endpoints)
	w.classes, w.sum = fresh.classes, fresh.sum
	w.count(p)
}

// Slow reports whether the endpoint at an index weighs less because lb adaptive found it slow.
func (s *Set) Slow(index int) bool {
	for _, g := range [...]*group{s.near, s.far, s.all} {
		if g == nil || g.wheel == nil || g.wheel.pace == nil {
			continue
		}
		if at, ok := slices.BinarySearch(g.idx, int32(index)); ok {
			g.wheel.mu.Lock()
			defer g.wheel.mu.Unlock()
			return g.wheel.pace.slow[at]
		}
	}
	return false
}
