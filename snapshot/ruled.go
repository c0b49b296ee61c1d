package snapshot

import (
	"maps"
	"sync/atomic"

	"github.com/sidecar-mesh/sidecar/balance"
	"github.com/sidecar-mesh/sidecar/route"
	"github.com/sidecar-mesh/sidecar/route/rules"
)

// ruled is what rules make of a target, by the methods that they tell apart. Who we are does not change, so all but the
// method is settled when the target is made; each set of methods that is treated alike has a target of its own, made
// when it is first asked for.
type ruled struct {
	base     *Target
	view     *rules.View
	members  membership
	programs programs
	variants atomic.Pointer[map[uint64]*Target]
}

// maxVariants bounds the targets that are kept for one target.
const maxVariants = 256

func newRuled(t *Target, m membership, prev *Target) *ruled {
	r := &ruled{base: t, view: t.Service.view, members: m, programs: t.Service.programs}
	first := map[uint64]*Target{}
	if prev != nil && prev.ruled != nil {
		for mask, was := range *prev.ruled.variants.Load() {
			first[mask] = r.make(mask, was.Set)
		}
	}
	mask := r.view.Mask("")
	if first[mask] == nil {
		first[mask] = r.make(mask, setOf(prev))
	}
	r.variants.Store(&first)
	return r
}

// Under returns the target as rules leave it for a method. It does not allocate for methods that it has seen the like of.
func (t *Target) Under(method string) *Target {
	if t.ruled == nil {
		return t
	}
	r := t.ruled
	mask := r.view.Mask(method)
	if v := (*r.variants.Load())[mask]; v != nil {
		return v
	}
	return r.add(mask)
}

// add makes the target of a mask and keeps it.
func (r *ruled) add(mask uint64) *Target {
	made := r.make(mask, nil)
	for {
		old := r.variants.Load()
		if v := (*old)[mask]; v != nil {
			return v
		}
		if len(*old) >= maxVariants {
			return made
		}
		next := maps.Clone(*old)
		next[mask] = made
		if r.variants.CompareAndSwap(old, &next) {
			return made
		}
	}
}

// Step is what one rule did to a list of endpoints.
type Step struct {
	Rule    *rules.Rule
	Removed []*Endpoint
	Passed  bool // it would have left none, and was passed over since it does not say force
	Err     error
}

// make applies the rules that a mask lets act.
func (r *ruled) make(mask uint64, before *balance.Set) *Target {
	list := r.base.Endpoints
	o := r.view.Narrow(mask, len(list), func(i int) rules.Party { return list[i].party() }, func(rule *rules.Rule, left []int) ([]int, error) {
		return r.programs.run(rule, list, left, nil)
	})
	t := &Target{
		Service: r.base.Service, Labels: r.base.Labels, Fallback: r.base.Fallback, Grey: r.base.Grey, Forbidden: o.Forbid, Scripts: o.Scripts,
	}
	for _, s := range o.Steps {
		step := Step{Rule: s.Rule, Passed: s.Passed, Err: s.Err}
		for _, i := range s.Removed {
			step.Removed = append(step.Removed, list[i])
		}
		t.Steps = append(t.Steps, step)
	}
	for _, i := range o.Keep {
		t.Endpoints = append(t.Endpoints, list[i])
	}
	t.Set = r.members.set(t.Endpoints, before)
	return t
}

// programs are the compiled scripts, by their text.
type programs map[string]route.Script

// add compiles the scripts among rules.
func (p programs) add(list []rules.Rule, c *compiler) error {
	for i := range list {
		s := list[i].Script
		if s == nil || p[s.Source] != nil {
			continue
		}
		if c.prev != nil && c.prev.programs[s.Source] != nil {
			p[s.Source] = c.prev.programs[s.Source]
			continue
		}
		if c.scripts == nil {
			return errNoScripts
		}
		program, err := c.scripts.Compile(s.Source)
		if err != nil {
			return err
		}
		p[s.Source] = program
	}
	return nil
}

// run asks a script which of the endpoints with these indexes it leaves.
func (p programs) run(rule *rules.Rule, list []*Endpoint, left []int, facts *route.Facts) ([]int, error) {
	call := &route.ScriptCall{Facts: facts, Endpoints: make([]route.ScriptEndpoint, len(left))}
	for i, at := range left {
		e := list[at]
		host, port := splitAddress(e.Address)
		call.Endpoints[i] = route.ScriptEndpoint{Host: host, Port: port, Label: func(key string) string { return labelOf(e.Spec, key) }}
	}
	if facts != nil {
		call.Caller = facts.Caller
	}
	chosen, err := p[rule.Script.Source].Choose(call)
	if err != nil {
		return nil, err
	}
	keep := make([]int, 0, len(chosen))
	for _, i := range chosen {
		if i >= 0 && i < len(left) {
			keep = append(keep, left[i])
		}
	}
	return keep, nil
}
