package balance

import "math/bits"

// pick is one pick under way.
type pick struct {
	set   *Set
	hint  *Hint
	mask  uint32 // state bits that forbid
	again bool   // tried endpoints may be taken
	now   int64  // Unix nanoseconds
	rand  uint64 // state of the generator
	key   uint64 // of consistent_hash
}

// Pick chooses an endpoint; index is -1 if there is none to choose. It does not allocate.
//
// The order of preference: usable and not tried; usable and tried (PickedAgain); usable of weight 0; and if nothing at
// all is usable, what the panic rule says. Under serve_all even that spares endpoints that are draining, unless all are:
// they said themselves that they will go.
func (s *Set) Pick(h *Hint) (index int, why Why) {
	if len(s.endpoints) == 0 {
		return -1, NoEndpoints
	}
	p := pick{set: s, hint: h, mask: ^uint32(0), rand: h.Rand, now: h.Now.UnixNano(), key: h.Hash}
	if !h.HasHash {
		p.key = h.Rand
	}
	if i, why := p.level(); i >= 0 {
		return i, why
	}
	if s.spec.Panic == FailFast {
		return -1, NoneUsable
	}
	for _, p.mask = range [...]uint32{StateDraining, 0} {
		if i, _ := p.level(); i >= 0 {
			return i, PickedPanic
		}
	}
	return -1, NoneUsable
}

// level picks among the endpoints that the mask lets through.
func (p *pick) level() (int, Why) {
	s := p.set
	p.again = false
	if i, why := p.local(); i >= 0 {
		return i, why
	}
	if len(p.hint.Tried) > 0 {
		p.again = true
		if i, _ := p.local(); i >= 0 {
			return i, PickedAgain
		}
		p.again = false
	}
	if len(s.idle.idx) == 0 {
		return -1, NoneUsable
	}
	if i := p.from(s.idle); i >= 0 {
		return i, Picked
	}
	p.again = true
	return p.from(s.idle), PickedAgain
}

// local applies the locality rule: while the usable share of near weight is at least SpillBelow, near endpoints take
// everything. Below it they take share/SpillBelow of the traffic and the far ones the rest, so that what is left of the
// near side is asked no more per endpoint than at the threshold. Where a side has nothing to offer, the other serves.
func (p *pick) local() (int, Why) {
	s := p.set
	if s.near == nil {
		i := p.from(s.all)
		if s.onlyFar {
			return i, PickedFar
		}
		return i, Picked
	}
	if p.nearFirst() {
		if i := p.from(s.near); i >= 0 {
			return i, Picked
		}
		return p.from(s.far), PickedFar
	}
	if i := p.from(s.far); i >= 0 {
		return i, PickedFar
	}
	return p.from(s.near), Picked
}

// nearFirst draws which side of the locality rule this pick asks first.
func (p *pick) nearFirst() bool {
	if p.mask != ^uint32(0) { // panic: as if all were usable
		return true
	}
	spec := &p.set.spec
	share := p.set.nearShare(p.now)
	if share >= spec.SpillBelow {
		return true
	}
	draw := mix(p.key ^ golden) // a key keeps its side
	if spec.Kind != ConsistentHash {
		draw = p.next()
	}
	return unit(draw)*spec.SpillBelow < share
}

// from picks from one group, -1 if nothing there is eligible.
func (p *pick) from(g *group) int {
	if len(g.idx) == 0 {
		return -1
	}
	// A retry takes no turn: of two endpoints, the next call would begin where this one failed.
	retry := len(p.hint.Tried) > 0
	switch p.set.spec.Kind {
	case Random:
		return p.random(g)
	case WeightedRoundRobin, Adaptive:
		if retry {
			return p.weighted(g)
		}
		return p.wheel(g)
	case LeastActive:
		return p.least(g)
	case ConsistentHash:
		return p.hashed(g)
	case PeakEWMA:
		return p.fastest(g)
	}
	if retry {
		return p.random(g)
	}
	return p.roundRobin(g)
}

// eligible tells whether an endpoint may be picked at all.
func (p *pick) eligible(i int32) bool {
	if p.set.endpoints[i].Meter.barred(p.mask, p.now) {
		return false
	}
	return p.again || len(p.hint.Tried) == 0 || !contains(p.hint.Tried, int(i))
}

// cold tells whether an eligible endpoint sits this pick out because it is warming up. The answer is the same however
// often one pick asks; consistent_hash asks by its key, so that keys move to a new endpoint bit by bit and stay.
func (p *pick) cold(i int32) bool {
	if p.set.spec.Warmup <= 0 {
		return false
	}
	e := &p.set.endpoints[i]
	f := p.set.warmth(e, p.now)
	if f == 1 {
		return false
	}
	bits := p.hint.Rand
	if p.set.spec.Kind == ConsistentHash {
		bits = p.key
	}
	return unit(mix(mix(bits+golden)^e.Key)) >= f
}

// next draws 64 random bits from the hint's.
func (p *pick) next() uint64 {
	p.rand += golden
	return mix(p.rand)
}

// below draws a number from 0 … n-1.
func (p *pick) below(n int) int {
	hi, _ := bits.Mul64(p.next(), uint64(n))
	return int(hi)
}

// unit maps 64 bits to 0 … 1, 1 excluded.
func unit(x uint64) float64 { return float64(x>>11) / (1 << 53) }

// attempts bounds how often a sample is drawn again before the group is scanned instead.
const attempts = 24

// random draws until it hits an eligible endpoint: all of those are equally likely, neighbours of an ejected one too.
func (p *pick) random(g *group) int {
	for range attempts {
		if i := g.idx[p.below(len(g.idx))]; p.eligible(i) && !p.cold(i) {
			return int(i)
		}
	}
	return p.scan(g)
}

// scan draws one of the eligible endpoints by counting them; slow, for groups that are mostly gone.
func (p *pick) scan(g *group) int {
	found, waiting, n, cold := -1, -1, 0, 0
	for _, i := range g.idx {
		switch {
		case !p.eligible(i):
		case p.cold(i):
			if cold++; p.below(cold) == 0 {
				waiting = int(i)
			}
		default:
			if n++; p.below(n) == 0 {
				found = int(i)
			}
		}
	}
	if found < 0 {
		return waiting
	}
	return found
}

// weighted draws one of the eligible endpoints in proportion to its weight.
func (p *pick) weighted(g *group) int {
	found, waiting := -1, -1
	sum, cold := 0, 0
	for _, i := range g.idx {
		if !p.eligible(i) {
			continue
		}
		weight := int(max(1, p.set.endpoints[i].Weight))
		if p.cold(i) {
			if cold += weight; p.below(cold) < weight {
				waiting = int(i)
			}
		} else if sum += weight; p.below(sum) < weight {
			found = int(i)
		}
	}
	if found < 0 {
		return waiting
	}
	return found
}

// roundRobin takes the next eligible endpoint and moves the position behind it in one step: those who are left keep
// sharing evenly, the neighbour of an ejected endpoint does not inherit its turns.
func (p *pick) roundRobin(g *group) int {
	n := uint64(len(g.idx))
	for {
		at := g.cursor.Load()
		waiting := -1 // the first that only slow start holds back
		var waitingAt uint64
		found := -1
		pos := at % n
		end := at + n
		to := at
		for ; to != end; to++ {
			i := g.idx[pos]
			if pos++; pos == n {
				pos = 0
			}
			if !p.eligible(i) {
				continue
			}
			if !p.cold(i) {
				found = int(i)
				break
			}
			if waiting < 0 {
				waiting, waitingAt = int(i), to
			}
		}
		if found < 0 {
			found, to = waiting, waitingAt
		}
		if found < 0 || g.cursor.CompareAndSwap(at, to+1) {
			return found
		}
	}
}
