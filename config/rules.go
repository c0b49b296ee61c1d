package config

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Rules are the rules of one service. Those of the source with the highest rank count, as a whole (S-127, X-10).
type Rules struct {
	From Origin
	List []*Rule
}

// Rule is one rule as written. What its text means, compiling says.
type Rule struct {
	Name string
	From Origin
	// Text is a condition, a condition:// or a script:// URL; Script a program. One of them is set.
	Text     string
	Script   string
	Priority Opt[int]
	Enabled  Opt[bool]
	Force    Opt[bool]
	Runtime  Opt[bool]
	Until    Opt[Instant] // it acts no more from then on
}

// Instant is a point in time, in seconds since 1970 (UTC).
type Instant int64

// Time is i as such.
func (i Instant) Time() time.Time { return time.Unix(int64(i), 0).UTC() }

// String writes i as it is read.
func (i Instant) String() string { return i.Time().Format(time.RFC3339) }

// GroupSwitch sends calls that are meant for one group to others (S-133).
type GroupSwitch struct {
	From    Origin
	Service string // "*": all
	Group   string // key from
	To      []string
	Enabled bool
}

// Grey is a grey release: the requests that fit Match, or carry its mark, go to the endpoints with Labels, all others
// never (S-232).
type Grey struct {
	Name    string
	From    Origin
	Match   Match
	Labels  map[string]string
	Else    string // any | fail: when a service has none of these endpoints
	Enabled bool
}

// PriorityHeader carries the priority of a request from hop to hop, as a word that callers choose (S-182, S-185).
const PriorityHeader = "x-priority"

// OtherPriority stands for all calls whose priority is not listed, and for those that carry none; left out, they come last.
const OtherPriority = "*"

// GreyHeader carries the names of the grey releases that a request belongs to from hop to hop.
const GreyHeader = "x-grey"

// RulesOf returns the rules of a service; nil if there are none.
func (c *Config) RulesOf(service string) *Rules {
	if s := c.Services[service]; s != nil && s.Rules != nil {
		if r := c.Rules[service]; r == nil || s.Rules.From.source().Rank >= r.From.source().Rank {
			return s.Rules
		}
	}
	return c.Rules[service]
}

// RuleSet is the rules in force of one service.
type RuleSet struct {
	Service string
	Rules   *Rules
}

// Local tells whether the local file gives them: nothing that ranks lower changes them.
func (r RuleSet) Local() bool { return r.Rank() == RankFile }

// Rank is that of their source.
func (r RuleSet) Rank() Rank { return r.Rules.From.source().Rank }

// RuleSets lists the rules in force by service, in the order of the names.
func (c *Config) RuleSets() []RuleSet {
	names := slices.Collect(maps.Keys(c.Rules))
	for name, s := range c.Services {
		if s.Rules != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var all []RuleSet
	for _, name := range slices.Compact(names) {
		all = append(all, RuleSet{name, c.RulesOf(name)})
	}
	return all
}

// Expired tells of rules whose time is over at now: they are read, and act no more.
func (c *Config) Expired(now time.Time) Errors {
	var all Errors
	for _, s := range c.RuleSets() {
		for _, r := range s.Rules.List {
			if r.Until.Set && !now.Before(r.Until.Value.Time()) {
				all = append(all, r.From.errorAt("rules of "+s.Service, "the rule "+cmp.Or(r.Name, r.Text)+" acts no more: its until, "+r.Until.Value.String()+", is over"))
			}
		}
	}
	return all
}

// mergeRules puts the rules of ranked layers together, the highest first: of each service the whole of one layer.
func (c *Config) mergeRules(ranked []Layer) {
	c.Rules, c.Groups, c.Grey = map[string]*Rules{}, nil, map[string]*Grey{}
	taken := map[[2]string]Rank{}
	for _, l := range ranked {
		if l.Config == nil {
			continue
		}
		for name, s := range l.Config.Services {
			if s.Rules != nil && c.Rules[name] == nil {
				c.Rules[name] = s.Rules
			}
		}
		addMissing(c.Rules, l.Config.Rules)
		addMissing(c.Grey, l.Config.Grey)
		for _, g := range l.Config.Groups {
			key := [2]string{g.Service, g.Group}
			if rank, ok := taken[key]; ok && rank != l.Rank {
				continue
			}
			taken[key] = l.Rank
			c.Groups = append(c.Groups, g)
		}
	}
}

// switched finds the switch that holds for a group of a service: one that names the service, else one for all.
func (c *Config) switched(service, group string) *GroupSwitch {
	var all *GroupSwitch
	for i := range c.Groups {
		g := &c.Groups[i]
		switch {
		case !g.Enabled || g.Group != group:
		case g.Service == service:
			return g
		case g.Service == "*" && all == nil:
			all = g
		}
	}
	return all
}

// Switched says which groups take the calls of a service that are meant for one group, and by which switch; the group
// itself and nil where nothing is switched. A group that is switched away in turn hands on to its own.
func (c *Config) Switched(service, group string) ([]string, *GroupSwitch) {
	first := c.switched(service, group)
	if first == nil {
		return []string{group}, nil
	}
	var to []string
	seen := map[string]bool{group: true}
	queue := first.To
	for len(queue) > 0 {
		g := queue[0]
		queue = queue[1:]
		if seen[g] {
			continue
		}
		seen[g] = true
		if next := c.switched(service, g); next != nil {
			queue = append(queue[:len(queue):len(queue)], next.To...)
			continue
		}
		to = append(to, g)
	}
	return to, first
}

func parseAddress(s string) (netip.Addr, string) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, "an IP address is expected, got " + s
	}
	return a.Unmap(), ""
}

// rulesTwice finds services whose rules stand at two places of one source.
func (c *Config) rulesTwice() Errors {
	var all Errors
	for name, r := range c.Rules {
		if s := c.Services[name]; s != nil && s.Rules != nil && s.Rules != r && s.Rules.From.source().Rank == r.From.source().Rank {
			all = append(all, r.From.errorAt("rules."+name, "given twice, first at "+s.Rules.From.String()))
		}
	}
	return all
}
