package snapshot

import (
	"maps"
	"slices"
	"time"
)

// Ending is a rule that acts for a while: a ban, mostly.
type Ending struct {
	Service string
	Rule    string // its name, or its text
	From    string
	Forbids bool // it refuses callers
	Until   time.Time
}

// Same reports whether other is the same rule, wherever it is written by now.
func (e Ending) Same(other Ending) bool {
	return e.Service == other.Service && e.Rule == other.Rule && e.Until.Equal(other.Until)
}

// Endings returns the rules that still act at now, and will not for ever, by service.
func (s *Snapshot) Endings(now time.Time) []Ending {
	var list []Ending
	for _, service := range slices.Sorted(maps.Keys(s.rules)) {
		all := s.rules[service].Rules()
		for i := range all {
			if r := &all[i]; r.Enabled && now.Before(r.Until) {
				list = append(list, Ending{Service: service, Rule: r.Label(), From: r.From, Forbids: r.Forbid, Until: r.Until})
			}
		}
	}
	return list
}
