package balance

import "math"

// scanUpTo is the size up to which least_active looks at every endpoint; above it two random ones are compared, which
// is nearly as even and does not send all sidecars to the same idle endpoint.
const scanUpTo = 8

// load is how busy an endpoint is for its weight and warmth.
func (p *pick) load(i int32) (load, weight float64) {
	e := &p.set.endpoints[i]
	weight = float64(max(e.Weight, 1))
	return float64(max(e.Meter.Active.Load(), 0)) / (weight * p.set.warmth(e, p.now)), weight
}

// least picks the endpoint with the fewest attempts in flight for its weight; ties are drawn by weight.
func (p *pick) least(g *group) int {
	if len(g.idx) <= scanUpTo {
		return p.leastOf(g)
	}
	a := p.sample(g, -1)
	if a < 0 {
		return p.leastOf(g)
	}
	b := p.sample(g, a)
	if b < 0 {
		return int(a)
	}
	la, wa := p.load(a)
	lb, wb := p.load(b)
	if lb < la || lb == la && unit(p.next())*(wa+wb) < wb {
		a = b
	}
	return int(a)
}

// leastOf looks at all.
func (p *pick) leastOf(g *group) int {
	best, lowest, total := -1, math.Inf(1), 0.0
	for _, i := range g.idx {
		if !p.eligible(i) {
			continue
		}
		load, weight := p.load(i)
		weight *= p.set.warmth(&p.set.endpoints[i], p.now)
		switch {
		case load < lowest:
			best, lowest, total = int(i), load, weight
		case load == lowest:
			if total += weight; unit(p.next())*total < weight {
				best = int(i)
			}
		}
	}
	return best
}

// sample draws an eligible endpoint other than not; -1 if that did not succeed soon.
func (p *pick) sample(g *group, not int32) int32 {
	for range attempts {
		if i := g.idx[p.below(len(g.idx))]; i != not && p.eligible(i) && !p.cold(i) {
			return i
		}
	}
	return -1
}

// fastest compares latency times load of two random endpoints. One without samples is neutral: it counts as fast as the
// other, so that only load decides.
func (p *pick) fastest(g *group) int {
	a := p.sample(g, -1)
	if a < 0 {
		if a = int32(p.scan(g)); a < 0 {
			return -1
		}
	}
	b := p.sample(g, a)
	if b < 0 {
		return int(a)
	}
	ta, tb := p.latency(a), p.latency(b)
	switch {
	case ta == 0 && tb == 0:
		ta, tb = 1, 1
	case ta == 0:
		ta = tb
	case tb == 0:
		tb = ta
	}
	ca, cb := ta*p.pressure(a), tb*p.pressure(b)
	if cb < ca || cb == ca && p.next()&1 == 0 {
		a = b
	}
	return int(a)
}

// latency is the decayed latency in nanoseconds, 0 without samples.
func (p *pick) latency(i int32) float64 {
	return p.set.endpoints[i].Meter.latency(p.now, p.set.decay())
}

// pressure is what one more attempt would weigh.
func (p *pick) pressure(i int32) float64 {
	e := &p.set.endpoints[i]
	return float64(max(e.Meter.Active.Load(), 0)+1) / float64(max(e.Weight, 1))
}
