package guard

import "time"

// peak is the greatest length that a list had in a span of time.
type peak struct {
	steps []step // falling in n; the last one is in force
}

type step struct {
	n    int
	last time.Time // when the length was n for the last time, or less
}

// note takes in the length of a list. The length of before was in force until now.
func (p *peak) note(now time.Time, n int) {
	if len(p.steps) > 0 {
		p.steps[len(p.steps)-1].last = now
	}
	for len(p.steps) > 0 && p.steps[len(p.steps)-1].n <= n {
		p.steps = p.steps[:len(p.steps)-1]
	}
	p.steps = append(p.steps, step{n: n, last: now})
}

// most returns the greatest length since now − span, and forgets what is older.
func (p *peak) most(now time.Time, span time.Duration) int {
	for len(p.steps) > 1 && now.Sub(p.steps[0].last) > span {
		p.steps = p.steps[1:]
	}
	if len(p.steps) == 0 {
		return 0
	}
	return p.steps[0].n
}

// reset forgets all but the length in force.
func (p *peak) reset() {
	if n := len(p.steps); n > 1 {
		p.steps = p.steps[n-1:]
	}
}
