package balance

import (
	"math/bits"
	"sync"
)

// maxClasses bounds the work of one turn of a wheel, and fits the bits of a weight.
const maxClasses = 32

// wheel is smooth weighted round robin at the cost of a few classes instead of all endpoints (S-101, X-7). Endpoints of
// equal weight form a class; the smooth rule (add to each its weight, take the highest, charge it the sum) orders the
// classes, and within a class endpoints simply take turns. So within any Σ weights ÷ gcd picks each endpoint is picked
// exactly weight ÷ gcd times, and runs are as short as the weights allow. With more than 32 different weights the
// classes are the bits of the weights: an endpoint then stands in several; counts stay exact, runs are a little longer.
//
// Ejected endpoints give their part back to all: a class counts with its usable members only.
type wheel struct {
	mu      sync.Mutex // guards all below
	classes []class
	sum     int64  // of the effective weights, in which credits are written
	mask    uint32 // the state bits that the last count excluded
	due     due
	size    int
	pace    *pace // of adaptive; nil: the weights stay as they are
}

type class struct {
	unit    uint32  // the weight that a member has here
	members []int32 // indexes into Set.endpoints
	next    int     // position of the member whose turn it is
	usable  int     // members, at the last count
	credit  int64
}

// weight is the effective weight of a class.
func (c *class) weight() int64 { return int64(c.unit) * int64(c.usable) }

// newWheel sorts the endpoints of idx into classes by their weights and starts somewhere, as the seed says.
func newWheel(idx []int32, weights []uint32, seed uint64) *wheel {
	w := &wheel{size: len(idx), mask: ^uint32(0)}
	if !w.byWeight(idx, weights) {
		w.byBit(idx, weights)
	}
	for i := range w.classes {
		c := &w.classes[i]
		c.usable = len(c.members)
		c.next = int(mix(seed+uint64(i)) % uint64(len(c.members)))
		w.sum += c.weight()
	}
	if len(w.classes) > 1 {
		for range seed % 64 {
			w.charge(w.highest(0))
		}
	}
	return w
}

// byWeight makes a class of each weight; false if there are too many.
func (w *wheel) byWeight(idx []int32, weights []uint32) bool {
	sizes := make(map[uint32]int, maxClasses)
	for _, unit := range weights {
		if sizes[unit]++; len(sizes) > maxClasses {
			return false
		}
	}
	at := make(map[uint32]int, len(sizes))
	for k, i := range idx {
		unit := weights[k]
		n, ok := at[unit]
		if !ok {
			n = len(w.classes)
			at[unit] = n
			w.classes = append(w.classes, class{unit: max(unit, 1), members: make([]int32, 0, sizes[unit])})
		}
		w.classes[n].members = append(w.classes[n].members, i)
	}
	return true
}

// byBit makes a class of each bit that is set in some weight.
func (w *wheel) byBit(idx []int32, weights []uint32) {
	var members [32][]int32
	for k, i := range idx {
		for rest := weights[k]; rest != 0; rest &= rest - 1 {
			b := bits.TrailingZeros32(rest)
			members[b] = append(members[b], i)
		}
	}
	for b, m := range members {
		if len(m) > 0 {
			w.classes = append(w.classes, class{unit: 1 << b, members: m})
		}
	}
}

// adopt continues where prev stands: each class of the same weight at the same endpoint and with the same credit.
func (w *wheel) adopt(endpoints []Endpoint, prev *wheel, old []Endpoint) {
	prev.mu.Lock()
	defer prev.mu.Unlock()
	w.adoptLocked(endpoints, prev, old)
}

// adoptLocked is adopt with the lock of prev held.
func (w *wheel) adoptLocked(endpoints []Endpoint, prev *wheel, old []Endpoint) {
	if prev.sum == 0 || w.sum == 0 || len(w.classes) == 0 {
		return
	}
	for i := range w.classes {
		c := &w.classes[i]
		c.credit = 0
		for j := range prev.classes {
			if o := &prev.classes[j]; o.unit == c.unit {
				c.next = follow(old, o.members, o.next, endpoints, c.members)
				c.credit = int64(float64(o.credit) / float64(prev.sum) * float64(w.sum))
			}
		}
	}
	w.settle()
}

// settle makes the credits add up to nothing again after rounding.
func (w *wheel) settle() {
	rest := int64(0)
	for i := range w.classes {
		rest += w.classes[i].credit
	}
	if len(w.classes) > 0 {
		w.classes[0].credit -= rest
	}
}

// count finds the usable members of each class and writes the credits anew in the new sum.
func (w *wheel) count(p *pick) {
	w.mask = p.mask
	sum := int64(0)
	for i := range w.classes {
		c := &w.classes[i]
		c.usable = 0
		for _, m := range c.members {
			if !p.set.endpoints[m].Meter.barred(p.mask, p.now) {
				c.usable++
			}
		}
		sum += c.weight()
	}
	if sum == w.sum || sum == 0 {
		return
	}
	scale := float64(sum) / float64(w.sum)
	w.sum = sum
	for i := range w.classes {
		w.classes[i].credit = int64(float64(w.classes[i].credit) * scale)
	}
	w.settle()
}

// highest returns the class whose turn it is, passing over those in the bit set skip; -1 if none is left.
func (w *wheel) highest(skip uint32) int {
	best, most := -1, int64(0)
	for i := range w.classes {
		c := &w.classes[i]
		if skip>>i&1 == 1 || c.usable == 0 {
			continue
		}
		if v := c.credit + c.weight(); best < 0 || v > most {
			best, most = i, v
		}
	}
	return best
}

// charge books one turn.
func (w *wheel) charge(chosen int) {
	for i := range w.classes {
		w.classes[i].credit += w.classes[i].weight()
	}
	w.classes[chosen].credit -= w.sum
}

// eligible finds the member whose turn it is among the eligible ones, and its position; -1 if there is none.
func (c *class) eligible(p *pick) (i, at int) {
	at = c.next
	for range c.members {
		if m := c.members[at]; p.eligible(m) {
			return int(m), at
		}
		if at++; at == len(c.members) {
			at = 0
		}
	}
	return -1, 0
}

// wheel picks by weighted round robin.
func (p *pick) wheel(g *group) int {
	w := g.wheel
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pace != nil && w.pace.late(p.now) {
		w.rerank(p)
	}
	if len(w.classes) > 1 && (w.due.now(p.now, w.size) || w.mask != p.mask) {
		w.count(p)
	}
	if i := w.turn(p); i >= 0 || len(w.classes) == 1 {
		return i
	}
	w.count(p) // it may be that the last count was too old
	return w.turn(p)
}

// turn takes turns until an endpoint is found that does not sit it out for slow start.
func (w *wheel) turn(p *pick) int {
	waiting := -1
	skip := uint32(0) // classes with nothing eligible
	for range attempts + maxClasses {
		n := w.highest(skip)
		if n < 0 {
			break
		}
		c := &w.classes[n]
		i, at := c.eligible(p)
		if i < 0 {
			skip |= 1 << n
			continue
		}
		if c.next = at + 1; c.next == len(c.members) {
			c.next = 0
		}
		w.charge(n)
		if !p.cold(int32(i)) {
			return i
		}
		if waiting < 0 {
			waiting = i
		}
	}
	return waiting
}
