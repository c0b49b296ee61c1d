package snapshot

import (
	"slices"

	"github.com/sidecar-mesh/sidecar/config"
)

// ownListener is the reason for leaving out an endpoint that is a listener of ours.
const ownListener = "own_listener"

// others leaves out endpoints at which calls would arrive at this sidecar again, for ever: a registry, a list or a name
// may lead there whatever the configuration says. What is left out is noted.
func (c *compiler) others(s *Service, list []*config.Endpoint) []*config.Endpoint {
	first := slices.IndexFunc(list, c.leadsBack)
	if first < 0 {
		return list
	}
	kept := slices.Clone(list[:first])
	s.Notes = slices.Clone(s.Notes)
	for _, e := range list[first:] {
		if c.leadsBack(e) {
			s.Notes = append(s.Notes, config.EndpointNote{Address: e.Address, Why: ownListener})
		} else {
			kept = append(kept, e)
		}
	}
	return kept
}

func (c *compiler) leadsBack(e *config.Endpoint) bool { return c.cfg.LeadsBack(e.Address, false) != "" }
