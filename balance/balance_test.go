package balance

import (
	"math"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"time"
)

var kinds = []Kind{RoundRobin, Random, WeightedRoundRobin, LeastActive, ConsistentHash, PeakEWMA, Adaptive}

var epoch = time.Unix(1_700_000_000, 0)

// build makes endpoints with these weights; all near.
func build(weights ...int) []Endpoint {
	out := make([]Endpoint, len(weights))
	for i, w := range weights {
		out[i] = Endpoint{Key: mix(uint64(i) + 1), Weight: uint32(w), Near: true, Meter: &Meter{}}
	}
	return out
}

func alike(n int) []Endpoint {
	w := make([]int, n)
	for i := range w {
		w[i] = 1
	}
	return build(w...)
}

// picker draws with fresh random bits.
type picker struct {
	t   *testing.T
	rnd *rand.Rand
	now time.Time
}

func newPicker(t *testing.T, seed int64) *picker {
	return &picker{t, rand.New(rand.NewSource(seed)), epoch}
}

func (p *picker) hint(tried ...int) *Hint {
	return &Hint{Now: p.now, Rand: p.rnd.Uint64(), Hash: p.rnd.Uint64(), HasHash: true, Tried: tried}
}

func (p *picker) pick(s *Set, tried ...int) int { // without t.Helper, which is slow
	i, why := s.Pick(p.hint(tried...))
	if !why.Chosen() || i < 0 {
		p.t.Fatalf("picked %d, %v", i, why)
	}
	return i
}

func (p *picker) counts(s *Set, n int) []int {
	out := make([]int, s.Len())
	for range n {
		out[p.pick(s)]++
	}
	return out
}

func TestEachKindIsFair(t *testing.T) {
	for _, kind := range kinds {
		for _, n := range []int{1, 2, 3, 10, 40} {
			s := New(Spec{Kind: kind, Seed: 7}, alike(n), nil)
			total := 2000 * n
			for i, c := range newPicker(t, 1).counts(s, total) {
				dev := math.Abs(float64(c)-2000) / 2000
				limit := 0.12
				switch kind {
				case ConsistentHash:
					limit = 0.4
				case RoundRobin, WeightedRoundRobin, Adaptive:
					limit = 0
				}
				if dev > limit {
					t.Errorf("%v of %d: endpoint %d got %d, want about 2000", kind, n, i, c)
				}
			}
		}
	}
}

func TestEjectedShareIsSpread(t *testing.T) {
	for _, kind := range kinds {
		for _, n := range []int{5, 200} {
			e := alike(n)
			s := New(Spec{Kind: kind}, e, nil)
			e[1].Meter.State.Store(StateEjected)
			e[2].Meter.State.Store(StateProbe)
			got := newPicker(t, 2).counts(s, (n-2)*1000)
			for i, c := range got {
				if i == 1 || i == 2 {
					if c != 0 {
						t.Errorf("%v of %d: unusable endpoint %d got %d", kind, n, i, c)
					}
					continue
				}
				if kind != ConsistentHash && math.Abs(float64(c)-1000) > 180 {
					t.Errorf("%v of %d: endpoint %d got %d, want about 1000", kind, n, i, c)
				}
			}
			if s.Usable() != n-2 || s.Len() != n {
				t.Errorf("usable %d of %d", s.Usable(), s.Len())
			}
		}
	}
}

func TestTriedIsAvoidedNotForbidden(t *testing.T) {
	for _, kind := range kinds {
		for _, n := range []int{2, 3, 9, 40} {
			p := newPicker(t, 3)
			e := alike(n)
			s := New(Spec{Kind: kind}, e, nil)
			for range 200 {
				h := p.hint()
				for range n {
					i, why := s.Pick(h)
					if why != Picked || slices.Contains(h.Tried, i) {
						t.Fatalf("%v of %d: picked %d %v, tried %v", kind, n, i, why, h.Tried)
					}
					h.Tried = append(h.Tried, i)
				}
				if s.Untried(h.Tried) || !s.Untried(h.Tried[1:]) {
					t.Fatalf("untried of %v", h.Tried)
				}
				if i, why := s.Pick(h); why != PickedAgain || i < 0 {
					t.Fatalf("%v of %d: picked %d %v when all were tried", kind, n, i, why)
				}
			}
		}
	}
}

func TestPanic(t *testing.T) {
	for _, kind := range kinds {
		p := newPicker(t, 4)
		e := alike(4)
		for i := range e {
			e[i].Meter.State.Store(StateEjected)
		}
		e[3].Meter.State.Store(StateDraining | StateEjected)
		s := New(Spec{Kind: kind}, e, nil)
		seen := make([]int, 4)
		for range 1000 {
			i, why := s.Pick(p.hint())
			if why != PickedPanic {
				t.Fatalf("%v: %v", kind, why)
			}
			seen[i]++
		}
		if seen[3] != 0 || min(seen[0], seen[1], seen[2]) < 100 {
			t.Errorf("%v: panic picks %v", kind, seen)
		}
		for i := range e {
			e[i].Meter.State.Store(StateDraining)
		}
		if _, why := s.Pick(p.hint()); why != PickedPanic {
			t.Errorf("%v: all draining: %v", kind, why)
		}
		if i, why := New(Spec{Kind: kind, Panic: FailFast}, e, s).Pick(p.hint()); i != -1 || why != NoneUsable {
			t.Errorf("%v: fail fast: %d %v", kind, i, why)
		}
		e[2].Meter.State.Store(0)
		if i, why := s.Pick(p.hint()); i != 2 || why != Picked {
			t.Errorf("%v: the only usable one: %d %v", kind, i, why)
		}
		if i, why := New(Spec{Kind: kind}, nil, s).Pick(p.hint()); i != -1 || why != NoEndpoints {
			t.Errorf("%v: empty: %d %v", kind, i, why)
		}
	}
}

func TestWeightZeroIsTheLastResort(t *testing.T) {
	for _, kind := range kinds {
		p := newPicker(t, 5)
		e := build(1, 0, 1, 0)
		s := New(Spec{Kind: kind}, e, nil)
		if got := p.counts(s, 1000); got[1]+got[3] != 0 {
			t.Errorf("%v: %v", kind, got)
		}
		if i, why := s.Pick(p.hint(0, 2)); why != PickedAgain || i%2 != 0 {
			t.Errorf("%v: tried comes before weight 0: %d %v", kind, i, why)
		}
		e[0].Meter.State.Store(StateEjected)
		e[2].Meter.State.Store(StateEjected)
		if got := p.counts(s, 1000); got[0]+got[2] != 0 || min(got[1], got[3]) < 300 {
			t.Errorf("%v: only weight 0 left: %v", kind, got)
		}
	}
}

// TestLocality: near endpoints take everything until too few of them are usable, then the rest goes further (S-128).
func TestLocality(t *testing.T) {
	for _, kind := range kinds {
		for _, n := range []int{20, 300} {
			p := newPicker(t, 6)
			e := alike(n)
			for i := n / 2; i < n; i++ {
				e[i].Near = false
			}
			s := New(Spec{Kind: kind, PreferNear: true, SpillBelow: 0.7}, e, nil)
			far := func() float64 {
				c := 0
				for range 6_000 {
					i, why := s.Pick(p.hint())
					if (why == PickedFar) != (i >= n/2) {
						t.Fatalf("%v: %d %v", kind, i, why)
					}
					if i >= n/2 {
						c++
					}
				}
				return float64(c) / 6_000
			}
			eject := func(k int) {
				for i := range n / 2 {
					e[i].Meter.State.Store(uint32(max(0, min(1, k-i))))
				}
				p.now = p.now.Add(time.Second)
			}
			for _, c := range []struct{ ejected, want float64 }{{0, 0}, {0.3, 0}, {0.5, 1 - 0.5/0.7}, {0.8, 1 - 0.2/0.7}, {1, 1}, {0, 0}} {
				eject(int(c.ejected * float64(n/2)))
				if got := far(); math.Abs(got-c.want) > 0.03 {
					t.Errorf("%v of %d: %v of near ejected: far share %.3f, want %.3f", kind, n, c.ejected, got, c.want)
				}
			}
			tried := make([]int, n/2)
			for i := range tried {
				tried[i] = i
			}
			if i, why := s.Pick(p.hint(tried...)); why != PickedFar || i < n/2 {
				t.Errorf("%v: all near tried: %d %v", kind, i, why)
			}
		}
	}
}

func TestSlowStart(t *testing.T) {
	for _, kind := range kinds {
		for _, n := range []int{4, 20} {
			e := alike(n)
			s := New(Spec{Kind: kind, Warmup: 10 * time.Second}, e, nil)
			p := newPicker(t, 8)
			full := float64(p.counts(s, 1_200*n)[1])
			e[1].Meter.Since.Store(epoch.UnixNano())
			for age, want := range map[time.Duration]float64{0: 0.1, 5 * time.Second: 0.55, 10 * time.Second: 1} {
				p.now = epoch.Add(age)
				got := float64(p.counts(s, 1_200*n)[1]) / full
				// The others take what is missing, so that the share of the sum is a little higher.
				want := want * float64(n) / (float64(n) - 1 + want)
				if math.Abs(got-want) > 0.15 {
					t.Errorf("%v of %d after %v: share %.3f, want %.3f", kind, n, age, got, want)
				}
			}
			for i := range e {
				e[i].Meter.Since.Store(p.now.UnixNano())
			}
			if got := p.counts(s, 1_200*n); kind != ConsistentHash && slices.Min(got) < 700 {
				t.Errorf("%v of %d: all cold: %v", kind, n, got)
			}
		}
	}
}

func TestPickDoesNotAllocate(t *testing.T) {
	for _, kind := range kinds {
		for _, n := range []int{3, 300} {
			e := alike(n)
			for i := range e {
				e[i].Near = i%2 == 0
				e[i].Weight = uint32(1 + i%40)
				e[i].Meter.Observe(epoch, time.Millisecond)
				e[i].Meter.Since.Store(epoch.UnixNano())
			}
			e[0].Meter.State.Store(StateEjected)
			s := New(Spec{Kind: kind, PreferNear: true, SpillBelow: 0.9, Warmup: time.Minute}, e, nil)
			h := &Hint{Now: epoch.Add(time.Second), HasHash: true, Tried: []int{1}}
			r := rand.New(rand.NewSource(1))
			s.Pick(h)
			if a := testing.AllocsPerRun(1000, func() {
				h.Rand, h.Hash, h.Now = r.Uint64(), r.Uint64(), h.Now.Add(time.Millisecond)
				s.Pick(h)
				s.Untried(h.Tried)
			}); a != 0 {
				t.Errorf("%v of %d: %v allocations", kind, n, a)
			}
		}
	}
}

func TestConcurrentPicks(t *testing.T) {
	for _, kind := range kinds {
		e := build(1, 2, 3, 4, 5, 1, 1, 0)
		e[5].Near = false
		s := New(Spec{Kind: kind, PreferNear: true, SpillBelow: 0.8, Warmup: time.Second, Adaptive: Pacing{Interval: 100}}, e, nil)
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				r := rand.New(rand.NewSource(int64(g)))
				for n := range 2000 {
					i, why := s.Pick(&Hint{Now: epoch.Add(time.Duration(n)), Rand: r.Uint64()})
					if !why.Chosen() {
						t.Errorf("%v", why)
						return
					}
					m := e[i].Meter
					m.Active.Add(1)
					m.Observe(epoch.Add(time.Duration(n)), time.Duration(r.Intn(1000)))
					m.State.Store(uint32(r.Intn(3) / 2))
					m.Active.Add(-1)
					if n%100 == 0 {
						New(s.Spec(), e, s).Pick(&Hint{Now: epoch, Rand: r.Uint64()})
					}
				}
			})
		}
		wg.Wait()
	}
}
