package snapshot

import "github.com/sidecar-mesh/sidecar/route"

// Which is Find that also says which host pattern it was.
func (d *Directory) Which(authority string) (s *Service, pattern string, ok bool) {
	id, pattern, ok := d.hosts.Which(authority)
	if !ok {
		return nil, "", false
	}
	return d.hosted[id], pattern, true
}

// MatchText is the text form of the match of the route at index.
func (s *Service) MatchText(index int) string { return s.rules.Text(index) }

// Misses says which part of the match of the route at index does not fit; "" if all fit.
func (s *Service) Misses(index int, f *route.Facts) string { return s.rules.Misses(index, f) }
