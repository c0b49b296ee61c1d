package balance

import (
	"iter"
	"sync"
	"sync/atomic"
	"time"
)

// Set is the endpoints of one service, or of one group of it, and how to pick among them. Its table is immutable; what
// moves (positions of round robins, the census) is behind atomics or small locks, so any number of goroutines may Pick.
type Set struct {
	// Set by New, then read-only.
	spec      Spec
	endpoints []Endpoint
	all       *group // every endpoint with a weight
	near, far *group // the same apart; nil without a locality rule, or where one of them is empty
	idle      *group // endpoints of weight 0
	onlyFar   bool   // a locality rule, but nothing is near

	census census
	ring   lazyRing
}

// group is a part of a set that is picked from as a whole.
type group struct {
	idx    []int32       // ascending indexes into Set.endpoints
	cursor atomic.Uint64 // of round_robin: modulo len(idx), the position whose turn it is
	wheel  *wheel        // of weighted_round_robin
	weight uint64        // sum
}

// lazyRing is built by the first pick that needs it.
type lazyRing struct {
	once sync.Once
	ring atomic.Pointer[ring]
	prev *ring // to build on
}

// New builds a set. What must survive a change of the list is taken over from prev, which may be nil. The endpoints are
// kept, not copied. The order of the list matters to round robins only.
func New(spec Spec, endpoints []Endpoint, prev *Set) *Set {
	s := &Set{spec: spec, endpoints: endpoints, all: &group{}, idle: &group{}}
	var near, far group
	if spec.PreferNear {
		n := 0
		for i := range endpoints {
			if endpoints[i].Near {
				n++
			}
		}
		near.idx, far.idx = make([]int32, 0, n), make([]int32, 0, len(endpoints)-n)
	}
	s.all.idx = make([]int32, 0, len(endpoints))
	for i := range endpoints {
		e := &endpoints[i]
		if e.Weight == 0 {
			s.idle.add(i, e)
			continue
		}
		s.all.add(i, e)
		switch {
		case !spec.PreferNear:
		case e.Near:
			near.add(i, e)
		default:
			far.add(i, e)
		}
	}
	s.onlyFar = spec.PreferNear && len(near.idx) == 0
	if len(near.idx) > 0 && len(far.idx) > 0 {
		s.near, s.far = &near, &far
		s.census.take(s.countNear(0))
	}
	s.adopt(prev)
	return s
}

func (g *group) add(i int, e *Endpoint) {
	g.idx = append(g.idx, int32(i))
	g.weight += uint64(e.Weight)
}

// adopt gives each group its moving part: that of the same group of prev, or a new one.
func (s *Set) adopt(prev *Set) {
	if prev == nil {
		prev = &Set{}
	}
	pairs := [...]struct{ next, prev *group }{{s.all, prev.all}, {s.near, prev.near}, {s.far, prev.far}, {s.idle, prev.idle}}
	for i, p := range pairs {
		if p.next == nil {
			continue
		}
		if p.prev == nil {
			p.prev = &group{}
		}
		seed := mix(s.spec.Seed + uint64(i)*golden)
		switch s.spec.Kind {
		case RoundRobin:
			at := seed >> 32
			if n := len(p.prev.idx); n > 0 {
				old := int(p.prev.cursor.Load() % uint64(n))
				at = uint64(follow(prev.endpoints, p.prev.idx, old, s.endpoints, p.next.idx))
			}
			p.next.cursor.Store(at)
		case WeightedRoundRobin, Adaptive:
			p.next.wheel = s.wheelOf(p.next, p.prev.wheel, prev, seed)
		}
	}
	if s.spec.Kind == ConsistentHash {
		s.ring.prev = prev.ring.ring.Load()
	}
}

// wheelOf makes the wheel of a group; was is that of its namesake in prev, or nil.
func (s *Set) wheelOf(g *group, was *wheel, prev *Set, seed uint64) *wheel {
	var t *pace
	var weights []uint32
	if s.spec.Kind == Adaptive {
		t = newPace(s.spec.Adaptive, s.endpoints, g.idx)
		if was != nil && was.pace != nil {
			was.mu.Lock()
			t.adopt(s.endpoints, was.pace, prev.endpoints)
			was.mu.Unlock()
		}
		weights = t.weights(s.endpoints)
	} else {
		weights = make([]uint32, len(g.idx))
		for k, i := range g.idx {
			weights[k] = s.endpoints[i].Weight
		}
	}
	w := newWheel(g.idx, weights, seed)
	w.pace = t
	if was != nil {
		w.adopt(s.endpoints, was, prev.endpoints)
	}
	return w
}

// follow finds where the turn is after a list has changed: the position in idx of the endpoint at position at of
// oldIdx, or of one behind it if that is gone. So a change neither floods the first endpoint nor skips any (S-100).
func follow(old []Endpoint, oldIdx []int32, at int, endpoints []Endpoint, idx []int32) int {
	if len(idx) == 0 {
		return 0
	}
	const tries = 16
	for k := range min(tries, len(oldIdx)) {
		key := old[oldIdx[(at+k)%len(oldIdx)]].Key
		if at < len(idx) && endpoints[idx[at]].Key == key {
			return at
		}
		for n, i := range idx {
			if endpoints[i].Key == key {
				return n
			}
		}
	}
	return at % len(idx)
}

// Len returns the number of endpoints.
func (s *Set) Len() int { return len(s.endpoints) }

// Spec returns what the set was built with.
func (s *Set) Spec() Spec { return s.spec }

// Endpoint returns the endpoint at an index, 0 … Len-1.
func (s *Set) Endpoint(index int) *Endpoint { return &s.endpoints[index] }

// All iterates over the endpoints by index.
func (s *Set) All() iter.Seq2[int, *Endpoint] {
	return func(yield func(int, *Endpoint) bool) {
		for i := range s.endpoints {
			if !yield(i, &s.endpoints[i]) {
				return
			}
		}
	}
}

// Usable counts the usable endpoints, whatever their weight.
func (s *Set) Usable() int {
	n := 0
	for i := range s.endpoints {
		if s.endpoints[i].Meter.State.Load() == 0 {
			n++
		}
	}
	return n
}

// Untried tells whether a usable endpoint that would get traffic is not among tried.
func (s *Set) Untried(tried []int) bool {
	for _, g := range [...]*group{s.all, s.idle} {
		some := false
		for _, i := range g.idx {
			if s.endpoints[i].Meter.State.Load() == 0 {
				some = true
				if !contains(tried, int(i)) {
					return true
				}
			}
		}
		if some { // weight 0 counts only where nothing else is left
			return false
		}
	}
	return false
}

// Share is the part of its full traffic that an endpoint gets because of slow start: 0.1 … 1.
func (s *Set) Share(index int, now time.Time) float64 {
	return s.warmth(&s.endpoints[index], now.UnixNano())
}

// warmth is Share for a time in Unix nanoseconds.
func (s *Set) warmth(e *Endpoint, now int64) float64 {
	if s.spec.Warmup <= 0 {
		return 1
	}
	since := e.Meter.Since.Load()
	if since == 0 {
		return 1
	}
	age := now - since
	switch {
	case age >= int64(s.spec.Warmup):
		return 1
	case age <= 0:
		return coldShare
	}
	return coldShare + (1-coldShare)*float64(age)/float64(s.spec.Warmup)
}

// coldShare is where slow start begins.
const coldShare = 0.1

func contains(list []int, i int) bool {
	for _, v := range list {
		if v == i {
			return true
		}
	}
	return false
}

const golden = 0x9e3779b97f4a7c15

// mix spreads 64 bits: a bijection (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
