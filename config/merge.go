package config

import (
	"cmp"
	"maps"
	"slices"
)

// Layer is what one source says, with its rank.
type Layer struct {
	Rank   Rank
	Config *Config
}

// Merge puts the services, their rules, the named policies, the switches and the defaults of ranked sources together. Of
// each service, named policy, switch and of the defaults the whole of the highest rank counts, but for whether a switch is on;
// of equal ranks the layer given first. What base leaves open of the update gate comes from the others. All else comes from base, which ranks as
// the local file. Services keep their pointers, so that one that did not change is known by it. The
// error is an Errors: references that name nothing, and hosts and ports that are taken twice.
func Merge(base *Config, layers ...Layer) (*Config, error) {
	ranked := append([]Layer{{Rank: RankFile, Config: base}}, layers...)
	slices.SortStableFunc(ranked, func(a, b Layer) int { return cmp.Compare(b.Rank, a.Rank) })
	out := *base
	out.Services, out.Policies, out.Switches = map[string]*Service{}, map[string]*Policy{}, map[string]*Switch{}
	out.Defaults, out.Warnings = Policy{}, nil
	hasDefaults := false
	for _, l := range ranked {
		if l.Config == nil {
			continue
		}
		out.Discovery.UpdateGate.over(&l.Config.Discovery.UpdateGate)
		addMissing(out.Services, l.Config.Services)
		addMissing(out.Policies, l.Config.Policies)
		addSwitches(out.Switches, l.Config.Switches)
		out.Warnings = append(out.Warnings, l.Config.Warnings...)
		if !hasDefaults && fingerprint(&l.Config.Defaults) != fingerprint(&Policy{}) {
			out.Defaults, hasDefaults = l.Config.Defaults, true
		}
	}
	out.Published = map[string]*Published{}
	for _, l := range ranked {
		if l.Config != nil {
			addMissing(out.Published, l.Config.Published)
		}
	}
	out.inherit(out.Published)
	out.mergeRules(ranked)
	if err := out.check().asError(); err != nil {
		return nil, err
	}
	return &out, nil
}

// addSwitches adds those that are not there yet. Of one that is, only what it says of being on counts.
func addSwitches(to, from map[string]*Switch) {
	for name, w := range from {
		have := to[name]
		switch {
		case have == nil:
			to[name] = w
		case w.Enabled.Set && have.Below == nil:
			both := *have
			both.Below = w
			to[name] = &both
		}
	}
}

// addMissing copies what is not there yet.
func addMissing[T any](to, from map[string]T) {
	for name := range maps.Keys(from) {
		if _, taken := to[name]; !taken {
			to[name] = from[name]
		}
	}
}
