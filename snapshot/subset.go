package snapshot

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/route"
)

// subset leaves of very many endpoints those that this sidecar uses, so that not everybody keeps connections to everybody.
// Each sidecar ranks the endpoints in an order of its own (rendezvous hashing of its id and their addresses) and takes the
// first: all endpoints are in about as many subsets, and one that comes or goes changes a subset by one. Endpoints without
// weight do not count, and stay.
func (c *compiler) subset(s *Service, list []*config.Endpoint) []*config.Endpoint {
	cfg := s.Config
	if cfg.Subset <= 0 || len(list) <= cfg.Subset {
		return list
	}
	who := c.cfg.Node.ID
	if who == "" {
		who = strconv.FormatUint(c.seed, 16)
	}
	ranked := make([]rank, 0, len(list))
	for i, e := range list {
		if e.Weight > 0 {
			ranked = append(ranked, rank{i, scramble(route.Hash(who) ^ scramble(route.Hash(e.Address)))})
		}
	}
	if len(ranked) <= cfg.Subset {
		return list
	}
	slices.SortFunc(ranked, func(a, b rank) int { return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.at, b.at)) })
	drop := make([]bool, len(list))
	for _, r := range ranked[cfg.Subset:] {
		drop[r.at] = true
	}
	s.Subset = Subset{Used: cfg.Subset, Of: len(ranked), Node: who}
	kept := make([]*config.Endpoint, 0, cfg.Subset)
	for i, e := range list {
		if !drop[i] {
			kept = append(kept, e)
		}
	}
	return kept
}

// Subset is the part of a service's endpoints that this sidecar uses. The zero Subset is all of them.
type Subset struct {
	Used, Of int    // endpoints with weight
	Node     string // the id that ranks them
}

type rank struct {
	at    int // in the list
	score uint64
}

// scramble spreads the bits of a hash (the finalizer of splitmix64).
func scramble(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
