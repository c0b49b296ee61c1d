package balance

import (
	"cmp"
	"math/bits"
	"slices"
)

const (
	// pointsPerUnit spreads one unit of weight over the ring: shares then deviate by about 1/sqrt(128) = 9 %.
	pointsPerUnit = 128
	// walkLimit bounds the search for an eligible point behind a key.
	walkLimit = 256
	rankBits  = 24
	rankMask  = 1<<rankBits - 1
)

// ring is consistent hashing (S-103). It depends on the keys and weights of the endpoints alone, so that all sidecars
// agree whatever order their lists have. It is immutable.
type ring struct {
	members []member // by key
	points  []uint64 // ascending: 40 bits of position, 24 bits of rank in members
	starts  []uint32 // of each bucket of the points, by their highest bits; one more at the end
	shift   uint
}

// member is one endpoint on the ring.
type member struct {
	key    uint64
	index  int32 // in Set.endpoints
	points int32
}

// newRing builds a ring of the endpoints idx, on prev where that saves work.
func newRing(endpoints []Endpoint, idx []int32, prev *ring) *ring {
	r := &ring{members: make([]member, len(idx))}
	sum := uint64(0)
	for n, i := range idx {
		r.members[n] = member{key: endpoints[i].Key, index: i}
		sum += uint64(endpoints[i].Weight)
	}
	// The unit of weight is the power of two below the mean, so that one weight more or less does not move the points
	// of all the others.
	unit := uint64(1) << (bits.Len64(max(sum/uint64(max(len(idx), 1)), 1)) - 1)
	for n := range r.members {
		m := &r.members[n]
		m.points = int32(max(uint64(endpoints[m.index].Weight)*pointsPerUnit/unit, 1))
	}
	slices.SortFunc(r.members, func(a, b member) int { return cmp.Compare(a.key, b.key) })
	same, fresh := r.inherit(prev)
	if prev != nil && len(fresh) == 0 && len(same) == len(prev.points) {
		r.points, r.starts, r.shift = prev.points, prev.starts, prev.shift // nothing moved
		return r
	}
	r.points = merge(same, fresh)
	r.bucket()
	return r
}

// inherit takes the points of unchanged members over from prev, still sorted since ranks keep their order, and returns
// those of the others, sorted.
func (r *ring) inherit(prev *ring) (same, fresh []uint64) {
	var old []member
	if prev != nil {
		old = prev.members
	}
	ranks := make([]int32, len(old)) // rank in r by rank in prev, -1: gone
	for i := range ranks {
		ranks[i] = -1
	}
	o, kept, total := 0, 0, 0
	for n := range r.members {
		total += int(r.members[n].points)
	}
	if prev == nil {
		fresh = make([]uint64, 0, total)
	}
	for n := range r.members {
		m := &r.members[n]
		for o < len(old) && old[o].key < m.key {
			o++
		}
		if o < len(old) && old[o].key == m.key && old[o].points == m.points {
			ranks[o] = int32(n)
			kept += int(m.points)
			o++
			continue
		}
		for j := range m.points {
			fresh = append(fresh, mix(m.key+uint64(j+1)*golden)&^rankMask|uint64(n))
		}
	}
	if kept > 0 {
		same = make([]uint64, 0, kept)
		for _, p := range prev.points {
			if n := ranks[p&rankMask]; n >= 0 {
				same = append(same, p&^rankMask|uint64(n))
			}
		}
	}
	return same, sortSpread(fresh)
}

// merge joins two sorted lists.
func merge(a, b []uint64) []uint64 {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	out := make([]uint64, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0] <= b[0] {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// sortSpread returns evenly spread numbers sorted: into buckets by their highest bits, then each bucket.
func sortSpread(v []uint64) []uint64 {
	if len(v) < 64 {
		slices.Sort(v)
		return v
	}
	shift := uint(64 - bits.Len(uint(len(v))/4))
	ends := make([]uint32, 1<<(64-shift)+1)
	for _, x := range v {
		ends[x>>shift+1]++
	}
	for i := 1; i < len(ends); i++ {
		ends[i] += ends[i-1]
	}
	out := make([]uint64, len(v))
	for _, x := range v {
		out[ends[x>>shift]] = x
		ends[x>>shift]++
	}
	for i := 1; i < len(out); i++ { // what is left to do is near
		x, j := out[i], i
		for ; j > 0 && out[j-1] > x; j-- {
			out[j] = out[j-1]
		}
		out[j] = x
	}
	return out
}

// bucket indexes the points by their highest bits, two to four in each bucket.
func (r *ring) bucket() {
	r.shift = uint(64 - bits.Len(uint(len(r.points))/4))
	if r.shift == 64 {
		r.shift = 63
	}
	r.starts = make([]uint32, 1<<(64-r.shift)+1)
	b := uint64(0)
	for i, p := range r.points {
		for b <= p>>r.shift {
			r.starts[b] = uint32(i)
			b++
		}
	}
	for ; b < uint64(len(r.starts)); b++ {
		r.starts[b] = uint32(len(r.points))
	}
}

// from returns the position of the first point at or behind a key.
func (r *ring) from(key uint64) int {
	i := int(r.starts[key>>r.shift])
	for i < len(r.points) && r.points[i] < key {
		i++
	}
	if i == len(r.points) {
		return 0
	}
	return i
}

// ringOf returns the ring of the set, built by the first pick that needs it.
func (s *Set) ringOf() *ring {
	if r := s.ring.ring.Load(); r != nil {
		return r
	}
	s.ring.once.Do(func() {
		s.ring.ring.Store(newRing(s.endpoints, s.all.idx, s.ring.prev))
		s.ring.prev = nil
	})
	return s.ring.ring.Load()
}

// hashed picks by the key: the first eligible endpoint behind it on the ring. So the keys of an endpoint that is ejected
// move to its neighbours on the ring and come back with it, and nobody else's keys move.
func (p *pick) hashed(g *group) int {
	s := p.set
	if g == s.idle {
		return p.rendezvous(g)
	}
	r := s.ringOf()
	at := r.from(mix(p.key) &^ rankMask)
	for range min(walkLimit, len(r.points)) {
		i := r.members[r.points[at]&rankMask].index
		if s.side(g, i) && p.eligible(i) && !p.cold(i) {
			return int(i)
		}
		if at++; at == len(r.points) {
			at = 0
		}
	}
	return p.rendezvous(g)
}

// side tells whether an endpoint belongs to a group other than idle.
func (s *Set) side(g *group, i int32) bool {
	return g == s.all || s.endpoints[i].Near == (g == s.near)
}

// rendezvous picks the eligible endpoint that ranks highest for the key. It is as stable as the ring but looks at every
// endpoint: for groups that are mostly gone.
func (p *pick) rendezvous(g *group) int {
	best, most := -1, uint64(0)
	for _, i := range g.idx {
		if score := mix(mix(p.key) ^ p.set.endpoints[i].Key); (best < 0 || score > most) && p.eligible(i) {
			best, most = int(i), score
		}
	}
	return best
}
