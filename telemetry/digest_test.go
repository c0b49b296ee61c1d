package telemetry

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// exact is the definition that Digest approximates.
func exact(sorted []time.Duration, q float64) time.Duration {
	i := max(int(math.Ceil(q*float64(len(sorted)))), 1)
	return sorted[i-1]
}

func checkQuantiles(t *testing.T, g *Digest, all []time.Duration) {
	t.Helper()
	slices.Sort(all)
	for _, q := range []float64{0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1} {
		want, got := exact(all, q), g.Quantile(q)
		if err := math.Abs(float64(got-want)) / float64(want); err > 0.016 {
			t.Errorf("quantile %v of %d: got %v, want %v: off by %.2f %%", q, len(all), got, want, err*100)
		}
	}
}

func TestDigestAgainstExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	shapes := map[string]func() float64{
		"log uniform": func() float64 { return 1e3 * math.Pow(6e8, rnd.Float64()) },
		"exponential": func() float64 { return 1e3 + rnd.ExpFloat64()*3e6 },
		"two humps": func() float64 {
			if rnd.IntN(100) == 0 {
				return 1e9 + rnd.Float64()*1e8
			}
			return 1e6 + rnd.Float64()*1e5
		},
		"constant": func() float64 { return 12_345_678 },
	}
	for name, shape := range shapes {
		for _, n := range []int{1, 2, 10, 1000, 50_000} {
			t.Run(name, func(t *testing.T) {
				var g Digest
				all := make([]time.Duration, n)
				for i := range all {
					all[i] = min(time.Duration(shape()), 10*time.Minute)
					g.Add(all[i])
				}
				checkQuantiles(t, &g, all)
			})
		}
	}
}

func TestDigestEdges(t *testing.T) {
	var g Digest
	if g.Quantile(0.5) != 0 || g.Count() != 0 {
		t.Error("an empty digest is not empty")
	}
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, time.Hour * 24, math.MaxInt64} {
		g.Add(d)
	}
	if g.Count() != 6 {
		t.Errorf("count %d", g.Count())
	}
	if got := g.Quantile(1); got < 10*time.Minute {
		t.Errorf("longest %v", got)
	}
	g.AddN(time.Second, math.MaxUint32)
	g.AddN(time.Second, 5)
	if got := g.Count(); got < math.MaxUint32 {
		t.Errorf("a full step wrapped around: %d", got)
	}
}

// every value lies in the step it is counted in, and that step's value is within the promised error.
func TestDigestSteps(t *testing.T) {
	for v := int64(1000); v <= int64(10*time.Minute); v += 1 + v/97 {
		part, step := bucket(v)
		if got := float64(middle(part, step)); math.Abs(got-float64(v))/float64(v) > 0.016 {
			t.Fatalf("%d is shown as %v", v, got)
		}
		if p, s := bucket(int64(middle(part, step))); p != part || s != step {
			t.Fatalf("the value of step %d.%d lies in %d.%d", part, step, p, s)
		}
	}
}

func same(a, b *Digest) bool {
	for i := range a.parts {
		for j := range steps {
			var x, y uint32
			if p := a.parts[i].Load(); p != nil {
				x = p[j].Load()
			}
			if p := b.parts[i].Load(); p != nil {
				y = p[j].Load()
			}
			if x != y {
				return false
			}
		}
	}
	return true
}

func TestDigestMergeIsAssociative(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		var d [3]Digest
		var all []time.Duration
		for i := range d {
			for range rnd.IntN(200) + 1 {
				v := time.Duration(1e3 * math.Pow(6e8, rnd.Float64()))
				d[i].Add(v)
				all = append(all, v)
			}
		}
		var left, right, bc Digest
		left.Merge(&d[0])
		left.Merge(&d[1])
		left.Merge(&d[2])
		bc.Merge(&d[2])
		bc.Merge(&d[1])
		right.Merge(&bc)
		right.Merge(&d[0])
		if !same(&left, &right) {
			t.Fatal("the order of merging matters")
		}
		checkQuantiles(t, &left, all)
	}
}

func FuzzDigest(f *testing.F) {
	f.Add(int64(1000), int64(5_000_000), int64(600_000_000_000))
	f.Add(int64(-1), int64(0), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, a, b, c int64) {
		var g, h Digest
		g.Add(time.Duration(a))
		h.Add(time.Duration(b))
		h.Add(time.Duration(c))
		g.Merge(&h)
		all := []int64{a, b, c}
		for i, v := range all {
			all[i] = min(max(v, 1<<lowBit), topNanos)
		}
		slices.Sort(all)
		for i, q := range []float64{0.3, 0.6, 1} {
			want := float64(all[i])
			if got := float64(g.Quantile(q)); math.Abs(got-want)/want > 0.035 {
				t.Errorf("quantile %v of %v: %v", q, all, got)
			}
		}
	})
}

func TestWindowTurns(t *testing.T) {
	var w window
	count := func(at int64) uint64 {
		var g Digest
		w.sum(at, &g)
		return g.Count()
	}
	add := func(at int64, n int) {
		for range n {
			w.add(at, time.Millisecond)
		}
	}
	add(100, 3)
	add(101, 5)
	add(100, 1) // late: counts in the open minute
	if got := count(101); got != 9 {
		t.Errorf("two minutes hold %d", got)
	}
	add(102, 7)
	if got := count(102); got != 13 {
		t.Errorf("after a turn: %d", got)
	}
	if got := count(103); got != 7 {
		t.Errorf("a minute without traffic: %d", got)
	}
	if got := count(105); got != 0 {
		t.Errorf("long after: %d", got)
	}
	add(42, 2) // the clock was set back
	if got := count(42); got != 2 {
		t.Errorf("after the clock went back: %d", got)
	}
}

func TestWindowConcurrent(t *testing.T) {
	var w window
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 20_000 {
				w.add(100+int64(i/10_000), time.Duration(i))
			}
		})
	}
	wg.Wait()
	var g Digest
	w.sum(101, &g)
	if got := g.Count(); got < 79_000 || got > 80_000 {
		t.Errorf("%d of 80000 counted", got)
	}
}

func TestDigestIsCompact(t *testing.T) {
	var l latency
	if n := unsafe.Sizeof(l); n > 700 {
		t.Errorf("latency takes %d bytes before the first exchange", n)
	}
	var g Digest
	if n := testing.AllocsPerRun(100, func() { g.Add(time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDigestAdd(b *testing.B) {
	var g Digest
	for b.Loop() {
		g.Add(1234567)
	}
}
