package config

import (
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Published is what a provider says of how its service is to be called. It fills, field by field, what the callers' own
// configuration leaves open (S-8). It is a document of its own, so that endpoints that come and go carry none of it (S-9).
type Published struct {
	Policy Policy
	Routes []*Route // methods: name, match and policy
}

func publishedValue() value[Published] {
	policy := then(policyValue(), func(d *decoder, n *yaml.Node, p *Policy) bool {
		if p.Use.Set {
			return d.failIn(n, "use", "what is published stands for itself: use is not taken")
		}
		return true
	})
	route := object(
		must(in("name", "of the method", func(r *Route) *string { return &r.Name }, line())),
		must(in("match", "what it takes", func(r *Route) *Match { return &r.Match }, matchValue())),
		in("policy", "how it is to be called", func(r *Route) *Policy { return &r.Policy }, policy),
	)
	read := route.read
	route.read = func(d *decoder, n *yaml.Node, out *Route) bool {
		out.From = d.origin(n)
		return read(d, n, out)
	}
	return then(object(
		in("policy", "how the service is to be called", func(p *Published) *Policy { return &p.Policy }, policy),
		in("routes", "and its methods", func(p *Published) *[]*Route { return &p.Routes }, list(pointer(route))),
	), func(d *decoder, n *yaml.Node, p *Published) bool { return nameRoutes(d, n, p.Routes) })
}

// inherit puts what providers publish below the services that are called.
func (c *Config) inherit(published map[string]*Published) {
	for name, p := range published {
		if s := c.Services[name]; s != nil {
			c.Services[name] = p.below(s)
		}
	}
}

// below is a service with what is published below it: a route of that name inherits, and a method that no route is named
// after becomes a route behind those.
func (p *Published) below(s *Service) *Service {
	out := *s
	out.Inherited, out.sums = &p.Policy, prints{}
	if s.Protocol == "tcp" {
		return &out
	}
	out.Routes = slices.Clone(s.Routes)
	for _, method := range p.Routes {
		i := slices.IndexFunc(out.Routes, func(r *Route) bool { return r.Name == method.Name })
		r := Route{Name: method.Name, From: method.From, Match: method.Match}
		if i < 0 {
			i = len(out.Routes)
			out.Routes = append(out.Routes, nil)
		} else {
			r = *out.Routes[i]
		}
		r.Inherited = &method.Policy
		out.Routes[i] = &r
	}
	out.sums = layouts{}.prints(&out)
	return &out
}

// InheritedFields counts the fields of a resolved policy that a provider decided.
func InheritedFields(p *Policy) int { return inheritedFields(reflect.ValueOf(p).Elem(), layouts{}) }

func inheritedFields(v reflect.Value, l layouts) int {
	if v.Kind() != reflect.Struct {
		return 0
	}
	known := l.of(v.Type())
	if known.optional {
		from := v.Field(2).Interface().(Origin)
		if from.source().Rank == RankProvider {
			return 1
		}
		return 0
	}
	n := 0
	for _, i := range known.fields {
		n += inheritedFields(v.Field(i), l)
	}
	return n
}
