package rules

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"
)

var runs = flag.Int("runs", 20_000, "generated rule sets of a property test")

// world is a rule set, a caller and endpoints, as a generator made them, with what a reader of the rules would expect.
type world struct {
	r       *rand.Rand
	written []made
	caller  map[string]string
	nodes   []map[string]string
	method  string
}

// made is one rule, before it is a text.
type made struct {
	when, then []madeTerm
	forbid     bool
	force      bool
	priority   int
}

type madeTerm struct {
	key    string
	not    bool
	values []string
}

var (
	someHosts   = []string{"10.0.0.1", "10.0.0.2", "10.0.1.1", "10.1.0.1"}
	hostValues  = []string{"10.0.0.1", "10.0.0.2", "10.0.0.*", "10.*", "*.1", "*", "$host"}
	someZones   = []string{"a", "ab", "b"}
	zoneValues  = []string{"a", "b", "a*", "*", "$zone"}
	someMethods = []string{"", "get", "getUser", "saveUser"}
	methods     = []string{"get", "get*", "save*", "*User", "*"}
)

func (w *world) pick(list []string) string { return list[w.r.IntN(len(list))] }

func (w *world) terms(left bool) []madeTerm {
	var all []madeTerm
	for range w.r.IntN(3) {
		t := madeTerm{key: "host", not: w.r.IntN(3) == 0}
		list := hostValues
		switch n := w.r.IntN(3); {
		case n == 0:
			t.key, list = "zone", zoneValues
		case n == 1 && left:
			t.key, list = "method", methods
		}
		for range 1 + w.r.IntN(2) {
			v := w.pick(list)
			if left && strings.HasPrefix(v, "$") {
				v = list[0]
			}
			t.values = append(t.values, v)
		}
		all = append(all, t)
	}
	return all
}

func generate(r *rand.Rand) *world {
	w := &world{r: r}
	w.caller = map[string]string{"host": w.pick(someHosts), "zone": w.pick(someZones)}
	w.method = w.pick(someMethods)
	for range r.IntN(6) {
		w.nodes = append(w.nodes, map[string]string{"host": w.pick(someHosts), "zone": w.pick(someZones)})
	}
	for range r.IntN(5) {
		m := made{when: w.terms(true), then: w.terms(false), force: r.IntN(3) == 0, priority: r.IntN(3)}
		m.forbid = len(m.then) == 0
		w.written = append(w.written, m)
	}
	return w
}

func (m *made) text() string {
	side := func(list []madeTerm) string {
		var parts []string
		for _, t := range list {
			op := " = "
			if t.not {
				op = " != "
			}
			parts = append(parts, t.key+op+strings.Join(t.values, ","))
		}
		return strings.Join(parts, " & ")
	}
	return side(m.when) + " => " + side(m.then)
}

// holds is the meaning of a side, said as plainly as can be: of each attribute, no value of != fits, and one of = if there
// are some.
func holds(list []madeTerm, has, caller map[string]string) bool {
	for _, key := range []string{"host", "zone", "method"} {
		wanted, found := false, false
		for _, t := range list {
			if t.key != key {
				continue
			}
			for _, v := range t.values {
				if strings.HasPrefix(v, "$") {
					v = caller[v[1:]]
				}
				ok, _ := path.Match(v, has[key])
				ok = ok && has[key] != ""
				if t.not && ok {
					return false
				}
				wanted, found = wanted || !t.not, found || !t.not && ok
			}
		}
		if wanted && !found {
			return false
		}
	}
	return true
}

// expected applies the rules one after the other.
func (w *world) expected() (left []int, forbidden bool) {
	for i := range w.nodes {
		left = append(left, i)
	}
	caller := map[string]string{"host": w.caller["host"], "zone": w.caller["zone"], "method": w.method}
	ordered := slices.Clone(w.written)
	slices.SortStableFunc(ordered, func(a, b made) int { return b.priority - a.priority })
	for _, m := range ordered {
		if !holds(m.when, caller, caller) {
			continue
		}
		if m.forbid {
			return nil, true
		}
		var kept []int
		for _, i := range left {
			if holds(m.then, w.nodes[i], caller) {
				kept = append(kept, i)
			}
		}
		if len(kept) > 0 || m.force {
			left = kept
		}
		if len(left) == 0 && m.force {
			return nil, false
		}
	}
	return left, false
}

func party(m map[string]string) Party {
	return Party{Hosts: []Host{HostOf(m["host"])}, Attr: func(key string) (string, bool) {
		v, ok := m[key]
		return v, ok && key != "host"
	}}
}

// TestNarrowProperties: for any rules, callers and endpoints, narrowing leaves what the plain meaning leaves, nothing that
// was not there, and nothing that a rule excludes.
func TestNarrowProperties(t *testing.T) {
	for n := range *runs {
		w := generate(rand.New(rand.NewPCG(7, uint64(n))))
		var all []Rule
		var texts []string
		for i := range w.written {
			m := &w.written[i]
			text := m.text()
			list, _, err := Parse(text)
			if err != nil || len(list) != 1 {
				t.Fatalf("%q: %v", text, err)
			}
			list[0].Force, list[0].Priority = m.force, m.priority
			all, texts = append(all, list[0]), append(texts, fmt.Sprintf("%s (force %v, priority %d)", text, m.force, m.priority))
		}
		v, err := NewSet(all).For(party(w.caller))
		if err != nil {
			t.Fatal(err)
		}
		o := v.Narrow(v.Mask(w.method, time.Time{}), len(w.nodes), func(i int) Party { return party(w.nodes[i]) }, nil)
		want, forbidden := w.expected()
		if (o.Forbid != nil) != forbidden || !slices.Equal(o.Keep, want) {
			t.Fatalf("run %d: %q\ncaller %v calls %q, endpoints %v\nleft %v, forbidden %v; want %v, %v",
				n, texts, w.caller, w.method, w.nodes, o.Keep, o.Forbid != nil, want, forbidden)
		}
		gone := map[int]bool{}
		for _, s := range o.Steps {
			for _, i := range s.Removed {
				if gone[i] || slices.Contains(o.Keep, i) {
					t.Fatalf("run %d: endpoint %d was taken out and is there", n, i)
				}
				gone[i] = true
			}
		}
	}
}
