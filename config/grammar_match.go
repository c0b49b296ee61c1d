package config

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

func matchValue() value[Match] {
	short := value[Match]{schema: schema{"type": "string"}, read: readShortMatch}
	return either(short, then(object(
		in("method", "one or a list", func(m *Match) *[]string { return &m.Methods }, some(checked(text(), methodProblem))),
		in("path", "/exact, /prefix/* or {exact}, {prefix}, {regex}", func(m *Match) *PathMatch { return &m.Path }, pathValue()),
		in("header", "by name", func(m *Match) *[]ValueMatch { return &m.Headers }, valueMatches(true)),
		in("query", "parameter by name", func(m *Match) *[]ValueMatch { return &m.Query }, valueMatches(false)),
		in("cookie", "by name", func(m *Match) *[]ValueMatch { return &m.Cookies }, valueMatches(false)),
		in("segment", "part of the path between slashes, by its number from 1", func(m *Match) *[]ValueMatch { return &m.Segments }, segmentMatches()),
		in("host", "one or a list, *.suffix included", func(m *Match) *[]string { return &m.Hosts }, some(hostPattern())),
		in("caller", "service name, network or label=value; one or a list", func(m *Match) *[]string { return &m.Callers }, some(checked(line(), callerProblem))),
		field[Match]{name: "percent", doc: "share of the requests, by hash of the request id", schema: ratio().schema, read: func(d *decoder, n *yaml.Node, m *Match) bool {
			m.HasPercent = true
			return ratio().read(d, n, &m.Percent)
		}},
		in("grpc", "gRPC calls of a method: pkg.Service/Method, * on either side", func(m *Match) *string { return &m.GRPC }, checked(line(), grpcProblem)),
		soon[Match]("rpc"),
	), func(d *decoder, n *yaml.Node, m *Match) bool {
		if m.GRPC != "" && m.Path.Kind != PathAny {
			return d.fail(n, "only one of path, grpc is expected: the path of a gRPC call is /pkg.Service/Method")
		}
		return true
	}))
}

// grpcProblem says what is wrong with a gRPC method.
func grpcProblem(s string) string {
	service, method, two := strings.Cut(s, "/")
	part := func(s string) bool { return s == "*" || isToken(s) && !strings.ContainsAny(s, "*|`") }
	hint := ""
	switch {
	case two && part(service) && part(method):
		return ""
	case service == "" && grpcProblem(method) == "":
		hint = ": did you mean " + method + "?"
	case !two && part(service):
		hint = ": did you mean " + service + "/*?"
	}
	return "pkg.Service/Method is expected, * on either side, got " + strconv.Quote(s) + hint
}

// readShortMatch reads "METHOD PATH" or "PATH".
func readShortMatch(d *decoder, n *yaml.Node, out *Match) bool {
	s, n, ok := d.scalar(n, "a match (like GET /v1/*)")
	if !ok {
		return false
	}
	words := strings.Fields(s.text)
	if len(words) == 0 || len(words) > 2 {
		return d.fail(n, "a match is METHOD PATH or PATH (like GET /v1/*), got %q", s.text)
	}
	if len(words) == 2 {
		if problem := methodProblem(words[0]); problem != "" {
			return d.fail(n, "%s", problem)
		}
		out.Methods = words[:1]
	}
	path, problem := parsePath(words[len(words)-1])
	if problem != "" {
		return d.fail(n, "%s", problem)
	}
	out.Path = path
	return true
}

// parsePath reads /exact and /prefix/*.
func parsePath(s string) (PathMatch, string) {
	below, star := strings.CutSuffix(s, "*")
	switch {
	case !strings.HasPrefix(s, "/"):
		return PathMatch{}, "a path starts with /, got " + strconv.Quote(s)
	case strings.ContainsAny(s, "?#"):
		return PathMatch{}, "a path has no query: match it with query: {name: value}, got " + strconv.Quote(s)
	case strings.Contains(below, "*") || star && !strings.HasSuffix(below, "/"):
		return PathMatch{}, "* stands only at the end behind a /, got " + strconv.Quote(s) + ": use {prefix: …} or {regex: …}"
	case star:
		return PathMatch{Kind: PathBelow, Value: below}, ""
	}
	return PathMatch{Kind: PathExact, Value: s}, ""
}

func pathValue() value[PathMatch] {
	short := convert(text(), parsePath)
	kind := func(name, doc string, k PathKind, v value[string]) field[PathMatch] {
		return in(name, doc, func(p *PathMatch) *string { p.Kind = k; return &p.Value }, v)
	}
	return either(short, choice(
		kind("exact", "the path as a whole", PathExact, requestPath()),
		kind("prefix", "how it begins", PathPrefix, requestPath()),
		kind("regex", "an RE2 expression, anchored at neither end", PathRegex, regex()),
	))
}

// methodProblem says what is wrong with a method; methods are compared with case.
func methodProblem(s string) string {
	standard := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"}
	switch {
	case !isToken(s):
		return strconv.Quote(s) + " is no method"
	case !slices.Contains(standard, s) && slices.Contains(standard, strings.ToUpper(s)):
		return "methods are in capitals, got " + strconv.Quote(s) + ": did you mean " + strings.ToUpper(s) + "?"
	}
	return ""
}

// callerProblem says what is wrong with a caller: a service name, a network or label=value.
func callerProblem(s string) string {
	if key, _, label := strings.Cut(s, "="); label {
		if strings.TrimSpace(key) == "" {
			return "a label needs a name, got " + strconv.Quote(s)
		}
		return ""
	}
	if strings.Contains(s, "/") {
		if _, ok := parseNetwork(s); !ok {
			return "a service name, a network (like 10.0.0.0/8) or label=value is expected, got " + strconv.Quote(s)
		}
		return ""
	}
	if s == "*" {
		return ""
	}
	return nameProblem(s)
}

// valueMatches is a map from names to conditions, in the order written. Header names are kept in lower case.
func valueMatches(header bool) value[[]ValueMatch] {
	v := valueMatch()
	read := func(d *decoder, n *yaml.Node, out *[]ValueMatch) bool {
		var all []ValueMatch
		ok := d.pairs(n, "a map", func(key, val *yaml.Node) bool {
			name := key.Value
			if header {
				name = lowerASCII(name)
				if problem := fieldNameProblem(name); problem != "" {
					return d.fail(key, "%s", problem)
				}
			}
			if name == "" {
				return d.fail(key, "a name must not be empty")
			}
			if slices.ContainsFunc(all, func(m ValueMatch) bool { return m.Name == name }) {
				return d.fail(key, "given twice in different case")
			}
			m := ValueMatch{}
			ok := v.read(d, val, &m)
			m.Name = name
			all = append(all, m)
			return ok
		})
		*out = all
		return ok
	}
	return value[[]ValueMatch]{read: read, schema: schema{"type": "object", "additionalProperties": v.schema}}
}

// segmentMatches is a map from numbers of path segments to conditions.
func segmentMatches() value[[]ValueMatch] {
	return then(valueMatches(false), func(d *decoder, n *yaml.Node, out *[]ValueMatch) bool {
		for _, m := range *out {
			if i, ok := whole(m.Name); !ok || i < 1 || i > 99 || m.Name[0] == '0' {
				return d.fail(n, "the number of a part of the path from 1 to 99 is expected, got %q: of /users/7, part 1 is users and part 2 is 7", m.Name)
			}
		}
		return true
	})
}

// condition is what a value match may say, before it is made into one.
type condition struct {
	match ValueMatch
	in    []element
}

// element is one of a list whose type depends on its neighbour mod.
type element struct {
	scalar
	node *yaml.Node
}

func valueMatch() value[ValueMatch] {
	exact := convert(text(), func(s string) (ValueMatch, string) { return ValueMatch{Text: s}, "" })
	kind := func(name, doc string, k ValueKind, v value[string]) field[condition] {
		return in(name, doc, func(c *condition) *string { c.match.Kind = k; return &c.match.Text }, v)
	}
	elements := value[element]{schema: schema{"type": []any{"string", "integer"}}, read: func(d *decoder, n *yaml.Node, out *element) (ok bool) {
		out.scalar, out.node, ok = d.scalar(n, "a value")
		return ok
	}}
	long := object(
		field[condition]{name: "present", doc: "whether it is there at all", schema: boolean().schema, read: func(d *decoder, n *yaml.Node, c *condition) bool {
			var is bool
			ok := boolean().read(d, n, &is)
			if c.match.Kind = ValueAbsent; is {
				c.match.Kind = ValuePresent
			}
			return ok
		}},
		kind("prefix", "how it begins", ValuePrefix, filledText()),
		kind("regex", "an RE2 expression, anchored at neither end", ValueRegex, regex()),
		field[condition]{name: "mod", doc: "the number in the value, divided by this, leaves one of in", schema: number(1, most).schema, read: func(d *decoder, n *yaml.Node, c *condition) bool {
			var m int
			ok := number(1, most).read(d, n, &m)
			c.match.Mod = uint64(m)
			return ok
		}},
		in("in", "one of these", func(c *condition) *[]element { return &c.in }, filledList(elements)),
	)
	return either(exact, value[ValueMatch]{schema: long.schema, read: func(d *decoder, n *yaml.Node, out *ValueMatch) bool {
		var c condition
		if !long.read(d, n, &c) {
			return false
		}
		*out = c.match
		return oneCondition(d, n) && listed(d, n, c.in, out)
	}})
}

// oneCondition allows one of the ways to compare.
func oneCondition(d *decoder, n *yaml.Node) bool {
	count := 0
	for _, key := range []string{"present", "prefix", "regex", "in"} {
		if has(n, key) {
			count++
		}
	}
	if count != 1 {
		return d.fail(n, "exactly one of present, prefix, regex, in is expected (and mod with in)")
	}
	if has(n, "mod") && !has(n, "in") {
		return d.fail(n, "mod needs in")
	}
	return true
}

// listed makes texts or remainders of the elements of in.
func listed(d *decoder, n *yaml.Node, elements []element, out *ValueMatch) bool {
	if len(elements) == 0 {
		return true
	}
	if out.Mod == 0 {
		out.Kind = ValueIn
		for _, e := range elements {
			if e.bare() && typed(e.text) {
				return d.fail(e.node, "text is expected, got %s: put it in quotes", e.text)
			}
			out.In = append(out.In, e.text)
		}
		return true
	}
	out.Kind = ValueMod
	for _, e := range elements {
		v, is := whole(e.text)
		if !is || v < 0 || uint64(v) >= out.Mod {
			return d.fail(e.node, "a remainder from 0 to %d is expected, got %s", out.Mod-1, quoted(e.scalar))
		}
		out.Residues = append(out.Residues, uint64(v))
	}
	return true
}

// matchText writes a match as a person would: it names a route that has no name.
func matchText(m *Match) string {
	var parts []string
	if m.GRPC != "" {
		parts = append(parts, "grpc:"+m.GRPC)
	}
	if len(m.Methods) > 0 {
		parts = append(parts, strings.Join(m.Methods, ","))
	}
	switch m.Path.Kind {
	case PathAny:
	case PathBelow, PathPrefix:
		parts = append(parts, m.Path.Value+"*")
	case PathRegex:
		parts = append(parts, "~"+m.Path.Value)
	case PathExact:
		parts = append(parts, m.Path.Value)
	}
	for _, group := range []struct {
		name string
		of   []ValueMatch
	}{{"header", m.Headers}, {"query", m.Query}, {"cookie", m.Cookies}, {"segment", m.Segments}} {
		for _, v := range group.of {
			parts = append(parts, group.name+":"+v.Name)
		}
	}
	for _, h := range m.Hosts {
		parts = append(parts, "host:"+h)
	}
	for _, c := range m.Callers {
		parts = append(parts, "caller:"+c)
	}
	if m.HasPercent {
		parts = append(parts, strconv.FormatFloat(m.Percent*100, 'f', -1, 64)+"%")
	}
	if len(parts) == 0 {
		return "*"
	}
	return strings.Join(parts, " ")
}
