package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func load(t *testing.T, name, text string, rank Rank) *Config {
	t.Helper()
	c, err := LoadBytes(name, []byte(text), rank, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRanksOfRules: of each service the rules of the highest rank count, as a whole, wherever they stand (S-127, X-10, S-124, S-126).
func TestRanksOfRules(t *testing.T) {
	file := load(t, "file", `services: {a: {endpoints: [10.0.0.1:80]}, b: {endpoints: [10.0.0.1:80], rules: ["=> host = 1"]}, d: {endpoints: [10.0.0.1:80], rules: []}}`, RankFile)
	push := load(t, "push", `rules: {a: ["=> host = 2"], b: ["=> host = 2"]}`, RankDynamic)
	center := load(t, "center", `rules: {a: ["=> host = 3", "=> host = 4"], b: ["=> host = 3"], c: ["=> host = 3"], d: ["=> host = 3"]}
services: {c: {endpoints: [10.0.0.9:80]}}`, RankCenter)
	c, err := Merge(file, Layer{RankCenter, center}, Layer{RankDynamic, push})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a": "dynamic => host = 2", "b": "file => host = 1", "c": "config_center => host = 3", "d": "file"} {
		r := c.RulesOf(name)
		got := (RuleSet{name, r}).Rank().String()
		for _, rule := range r.List {
			got += " " + rule.Text
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	var local []string
	for _, r := range c.RuleSets() {
		if r.Local() {
			local = append(local, r.Service)
		}
	}
	if !slices.Equal(local, []string{"b", "d"}) {
		t.Errorf("local rules of %q", local)
	}
}

// TestRanksOfSwitches: of a service and a group, the switches of the highest rank count; one that names the service wins
// over one for all.
func TestRanksOfSwitches(t *testing.T) {
	file := load(t, "file", `{groups: [{service: a, from: bj, to: [local]}, {service: off, from: bj, to: [x], enabled: false}], services: {}}`, RankFile)
	center := load(t, "center", `groups: [{from: bj, to: [sh, gz]}, {service: a, from: bj, to: [no]}, {from: sh, to: [hz]}]`, RankCenter)
	c, err := Merge(file, Layer{RankCenter, center})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []struct{ service, group, want string }{
		{"a", "bj", "local"},
		{"b", "bj", "gz hz"}, // sh is switched away in turn
		{"b", "sh", "hz"},
		{"b", "gz", "gz"},
		{"off", "bj", "gz hz"}, // a switch that is off does not hide the one for all
	} {
		to, _ := c.Switched(q.service, q.group)
		if got := strings.Join(to, " "); got != q.want {
			t.Errorf("calls of %s meant for %s go to %q, want %q", q.service, q.group, got, q.want)
		}
	}
}

// TestRuleMistakes: what a document may not say about rules.
func TestRuleMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"groups: [{from: a, to: b}, {from: b, to: a}]":            `calls meant for "a" go in a circle`,
		"groups: [{from: a, to: [b, a]}]":                         `the group "a" is switched to itself`,
		"groups: [{from: a}]":                                     "to is missing",
		"grey: {x: {match: {percent: 5%}, labels: {}}}":           "labels must not be empty",
		"grey: {x: {labels: {a: b}}}":                             "match is missing",
		"rules: {a: [{when: {host: a}}]}":                         "either then or forbid: true is expected",
		"rules: {a: [{when: {host: a}, then: {}}]}":               "either then or forbid: true is expected",
		"rules: {a: [{rule: x, script: y}]}":                      "got rule and script",
		"rules: {a: [{name: x}]}":                                 "got none",
		`rules: {a: [{when: {"a b": c}, forbid: true}]}`:          `"a b" is no name of an attribute`,
		`rules: {a: [{when: {a: "b,c"}, forbid: true}]}`:          "a value of a rule has no blanks",
		"services: {a: {endpoints: [], rules: x}}\nrules: {a: y}": "given twice, first at",
		"services: {a: {routes: [{match: {segment: {x: y}}}]}}":   "the number of a part of the path",
	} {
		_, err := LoadBytes("test", []byte(text), RankFile, noEnv)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v\nwant %q", text, err, want)
		}
	}
}

// TestExpired: a rule that is over at a time is told of, one that acts or has no end is not.
func TestExpired(t *testing.T) {
	c, err := LoadBytes("x.yaml", []byte("rules:\n  shop:\n    - {name: old, rule: \"host = 10.1.1.1 =>\", until: 2026-01-01T00:00:00Z}\n"+
		"    - {name: new, rule: \"host = 10.1.1.2 =>\", until: 2026-01-03T00:00:00Z}\n    - \"host = 10.1.1.3 =>\"\n"), RankFile, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	got := c.Expired(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)).Error()
	if want := "x.yaml:3:7: rules of shop: the rule old acts no more: its until, 2026-01-01T00:00:00Z, is over"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
