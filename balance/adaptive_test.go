package balance

import (
	"slices"
	"testing"
	"time"
)

// paced is a set of equal endpoints whose speeds a script sets; each pick is answered at once.
type paced struct {
	*picker
	set   *Set
	e     []Endpoint
	speed map[*Meter]time.Duration
}

func newPaced(t *testing.T, n int) *paced {
	p := &paced{picker: newPicker(t, 31), e: alike(n), speed: map[*Meter]time.Duration{}}
	for i := range p.e {
		p.speed[p.e[i].Meter] = 10 * time.Millisecond
	}
	p.set = New(Spec{Kind: Adaptive, Seed: 3}, p.e, nil)
	return p
}

// run makes calls for a time, one every step, and returns who got how many.
func (p *paced) run(d, step time.Duration) []int {
	got := make([]int, p.set.Len())
	for end := p.now.Add(d); p.now.Before(end); p.now = p.now.Add(step) {
		i := p.pick(p.set)
		got[i]++
		m := p.set.Endpoint(i).Meter
		m.Observe(p.now, p.speed[m])
	}
	return got
}

func (p *paced) slow() []int {
	var list []int
	for i := range p.set.Len() {
		if p.set.Slow(i) {
			list = append(list, i)
		}
	}
	return list
}

// TestAdaptiveShares: of ten nodes the slowest two get 3/46 of the calls each, the others 5/46 (S-105), from the second
// minute on (S-106), exactly.
func TestAdaptiveShares(t *testing.T) {
	p := newPaced(t, 10)
	p.speed[p.e[2].Meter], p.speed[p.e[7].Meter] = 30*time.Millisecond, 11*time.Millisecond
	for i, n := range p.run(time.Minute, 100*time.Millisecond) {
		if n != 60 {
			t.Errorf("in the first minute endpoint %d got %d of 600", i, n)
		}
	}
	for lap := range 13 {
		for i, n := range p.run(4600*time.Millisecond, 100*time.Millisecond) {
			want := 5
			if i == 2 || i == 7 {
				want = 3
			}
			if n != want {
				t.Errorf("lap %d of 46: endpoint %d got %d, want %d", lap, i, n, want)
			}
		}
	}
	// Who was slow and is no more is normal after the next minute.
	p.speed[p.e[2].Meter], p.speed[p.e[4].Meter] = 10*time.Millisecond, 30*time.Millisecond
	p.run(2*time.Minute, 100*time.Millisecond)
	if got := p.slow(); !slices.Equal(got, []int{4, 7}) {
		t.Errorf("slow: %v", got)
	}
}

// TestAdaptiveRounding: X-8.
func TestAdaptiveRounding(t *testing.T) {
	for n, want := range []int{0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3} {
		if got := (Pacing{}).filled().slowest(n); got != want {
			t.Errorf("of %d endpoints %d are slow, want %d", n, got, want)
		}
	}
	if got := (Pacing{SlowFraction: 1}).filled().slowest(4); got != 4 {
		t.Errorf("100 %% of 4: %d", got)
	}
}

// TestAdaptiveRanking: what counts as slow.
func TestAdaptiveRanking(t *testing.T) {
	const ms = time.Millisecond
	for _, row := range []struct {
		name  string
		times []time.Duration // of one attempt at each endpoint; 0: none, negative: it failed after so long
		slow  []int
	}{
		{"one of five", []time.Duration{10 * ms, 10 * ms, 12 * ms, 10 * ms, 10 * ms}, []int{2}},
		{"all alike", []time.Duration{10 * ms, 10 * ms, 10 * ms, 10 * ms, 10 * ms}, nil},
		{"no samples is normal", []time.Duration{10 * ms, 0, 12 * ms, 0, 11 * ms}, []int{2}},
		{"nobody to compare with", []time.Duration{0, 0, 12 * ms, 0, 0}, nil},
		{"no samples at all", []time.Duration{0, 0, 0, 0, 0}, nil},
		{"failing fast counts as the time limit", []time.Duration{10 * ms, 300 * ms, -1 * ms, 10 * ms, 10 * ms}, []int{2}},
		{"two of ten", []time.Duration{9 * ms, 8 * ms, 7 * ms, 6 * ms, 5 * ms, 4 * ms, 3 * ms, 2 * ms, 1 * ms, 9 * ms}, []int{0, 9}},
		{"two endpoints are too few", []time.Duration{10 * ms, 100 * ms}, nil},
	} {
		e := alike(len(row.times))
		set := New(Spec{Kind: Adaptive}, e, nil)
		pace := set.all.wheel.pace
		for i, d := range row.times {
			switch {
			case d > 0:
				e[i].Meter.Observe(epoch, d)
			case d < 0:
				e[i].Meter.ObserveFailure(epoch, -d, time.Second)
			}
		}
		changed := pace.rank(e)
		var slow []int
		for i := range e {
			if set.Slow(i) {
				slow = append(slow, i)
			}
		}
		if !slices.Equal(slow, row.slow) || changed != (len(slow) > 0) {
			t.Errorf("%s: slow %v, want %v; changed %v", row.name, slow, row.slow, changed)
		}
		if pace.rank(e); pace.rank(e) {
			t.Errorf("%s: nothing happened, and the ranking changes", row.name)
		}
	}
	// However long the limit, a failure does not weigh more than a minute.
	m := &Meter{}
	m.ObserveFailure(epoch, time.Millisecond, 10*365*24*time.Hour)
	if got := m.work(); got != (work{1, uint64(time.Minute)}) {
		t.Errorf("%+v", got)
	}
}

// TestAdaptiveTurnsGoOn: a ranking resets nothing (S-106): in any lap, those across a ranking included, nobody gets more
// than two calls above or below its share.
func TestAdaptiveTurnsGoOn(t *testing.T) {
	p := newPaced(t, 10)
	var seq []int
	for minute := range 20 {
		for i := range p.e { // other ones are slow each minute
			p.speed[p.e[i].Meter] = 10 * time.Millisecond
		}
		p.speed[p.e[minute%10].Meter], p.speed[p.e[(minute*3+1)%10].Meter] = 20*time.Millisecond, 30*time.Millisecond
		for range 230 {
			i := p.pick(p.set)
			m := p.e[i].Meter
			m.Observe(p.now, p.speed[m])
			seq = append(seq, i)
			p.now = p.now.Add(time.Minute / 230)
		}
	}
	for at := 0; at+46 <= len(seq); at++ {
		var got [10]int
		for _, i := range seq[at : at+46] {
			got[i]++
		}
		for i, n := range got {
			if n < 3-2 || n > 5+2 {
				t.Fatalf("in the lap at %d endpoint %d got %d of 46: %v", at, i, n, seq[at:at+46])
			}
		}
	}
}

// TestAdaptiveUnderChurn: a list that changes every 5 s neither forgets who is slow nor puts off the ranking (S-106).
func TestAdaptiveUnderChurn(t *testing.T) {
	p := newPaced(t, 12)
	p.speed[p.e[1].Meter], p.speed[p.e[2].Meter] = 40*time.Millisecond, 50*time.Millisecond
	counts := map[*Meter]int{}
	for round := range 48 { // 4 min; the last two endpoints come and go
		list := p.e[:10+round%3]
		p.set = New(p.set.Spec(), list, p.set)
		for i, n := range p.run(5*time.Second, 10*time.Millisecond) {
			if round >= 12 {
				counts[list[i].Meter] += n
			}
		}
		if slow := p.slow(); round >= 12 && !slices.Equal(slow, []int{1, 2}) {
			t.Fatalf("after %v slow are %v", p.now.Sub(epoch), slow)
		}
	}
	for i := range p.e[:10] {
		got, want := counts[p.e[i].Meter], counts[p.e[0].Meter]
		if i == 1 || i == 2 {
			want = want * 3 / 5
		}
		if got < want*97/100 || got > want*103/100 {
			t.Errorf("endpoint %d got %d, want about %d", i, got, want)
		}
	}
}

// TestAdaptiveWeights: the endpoint's own weight counts, and weight 0 stays the last resort.
func TestAdaptiveWeights(t *testing.T) {
	p := newPaced(t, 4)
	p.e[1].Weight, p.e[3].Weight = 2, 0
	p.set = New(p.set.Spec(), p.e, nil)
	p.speed[p.e[2].Meter] = time.Second
	p.run(time.Minute, 50*time.Millisecond)
	if got := p.run(18*time.Second, time.Second); !slices.Equal(got, []int{5, 10, 3, 0}) {
		t.Errorf("got %v of 18", got)
	}
}
