package balance

import "slices"

// Prospect says what the next Pick of a set would choose, without taking its turn.
type Prospect struct {
	Why   Why
	Among []int // indexes of the endpoints that may be chosen, ascending
	Next  int   // index of the one whose turn it is; -1 where chance decides, or nothing is chosen
}

// Prospect looks ahead without disturbing anything: turns are taken on a copy. For an explanation, not for requests: it
// looks at every endpoint.
func (s *Set) Prospect(h *Hint) Prospect {
	still := s.still()
	i, why := still.Pick(h)
	v := Prospect{Why: why, Next: -1}
	if i < 0 {
		return v
	}
	p := pick{set: still, hint: h, mask: ^uint32(0), now: h.Now.UnixNano(), key: h.Hash}
	if why == PickedPanic {
		if p.mask = StateDraining; !p.any(still.all) && !p.any(still.idle) {
			p.mask = 0
		}
	}
	if p.again = why == PickedAgain; !p.again && !p.any(still.all) && !p.any(still.idle) {
		p.again = true // panic among tried ones
	}
	sides, sure := p.sides()
	cold := false
	for _, g := range sides {
		for _, i := range g.idx {
			if p.eligible(i) {
				v.Among = append(v.Among, int(i))
				cold = cold || s.warmth(&s.endpoints[i], p.now) < 1
			}
		}
	}
	slices.Sort(v.Among)
	switch {
	case len(v.Among) == 1:
		v.Next = i
	case s.spec.Kind == ConsistentHash && h.HasHash:
		v.Next = i // the key decides everything
	case s.spec.Kind.turns() && sure && !cold:
		v.Next = i
	}
	return v
}

// any reports whether a group has an eligible endpoint.
func (p *pick) any(g *group) bool { return slices.ContainsFunc(g.idx, p.eligible) }

// sides returns the groups that a pick may fall on, and whether it is sure which one that is.
func (p *pick) sides() (groups []*group, sure bool) {
	s := p.set
	switch {
	case !p.any(s.all):
		return []*group{s.idle}, true
	case s.near == nil:
		return []*group{s.all}, true
	case !p.any(s.near):
		return []*group{s.far}, true
	case !p.any(s.far):
		return []*group{s.near}, true
	case p.mask != ^uint32(0) || s.countNear(p.now) >= s.spec.SpillBelow:
		return []*group{s.near}, true
	case s.countNear(p.now) == 0:
		return []*group{s.far}, true
	}
	return []*group{s.near, s.far}, false
}

// still returns a copy of s on which turns may be taken.
func (s *Set) still() *Set {
	c := &Set{spec: s.spec, endpoints: s.endpoints, onlyFar: s.onlyFar}
	for _, g := range []struct{ to, from **group }{
		{&c.all, &s.all}, {&c.near, &s.near}, {&c.far, &s.far}, {&c.idle, &s.idle},
	} {
		if from := *g.from; from != nil {
			*g.to = &group{idx: from.idx, wheel: from.wheel.still(), weight: from.weight}
			(*g.to).cursor.Store(from.cursor.Load())
		}
	}
	if s.spec.Kind == ConsistentHash {
		c.ring.ring.Store(s.ringOf())
	}
	return c
}

func (w *wheel) still() *wheel {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return &wheel{classes: slices.Clone(w.classes), sum: w.sum, mask: w.mask, due: w.due, size: w.size}
}
