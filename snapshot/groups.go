package snapshot

import (
	"slices"

	"github.com/sidecar-mesh/sidecar/config"
)

// grouped leaves of a service's endpoints those of the group that we call, or of the groups it was switched to (S-133).
// Where no group is asked for, endpoints of groups that are switched away get no calls.
func (c *compiler) grouped(s *Service, cfg *config.Service, list []*config.Endpoint) []*config.Endpoint {
	if cfg.Group == "" && len(c.cfg.Groups) == 0 {
		return list
	}
	keep := map[string]bool{}
	note := func(group string) []string {
		to, by := c.cfg.Switched(cfg.Name, group)
		if by != nil && !slices.Contains(s.Switches, by) {
			s.Switches = append(s.Switches, by)
		}
		return to
	}
	if want := cfg.Group; want != "" {
		for _, g := range note(want) {
			keep[g] = true
		}
	} else {
		for _, e := range list {
			if _, known := keep[e.Group]; !known {
				keep[e.Group] = slices.Contains(note(e.Group), e.Group)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(e *config.Endpoint) bool { return !keep[e.Group] })
}

// groupsOf says which groups serve what a route means for one.
func (c *compiler) groupsOf(s *Service, group string) []string {
	if group == "" || len(c.cfg.Groups) == 0 {
		return nil
	}
	to, _ := c.cfg.Switched(s.Name, group)
	return to
}
