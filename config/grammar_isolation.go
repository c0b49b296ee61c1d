package config

import (
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// maxLinks bounds the classes of a service: each may have connections to every endpoint.
const maxLinks = 8

func bulkheadValue() value[Bulkhead] {
	return object(
		must(in("in_flight", "calls under way, of all services together that name it", func(b *Bulkhead) *int { return &b.InFlight }, number(1, most))),
		in("waiting", "calls that wait for their turn (0)", func(b *Bulkhead) *int { return &b.Waiting }, number(0, most)),
		in("wait", "how long one may wait; left out: until its deadline", func(b *Bulkhead) *time.Duration { return &b.Wait }, duration(0, longest)),
		in("priorities", "as limit.priorities", func(b *Bulkhead) *[]string { return &b.Priorities }, priorities()),
	)
}

// maxPriorities bounds a list of them; whoever is not listed is one more.
const maxPriorities = 8

// priorities is an order in which calls are admitted.
func priorities() value[[]string] {
	return then(filledList(line()), func(d *decoder, n *yaml.Node, out *[]string) bool {
		if len(*out) > maxPriorities {
			return d.fail(n, "at most %d priorities are expected, got %d", maxPriorities, len(*out))
		}
		for i, p := range *out {
			if slices.Contains((*out)[:i], p) {
				return d.fail(n, "%q is given twice", p)
			}
		}
		return true
	})
}

func bulkheadProblem(name string) string {
	if name == OwnBulkhead {
		return "own says that a service shares no bulkhead: take another name"
	}
	return nameProblem(name)
}

func linkValue() value[Link] {
	v := object(
		must(in("name", "of the class", func(l *Link) *string { return &l.Name }, serviceName())),
		in("match", "which calls belong to it", func(l *Link) *Link { return l }, object(
			in("size_over", "calls whose body is announced to be larger", func(l *Link) *int64 { return &l.SizeOver }, size(1, 1<<40)),
			in("route", "calls of these routes, whatever their size: one name or a list", func(l *Link) *[]string { return &l.Routes }, some(line())),
			in("service", "calls of a gRPC service (pkg.Service), or by the name of another service whose routes lead here: one name or a list", func(l *Link) *[]string { return &l.Services }, some(calledService())),
			in("priority", "calls that carry it in the header "+PriorityHeader+": one word or a list", func(l *Link) *[]string { return &l.Priorities }, some(line())),
		)),
		opt("connections", "bound of the class at each endpoint; left out: limit.connections", func(l *Link) *Opt[int] { return &l.Connections }, number(1, most)),
	)
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *Link) bool {
		out.From = d.origin(n)
		if !read(d, n, out) {
			return false
		}
		if out.SizeOver == 0 && len(out.Routes) == 0 && len(out.Services) == 0 && len(out.Priorities) == 0 {
			return d.fail(n, "match is missing: size_over, route, service or priority")
		}
		return true
	}
	return v
}

// calledService is a service as its callers name it; a method is not part of that.
func calledService() value[string] {
	return checked(line(), func(s string) string {
		if name, _, found := strings.Cut(strings.TrimPrefix(s, "/"), "/"); found {
			return "a service is expected (" + name + "), without a method: for one method name its route (match: {route: …})"
		}
		return ""
	})
}

// linksFit looks at the links of a service as a whole.
func (d *decoder) linksFit(n *yaml.Node, s *Service) bool {
	ok := true
	if s.Protocol == "tcp" && len(s.Links) > 0 {
		ok = d.failIn(n, "links", "protocol tcp has a connection for each caller: there is nothing to set apart")
	}
	if len(s.Links) > maxLinks {
		ok = d.failIn(n, "links", "at most %d links are expected, got %d", maxLinks, len(s.Links))
	}
	for i, l := range s.Links {
		if slices.ContainsFunc(s.Links[:i], func(o *Link) bool { return o.Name == l.Name }) {
			ok = d.failIn(n, "links", "the link %s is there twice", l.Name)
		}
		for _, name := range l.Routes {
			if !slices.ContainsFunc(s.Routes, func(r *Route) bool { return r.Name == name }) {
				ok = d.failIn(n, "links", "the link %s names a route that the service does not have: %s", l.Name, name)
			}
		}
	}
	return ok
}
