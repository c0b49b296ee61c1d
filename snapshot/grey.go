package snapshot

import (
	"maps"
	"slices"
	"strings"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/route"
)

// Grey is a grey release: which requests belong to it, and which endpoints are theirs alone (S-232).
type Grey struct {
	Config *config.Grey
	rules  *route.Rules
	index  int
}

// greyReleases compiles the releases, in the order of their names.
func (c *compiler) greyReleases(next *Snapshot) {
	if c.prev != nil && c.prev.Mesh.Config == c.cfg {
		c.greys, next.Greys = c.prev.Greys, c.prev.Greys
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Grey)) {
		cfg := c.cfg.Grey[name]
		match := matchOf(&config.Route{Name: name, Match: cfg.Match})
		compiled, err := route.NewRules([]route.Match{match})
		if err != nil {
			c.fail(cfg.From, err)
			continue
		}
		c.greys = append(c.greys, &Grey{Config: cfg, rules: compiled, index: len(c.greys)})
	}
	next.Greys = c.greys
}

// Mark says how a request came to belong to a release.
type Mark uint8

// The ways.
const (
	Unmarked   Mark = iota // it does not
	MarkedHere             // it fits the release's match
	MarkedSent             // it carries the release's mark
)

// GreyOf returns the release that a request belongs to: one whose mark it carries, else the first whose match it fits;
// nil if there is none.
func (s *Snapshot) GreyOf(f *route.Facts) (*Grey, Mark) {
	if len(s.Greys) == 0 {
		return nil, Unmarked
	}
	for at := 0; f.Fields != nil; {
		mark, next, ok := f.Fields.Next(config.GreyHeader, at)
		if !ok {
			break
		}
		at = next
		for _, g := range s.Greys {
			if g.Config.Enabled && listed(mark, g.Config.Name) {
				return g, MarkedSent
			}
		}
	}
	for _, g := range s.Greys {
		if !g.Config.Enabled {
			continue
		}
		if _, ok := g.rules.Match(f); ok {
			return g, MarkedHere
		}
	}
	return nil, Unmarked
}

// listed tells whether a name stands in a list with commas.
func listed(list, name string) bool {
	for list != "" {
		var one string
		one, list, _ = strings.Cut(list, ",")
		if strings.TrimSpace(one) == name {
			return true
		}
	}
	return false
}

// grey takes the endpoints of grey releases out of a target and gives each release its own part. A route that names the
// labels of a release means its endpoints.
func (c *compiler) grey(t *Target, m membership, prev *Target) {
	all := t.Endpoints
	own := func(g *Grey) bool { return route.HasLabels(t.Labels, g.Config.Labels) }
	if len(c.greys) == 0 || t.Service.Inbound || slices.ContainsFunc(c.greys, own) {
		return
	}
	t.greys = make([]*Target, len(c.greys))
	parts := make([][]*Endpoint, len(c.greys))
	var normal []*Endpoint
	for _, e := range all {
		taken := false
		for i, g := range c.greys {
			if carries(e.Spec, g.Config.Labels, nil) {
				parts[i], taken = append(parts[i], e), true
			}
		}
		if !taken {
			normal = append(normal, e)
		}
	}
	t.Endpoints = normal
	for i, g := range c.greys {
		orNormal := g.Config.Else != "fail"
		if len(parts[i]) == 0 && orNormal {
			continue // the normal ones serve
		}
		part := &Target{Service: t.Service, Labels: t.Labels, Endpoints: parts[i], Grey: g}
		if orNormal {
			part.spare = t
		}
		c.finish(part, m, prev.greyAt(i))
		t.greys[i] = part
	}
}

func (t *Target) greyAt(i int) *Target {
	if t == nil || i >= len(t.greys) {
		return nil
	}
	return t.greys[i]
}

// For returns the part of a target that is for the requests of a release, or with nil for all others. Where none of a
// release's endpoints is usable, the normal ones serve if the release says so.
func (t *Target) For(g *Grey) *Target {
	if g == nil || g.index >= len(t.greys) || t.greys[g.index] == nil {
		return t
	}
	part := t.greys[g.index]
	if part.spare != nil && part.Set.Usable() == 0 {
		return part.spare
	}
	return part
}

// Spare returns the target that stands in for this one when none of its endpoints serves; nil: there is none.
func (t *Target) Spare() *Target { return t.spare }

// Parts returns the parts of a target that are for releases alone.
func (t *Target) Parts() []*Target {
	return slices.DeleteFunc(slices.Clone(t.greys), func(p *Target) bool { return p == nil })
}
