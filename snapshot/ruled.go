package snapshot

import (
	"encoding/binary"
	"maps"
	"sync/atomic"
	"time"

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

// asked is what scripts that see each call have made of a target, by the endpoints that they left.
type asked struct {
	members  membership
	programs programs
	made     atomic.Pointer[map[string]*Target]
}

// maxAsked bounds the targets that are kept for the answers of scripts.
const maxAsked = 64

// Ask lets the scripts that see each call choose among the endpoints of a target, which is one that Under returned.
func (t *Target) Ask(f *route.Facts, method string) *Target {
	if t.asked == nil {
		return t
	}
	left := make([]int, len(t.Endpoints))
	for i := range left {
		left[i] = i
	}
	for _, rule := range t.Scripts {
		chosen, err := t.asked.programs.run(rule, t.Endpoints, left, &route.ScriptCall{Method: method, Caller: f.Caller, Facts: f})
		switch {
		case err == nil && (len(chosen) > 0 || rule.Force):
			left = rules.Within(chosen, left)
		case rule.Force:
			left = nil
		}
		if len(left) == 0 {
			break
		}
	}
	if len(left) == len(t.Endpoints) {
		return t
	}
	return t.asked.target(t, left)
}

// target returns the target of the endpoints with these indexes.
func (a *asked) target(t *Target, left []int) *Target {
	key := make([]byte, 0, 2*len(left))
	for _, i := range left {
		key = binary.AppendUvarint(key, uint64(i))
	}
	for {
		old := a.made.Load()
		if old != nil && (*old)[string(key)] != nil {
			return (*old)[string(key)]
		}
		made := &Target{Service: t.Service, Labels: t.Labels, Grey: t.Grey, Steps: t.Steps, spare: t.spare}
		for _, i := range left {
			made.Endpoints = append(made.Endpoints, t.Endpoints[i])
		}
		made.Set = a.members.set(made.Endpoints, nil)
		next := map[string]*Target{}
		if old != nil {
			if len(*old) >= maxAsked {
				return made
			}
			maps.Copy(next, *old)
		}
		next[string(key)] = made
		if a.made.CompareAndSwap(old, &next) {
			return made
		}
	}
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
	mask := r.view.Mask("", time.Time{}) // as long as no rule has ended
	if first[mask] == nil {
		first[mask] = r.make(mask, setOf(prev))
	}
	r.variants.Store(&first)
	return r
}

// Under returns the target as rules leave it for a method at now. It does not allocate for methods that it has seen the like of.
func (t *Target) Under(method string, now time.Time) *Target {
	if t.ruled == nil {
		return t
	}
	r := t.ruled
	mask := r.view.Mask(method, now)
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
		return r.programs.run(rule, list, left, &route.ScriptCall{Caller: r.base.Service.caller})
	})
	t := &Target{
		Service: r.base.Service, Labels: r.base.Labels, Fallback: r.base.Fallback, Grey: r.base.Grey, Forbidden: o.Forbid, Scripts: o.Scripts,
		spare: r.base.spare,
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
	if len(t.Scripts) > 0 {
		t.asked = &asked{members: r.members, programs: r.programs}
	}
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
func (p programs) run(rule *rules.Rule, list []*Endpoint, left []int, call *route.ScriptCall) ([]int, error) {
	call.Endpoints = make([]route.ScriptEndpoint, len(left))
	for i, at := range left {
		e := list[at]
		host, port := splitAddress(e.Address)
		call.Endpoints[i] = route.ScriptEndpoint{Host: host, Port: port, Label: func(key string) string { return labelOf(e.Spec, key) }}
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
