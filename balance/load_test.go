package balance

import (
	"math/rand"
	"testing"
	"time"
)

func TestLeastActive(t *testing.T) {
	p := newPicker(t, 21)
	e := alike(5)
	s := New(Spec{Kind: LeastActive}, e, nil)
	for i := range e {
		e[i].Meter.Active.Store(int64(3 - i%3))
	}
	if i := p.pick(s); i != 2 {
		t.Errorf("picked %d", i)
	}
	if i := p.pick(s, 2); i != 1 && i != 4 {
		t.Errorf("picked %d", i)
	}
	// By weight: 6 in flight at weight 3 is less than 3 at weight 1.
	e = build(1, 3)
	e[0].Meter.Active.Store(3)
	e[1].Meter.Active.Store(6)
	if i := p.pick(New(Spec{Kind: LeastActive}, e, nil)); i != 1 {
		t.Errorf("picked %d", i)
	}
	// A slow endpoint of many gets little.
	e = alike(50)
	s = New(Spec{Kind: LeastActive}, e, nil)
	e[7].Meter.Active.Store(1000)
	if got := p.counts(s, 10_000)[7]; got > 10 {
		t.Errorf("the busy one got %d", got)
	}
}

// simulate runs picks in a closed loop: each endpoint answers after its own time; returns picks per endpoint.
func simulate(t *testing.T, s *Set, speed func(i int) time.Duration, fail func(i int) bool) []int {
	type call struct {
		i    int
		done time.Time
	}
	var calls []call
	p := newPicker(t, 22)
	got := make([]int, s.Len())
	for n := range 40_000 {
		p.now = p.now.Add(200 * time.Microsecond)
		rest := calls[:0]
		for _, c := range calls {
			if c.done.After(p.now) {
				rest = append(rest, c)
				continue
			}
			m := s.Endpoint(c.i).Meter
			m.Active.Add(-1)
			if fail(c.i) {
				m.ObserveFailure(p.now, speed(c.i), time.Second)
			} else {
				m.Observe(p.now, speed(c.i))
			}
		}
		i := p.pick(s)
		s.Endpoint(i).Meter.Active.Add(1)
		calls = append(rest, call{i, p.now.Add(speed(i))})
		if n > 10_000 {
			got[i]++
		}
	}
	return got
}

func TestPeakEWMA(t *testing.T) {
	s := New(Spec{Kind: PeakEWMA}, alike(10), nil)
	got := simulate(t, s, func(i int) time.Duration {
		if i < 2 {
			return 50 * time.Millisecond
		}
		return 5 * time.Millisecond
	}, func(int) bool { return false })
	if got[0] > 800 || got[1] > 800 || got[5] < 2500 {
		t.Errorf("slow ones are preferred: %v", got)
	}
	s = New(Spec{Kind: PeakEWMA}, alike(10), nil)
	got = simulate(t, s, func(i int) time.Duration {
		if i == 3 {
			return 100 * time.Microsecond
		}
		return 5 * time.Millisecond
	}, func(i int) bool { return i == 3 })
	if got[3] > 800 {
		t.Errorf("the fast failing one is preferred: %v", got)
	}
}

func TestObserve(t *testing.T) {
	m := &Meter{}
	if m.Latency() != 0 {
		t.Error("a latency without samples")
	}
	m.Observe(epoch, 10*time.Millisecond)
	m.Observe(epoch.Add(time.Second), 100*time.Millisecond)
	if m.Latency() != 100*time.Millisecond {
		t.Errorf("a peak counts at once: %v", m.Latency())
	}
	m.Observe(epoch.Add(11*time.Second), 10*time.Millisecond)
	if l := m.Latency(); l < 40*time.Millisecond || l > 50*time.Millisecond {
		t.Errorf("after one decay time: %v", l)
	}
	m.ObserveFailure(epoch.Add(12*time.Second), time.Millisecond, time.Second)
	if l := m.Latency(); l < 80*time.Millisecond {
		t.Errorf("a failure looks fast: %v", l)
	}
	for range 100 {
		m.ObserveFailure(epoch.Add(13*time.Second), time.Millisecond, time.Second)
	}
	if l := m.Latency(); l != maxPenalty {
		t.Errorf("failures make it %v", l)
	}
	n := &Meter{}
	n.ObserveFailure(epoch, time.Millisecond, time.Second)
	if n.Latency() != failurePenalty {
		t.Errorf("a first failure makes it %v", n.Latency())
	}
	n.Observe(epoch.Add(-time.Hour), -5)
	if n.Latency() < 0 {
		t.Error("negative")
	}
}

func owners(s *Set, keys []uint64) []uint64 {
	out := make([]uint64, len(keys))
	for i, k := range keys {
		n, _ := s.Pick(&Hint{Now: epoch, Hash: k, HasHash: true})
		out[i] = s.Endpoint(n).Key
	}
	return out
}

func TestConsistentHash(t *testing.T) {
	r := rand.New(rand.NewSource(31))
	keys := make([]uint64, 20_000)
	for i := range keys {
		keys[i] = uint64(i) // poor on purpose
	}
	for _, n := range []int{3, 10, 200} {
		e := alike(n)
		s := New(Spec{Kind: ConsistentHash}, e, nil)
		before := owners(s, keys)

		shuffled := append([]Endpoint(nil), e...)
		r.Shuffle(n, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if moved(before, owners(New(Spec{Kind: ConsistentHash}, shuffled, nil), keys)) != 0 {
			t.Errorf("%d: the order of the list matters", n)
		}

		e[1].Meter.State.Store(StateEjected)
		without := owners(s, keys)
		onlyFrom(t, before, without, e[1].Key, n)
		e[1].Meter.State.Store(0)
		if moved(before, owners(s, keys)) != 0 {
			t.Errorf("%d: keys did not come back", n)
		}

		removed := New(Spec{Kind: ConsistentHash}, append(append([]Endpoint(nil), e[:1]...), e[2:]...), s)
		after := owners(removed, keys)
		if moved(without, after) != 0 {
			t.Errorf("%d: removing is not like ejecting", n)
		}
		back := New(Spec{Kind: ConsistentHash}, e, removed)
		if moved(before, owners(back, keys)) != 0 {
			t.Errorf("%d: a ring built on another differs", n)
		}
	}
}

func moved(a, b []uint64) int {
	n := 0
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

func onlyFrom(t *testing.T, before, after []uint64, lost uint64, n int) {
	t.Helper()
	for i := range before {
		if before[i] != after[i] && before[i] != lost {
			t.Fatalf("%d: the key of another endpoint moved", n)
		}
	}
	if m := moved(before, after); m > 2*len(before)/n || m < len(before)/n/3 {
		t.Errorf("%d: %d of %d keys moved", n, m, len(before))
	}
}

func TestHashWeights(t *testing.T) {
	s := New(Spec{Kind: ConsistentHash}, build(100, 100, 300), nil)
	got := newPicker(t, 5).counts(s, 50_000)
	if share := float64(got[2]) / 50_000; share < 0.5 || share > 0.7 {
		t.Errorf("weight 300 of 500 has %v", share)
	}
	// Many gone: still stable, still the same keys.
	e := alike(2000)
	s = New(Spec{Kind: ConsistentHash}, e, nil)
	for i := range e {
		if i%1000 != 5 {
			e[i].Meter.State.Store(StateUnhealthy)
		}
	}
	got = newPicker(t, 6).counts(s, 10_000)
	if got[5]+got[1005] != 10_000 || got[5] < 2000 || got[1005] < 2000 {
		t.Errorf("the two left have %d and %d", got[5], got[1005])
	}
}
