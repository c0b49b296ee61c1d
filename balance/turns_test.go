package balance

import (
	"flag"
	"math/rand"
	"testing"
)

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// runs is how many sets of weights are tried; `make properties` says a million.
var runs = flag.Int("runs", 200, "generated sets of weights")

// TestWeightedCounts: exact counts in any Σ ÷ gcd picks in a row, and no long runs (S-101, X-7).
func TestWeightedCounts(t *testing.T) {
	r := rand.New(rand.NewSource(11))
	for round := range *runs {
		n, most := 1+r.Intn(12), 1+r.Intn(12)
		if round%10 == 0 {
			n, most = 40+r.Intn(30), 60 // more than 32 different weights
		}
		weights := make([]int, n)
		for i := range weights {
			weights[i] = 1 + r.Intn(most)
		}
		e := build(weights...)
		s := New(Spec{Kind: WeightedRoundRobin, Seed: r.Uint64()}, e, nil)
		p := newPicker(t, int64(round))
		for range r.Intn(50) { // from anywhere
			p.pick(s)
		}
		checkWeighted(t, p, s, weights)
		for i := range weights { // and with some ejected
			if len(weights) > 2 && r.Intn(4) == 0 {
				e[i].Meter.State.Store(StateEjected)
				weights[i] = 0
			}
		}
		if s.Usable() > 0 {
			for range 1000 { // settle
				p.pick(s)
			}
			checkWeighted(t, p, s, weights)
		}
	}
}

func checkWeighted(t *testing.T, p *picker, s *Set, weights []int) {
	t.Helper()
	sum, g := 0, 0
	for _, w := range weights {
		sum, g = sum+w, gcd(g, w)
	}
	for range 2 {
		got := make([]int, len(weights))
		last, run := -1, 0
		for range sum / g {
			i := p.pick(s)
			got[i]++
			if i == last {
				run++
			} else {
				last, run = i, 1
			}
			w := weights[i]
			bound := 1 << 30
			if sum > w {
				bound = (w+sum-w-1)/(sum-w) + 1
			}
			if len(weights) >= 40 { // by bits
				bound += 3
			}
			if run > bound {
				t.Fatalf("weights %v: endpoint %d of weight %d %d times in a row", weights, i, w, run)
			}
		}
		for i, w := range weights {
			if got[i] != w/g {
				t.Fatalf("weights %v: got %v", weights, got)
			}
		}
	}
}

func TestWeightedSequence(t *testing.T) {
	s := New(Spec{Kind: WeightedRoundRobin}, build(3, 2, 1), nil)
	seq := ""
	p := newPicker(t, 1)
	for range 12 {
		seq += string(rune('a' + p.pick(s)))
	}
	if seq != "abacbaabacba" {
		t.Errorf("3, 2, 1 gives %s", seq)
	}
}

// TestListChanges: positions survive changes of the list; nobody is flooded (S-100).
func TestListChanges(t *testing.T) {
	for _, kind := range []Kind{RoundRobin, WeightedRoundRobin} {
		p := newPicker(t, 12)
		e := build(1, 2, 3, 1, 2, 3, 1, 2, 3, 6)
		if kind == RoundRobin {
			e = alike(10)
		}
		got := map[*Meter]int{}
		var s *Set
		for range 600 { // the list changes often
			list := append([]Endpoint(nil), e...)
			if p.rnd.Intn(2) == 0 {
				list = append(list[:4], list[5:]...)
			}
			s = New(Spec{Kind: kind, Seed: 5}, list, s)
			for range 20 {
				got[list[p.pick(s)].Meter]++
			}
		}
		sum := 0
		for i := range e {
			sum += int(e[i].Weight)
		}
		for i := range e {
			want := 12_000 * int(e[i].Weight) / sum
			if n := got[e[i].Meter]; n < want/2 || n > want*3/2 {
				t.Errorf("%v: endpoint %d got %d, want about %d", kind, i, n, want)
			}
		}
	}
}

// TestStart: sidecars do not all begin at the same endpoint (S-100).
func TestStart(t *testing.T) {
	for _, kind := range []Kind{RoundRobin, WeightedRoundRobin} {
		first := make([]int, 10)
		for seed := range 2000 {
			s := New(Spec{Kind: kind, Seed: mix(uint64(seed))}, build(1, 1, 1, 1, 1, 2, 2, 2, 2, 2), nil)
			first[newPicker(t, 1).pick(s)]++
		}
		for i, n := range first {
			if n < 60 {
				t.Errorf("%v: only %d of 2000 begin at %d: %v", kind, n, i, first)
			}
		}
	}
}

func TestRoundRobinOrder(t *testing.T) {
	e := alike(5)
	s := New(Spec{}, e, nil)
	p := newPicker(t, 1)
	e[2].Meter.State.Store(StateEjected)
	last := p.pick(s)
	for range 20 {
		want := (last + 1) % 5
		if want == 2 {
			want = 3
		}
		if last = p.pick(s); last != want {
			t.Fatalf("got %d, want %d", last, want)
		}
	}
}

// TestRetryTakesNoTurn: of two endpoints one fails. Calls go on to begin at either in turn.
func TestRetryTakesNoTurn(t *testing.T) {
	for _, kind := range []Kind{RoundRobin, WeightedRoundRobin} {
		s := New(Spec{Kind: kind}, alike(2), nil)
		first := [2]int{}
		for n := range uint64(100) {
			h := Hint{Rand: mix(n)}
			i, _ := s.Pick(&h)
			first[i]++
			if h.Tried = []int{i}; i == 0 {
				if j, why := s.Pick(&h); j != 1 || why != Picked {
					t.Fatalf("%v: the retry goes to %d, %v", kind, j, why)
				}
			}
		}
		if first != [2]int{50, 50} {
			t.Errorf("%v: calls began %d times", kind, first)
		}
	}
}
