package rules

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Set is the rules of one service in the order in which they act: larger priorities first, equal ones as written. All
// of them act, each on what the ones before it left. It is immutable.
type Set struct {
	rules []Rule
}

// NewSet makes a set of the rules that are enabled.
func NewSet(rules []Rule) *Set {
	s := &Set{}
	for i := range rules {
		if rules[i].Enabled {
			s.rules = append(s.rules, rules[i])
		}
	}
	slices.SortStableFunc(s.rules, func(a, b Rule) int { return cmp.Compare(b.Priority, a.Priority) })
	return s
}

// Rules returns the rules in the order in which they act; the slice is read-only.
func (s *Set) Rules() []Rule { return s.rules }

// Doubts finds what rules together hardly mean: whitelists that leave nobody (S-119).
func (s *Set) Doubts() []string {
	var whites []*Rule
	for i := range s.rules {
		if r := &s.rules[i]; r.Forbid && len(r.When) == 1 && r.Consumer.kind == patternNone && len(r.When[0].In) == 0 {
			whites = append(whites, r)
		}
	}
	var all []string
	for i, a := range whites {
		for _, b := range whites[i+1:] {
			if s, t := &a.When[0], &b.When[0]; s.Key == t.Key && !overlap(s.Out, t.Out) {
				all = append(all, fmt.Sprintf("the whitelists %q and %q have nobody in common: every caller is forbidden", a.Text, b.Text))
			}
		}
	}
	return all
}

func overlap(a, b []Pattern) bool {
	return slices.ContainsFunc(a, func(p Pattern) bool {
		return slices.ContainsFunc(b, func(q Pattern) bool { return p.overlaps(&q) })
	})
}

// View is a set as one caller sees it: only rules that can be about this caller, with the method left open. It is
// immutable.
type View struct {
	caller Party
	live   []gated
	gates  []gate // what a call can differ in, each once
	set    *Set
}

// gate is open to methods that fit its clause, until a time; zero: always.
type gate struct {
	when  Clause
	until time.Time
}

// gated is a rule that acts if the gate with that index is open; -1: always.
type gated struct {
	rule *Rule
	gate int
}

// maxGates bounds how many different clauses about methods and ends of rules one caller meets.
const maxGates = 64

// For returns the set as a caller sees it.
func (s *Set) For(caller Party) (*View, error) {
	v := &View{caller: caller, set: s}
	index := map[string]int{}
	for i := range s.rules {
		r := &s.rules[i]
		if !r.about(&v.caller) {
			continue
		}
		g := gated{rule: r, gate: -1}
		if r.When.asksMethod() || !r.Until.IsZero() {
			key := gateText(r)
			n, ok := index[key]
			if !ok {
				if len(v.gates) == maxGates {
					return nil, errors.New("more than 64 rules ask for different methods or end at different times")
				}
				n = len(v.gates)
				index[key] = n
				v.gates = append(v.gates, gate{r.When, r.Until})
			}
			g.gate = n
		}
		v.live = append(v.live, g)
	}
	return v, nil
}

// about tells whether a rule can be about a caller, whatever it calls.
func (r *Rule) about(caller *Party) bool {
	if r.Consumer.kind != patternNone && !r.Consumer.fitsAny(caller.Hosts) {
		return false
	}
	return r.When.fits(caller, caller)
}

func gateText(r *Rule) string {
	key := r.Until.String()
	if i := slices.IndexFunc(r.When, func(t Term) bool { return t.Key == keyMethod }); i >= 0 {
		key += r.When[i : i+1].String()
	}
	return key
}

// Acts reports whether any rule can act.
func (v *View) Acts() bool { return v != nil && len(v.live) > 0 }

// Mask says which gates a method opens at now. Calls with the same mask are treated alike. It does not allocate.
func (v *View) Mask(method string, now time.Time) uint64 {
	mask := uint64(0)
	for i := range v.gates {
		if g := &v.gates[i]; (g.until.IsZero() || now.Before(g.until)) && g.when.fitsMethod(method) {
			mask |= 1 << i
		}
	}
	return mask
}

// Outcome is what rules leave of a list of endpoints.
type Outcome struct {
	Keep   []int // indexes, ascending
	Forbid *Rule // the caller is refused by this rule
	Steps  []Step
	// Scripts are the rules that are asked for each call, in order; they act on what the others left.
	Scripts []*Rule
}

// Step is what one rule did.
type Step struct {
	Rule    *Rule
	Removed []int // indexes of the endpoints that it took out
	Passed  bool  // it would have left none, and was passed over since it does not say force
	Err     error // of a script
}

// Run asks a script which of the endpoints with these indexes it leaves.
type Run func(r *Rule, list []int) ([]int, error)

// Narrow applies the rules that mask lets act to n endpoints. It never leaves what was not there.
func (v *View) Narrow(mask uint64, n int, endpoint func(int) Party, run Run) Outcome {
	o := Outcome{Keep: make([]int, n)}
	for i := range n {
		o.Keep[i] = i
	}
	for _, g := range v.live {
		if g.gate >= 0 && mask&(1<<g.gate) == 0 {
			continue
		}
		switch r := g.rule; {
		case r.Forbid:
			o.Keep, o.Forbid = nil, r
			return o
		case r.Script != nil && r.Runtime:
			o.Scripts = append(o.Scripts, r)
		case r.Script != nil:
			left, err := run(r, o.Keep)
			if !o.take(r, Within(left, o.Keep), err) {
				return o
			}
		default:
			left := make([]int, 0, len(o.Keep))
			for _, i := range o.Keep {
				if p := endpoint(i); r.Then.fits(&p, &v.caller) {
					left = append(left, i)
				}
			}
			if !o.take(r, left, nil) {
				return o
			}
		}
	}
	return o
}

// take notes what a rule left; false if nothing is left and the rule insists.
func (o *Outcome) take(r *Rule, left []int, err error) bool {
	step := Step{Rule: r, Err: err}
	switch {
	case err != nil && !r.Force || err == nil && len(left) == 0 && len(o.Keep) > 0 && !r.Force:
		step.Passed = true
	case err != nil:
		step.Removed, o.Keep = o.Keep, nil
	case len(left) < len(o.Keep):
		for _, i := range o.Keep {
			if _, found := slices.BinarySearch(left, i); !found {
				step.Removed = append(step.Removed, i)
			}
		}
		o.Keep = left
	}
	o.Steps = append(o.Steps, step)
	return len(o.Keep) > 0 || !r.Force
}

// Within returns what of list is in all, ascending, each once.
func Within(list, all []int) []int {
	left := make([]int, 0, len(list))
	for _, i := range all {
		if slices.Contains(list, i) {
			left = append(left, i)
		}
	}
	return left
}

// Refuses returns the first rule that forbids a caller to call a method at now, nil if none does: what a provider can judge by
// itself (S-117, S-119, S-120). Rules that only choose among endpoints are the caller's business. It does not allocate.
func (s *Set) Refuses(caller *Party, method string, now time.Time) *Rule {
	for i := range s.rules {
		r := &s.rules[i]
		if !r.Forbid || r.over(now) || r.Consumer.kind != patternNone && !r.Consumer.fitsAny(caller.Hosts) {
			continue
		}
		if r.When.asksMethod() && (caller.Partial && method == "" || !r.When.fitsMethod(method)) {
			continue
		}
		if r.When.fits(caller, caller) {
			return r
		}
	}
	return nil
}

func (p *Pattern) fitsAny(hosts []Host) bool {
	for i := range hosts {
		if p.fitsHost(&hosts[i], nil) {
			return true
		}
	}
	return false
}
