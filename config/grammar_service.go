package config

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

func serviceValue(policy value[Policy], route value[Route]) value[Service] {
	endpoint := endpointValue()
	v := object(
		in("protocol", "what its endpoints speak: http (HTTP/1.1), http2, grpc (over HTTP/2), tcp or auto (http)", func(s *Service) *string { return &s.Protocol }, protocol()),
		in("grpc_web", "who may call from a browser, with protocol grpc; none: gRPC-Web is not bridged", func(s *Service) *GRPCWeb { return &s.GRPCWeb }, grpcWebValue()),
		in("hosts", "names that callers use for it, *.suffix and * included; left out: the name of the service", func(s *Service) *[]string { return &s.Hosts }, some(claimed(claimHost, hostPattern()))),
		in("listen", "a local port of its own: host:port; needed for tcp", func(s *Service) *string { return &s.Listen }, claimed(claimListen, listenAddress())),
		in("from", "registries that its endpoints come from: one or a list", func(s *Service) *[]string { return &s.Registry }, some(claimed(claimRegistry, line()))),
		in("endpoints", "fixed endpoints", func(s *Service) *[]*Endpoint { return &s.Endpoints }, list(pointer(endpoint))),
		in("group", "which group of it we call", func(s *Service) *string { return &s.Group }, line()),
		in("subset", "of its endpoints, that one sidecar uses; 0: all (0)", func(s *Service) *int { return &s.Subset }, number(0, 10*most)),
		in("preconnect", "connections that are opened to each endpoint when it is found, ahead of calls; not with tcp (0)", func(s *Service) *int { return &s.Preconnect }, number(0, 16)),
		in("critical", "never switched off automatically; its breaker opens later and tries again sooner", func(s *Service) *bool { return &s.Critical }, boolean()),
		in("liveness", "who decides which of its endpoints are alive: registry, or consumer: its list counts, its health does not (registry)",
			func(s *Service) *string { return &s.Liveness }, word("registry", "consumer")),
		in("removal_protection", "as in discovery; none: off", func(s *Service) *RemovalProtection { return &s.RemovalProtection }, removalProtectionValue()),
		in("half_dead", "as in discovery; none: off", func(s *Service) *HalfDead { return &s.HalfDead }, halfDeadValue()),
		in("policy", "how it is called", func(s *Service) *Policy { return &s.Policy }, policy),
		in("links", "classes of calls that have connections of their own", func(s *Service) *[]*Link { return &s.Links }, list(pointer(linkValue()))),
		in("routes", "ordered, the first match wins; what matches none goes to the service", func(s *Service) *[]*Route { return &s.Routes }, list(pointer(route))),
		ref("rules", "rules between callers and its endpoints: conditions, condition:// and script:// URLs, or maps", func(s *Service) **Rules { return &s.Rules }, rulesValue()),
	)
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *Service) bool {
		key, outer := d.key, d.claims
		d.claims = nil
		out.Name, out.From, out.Protocol, out.Liveness = key.Value, d.origin(key), "http", "registry"
		ok := read(d, n, out)
		ok = d.finishService(n, key, out) && ok
		out.claims, d.claims = d.claims, outer
		out.sums = d.layouts.prints(out)
		return ok
	}
	return v
}

// finishService fills what follows from the rest and looks at what concerns more than one field.
func (d *decoder) finishService(n, key *yaml.Node, s *Service) bool {
	ok := nameRoutes(d, n, s.Routes)
	ok = d.grpcWebFits(n, s.Protocol) && ok
	if !has(n, "hosts") {
		host := lowerASCII(s.Name)
		if problem := hostProblem(host); problem != "" {
			ok = d.fail(key, "the name of this service is no host name: give it hosts")
		} else {
			d.claim(claimHost, key, host)
		}
		s.Hosts = []string{host}
	}
	if s.Protocol == "tcp" && !has(n, "listen") {
		ok = d.fail(n, "protocol tcp needs a local port: listen is missing")
	}
	if s.Protocol == "tcp" && len(s.Routes) > 0 {
		ok = d.failIn(n, "routes", "protocol tcp has no routes: nothing in it can be matched")
	}
	if s.Protocol == "tcp" && s.Preconnect > 0 {
		ok = d.failIn(n, "preconnect", "protocol tcp connects with each connection of a caller: nothing can be opened ahead")
	}
	if len(s.Endpoints) == 0 && len(s.Registry) == 0 && len(s.Routes) == 0 {
		d.warn(key, "has neither endpoints nor from: every call will be answered no_endpoints")
	}
	d.sameAddresses(s)
	return d.linksFit(n, s) && ok
}

// sameAddresses warns of endpoints written twice.
func (d *decoder) sameAddresses(s *Service) {
	first := make(map[string]*Endpoint, len(s.Endpoints))
	for _, e := range s.Endpoints {
		if e.Address == "" {
			continue
		}
		if f := first[e.Address]; f != nil {
			d.warnings = append(d.warnings, e.From.errorAt(d.pathText()+".endpoints", "the endpoint "+e.Address+" is given twice, first at "+f.From.String()))
			continue
		}
		first[e.Address] = e
	}
}

func endpointValue() value[Endpoint] {
	address := endpointAddress()
	short := value[Endpoint]{schema: address.schema, read: func(d *decoder, n *yaml.Node, out *Endpoint) bool {
		return address.read(d, n, &out.Address)
	}}
	v := either(short, object(
		must(in("address", "host:port, [v6]:port, a name with a port, or unix:PATH", func(e *Endpoint) *string { return &e.Address }, address)),
		in("weight", "share among the endpoints; 0: no traffic (1)", func(e *Endpoint) *int { return &e.Weight }, number(0, most)),
		in("group", "group it belongs to", func(e *Endpoint) *string { return &e.Group }, line()),
		in("zone", "zone it runs in", func(e *Endpoint) *string { return &e.Zone }, line()),
		in("region", "region it runs in", func(e *Endpoint) *string { return &e.Region }, line()),
		in("version", "version of the app", func(e *Endpoint) *string { return &e.Version }, line()),
		in("labels", "free labels, for routes to choose by", func(e *Endpoint) *map[string]string { return &e.Labels }, labels()),
	))
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *Endpoint) bool {
		out.Weight, out.From = 1, d.origin(n)
		return read(d, n, out)
	}
	return v
}

// protocol is what endpoints speak.
func protocol() value[string] { return word("http", "http2", "grpc", "tcp", "auto") }

// as puts another description in place.
func (v value[T]) as(s schema) value[T] {
	v.schema = s
	return v
}

// labels is a map of texts.
func labels() value[map[string]string] {
	return mapping(text(), func(name string) string {
		if strings.TrimSpace(name) == "" {
			return "a label needs a name"
		}
		return ""
	})
}

// line is text without line breaks and other control characters.
func line() value[string] {
	return checked(filledText(), func(s string) string {
		if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "must not contain line breaks or control characters"
		}
		return ""
	})
}

func serviceName() value[string] { return checked(line(), nameProblem) }

// nameProblem says what is wrong with the name of a service, a policy or a registry.
func nameProblem(name string) string {
	bad := strings.IndexFunc(name, func(r rune) bool {
		return r != '.' && r != '_' && r != '-' && r != ':' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	switch {
	case name == "":
		return "a name must not be empty"
	case len(name) > 253:
		return "a name has at most 253 characters"
	case bad >= 0:
		return "a name consists of letters, digits and . _ - :"
	}
	return ""
}
