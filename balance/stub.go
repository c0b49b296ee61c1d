package balance

type wheel struct{}

func newWheel([]Endpoint, []int32, uint64, *wheel) *wheel { return nil }

type ring struct{}

func (p *pick) wheel(g *group) int   { return p.roundRobin(g) }
func (p *pick) least(g *group) int   { return p.random(g) }
func (p *pick) hashed(g *group) int  { return p.random(g) }
func (p *pick) fastest(g *group) int { return p.random(g) }
