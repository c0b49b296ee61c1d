package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

func routeValue(policy value[Policy], outbound bool) value[Route] {
	match := matchValue()
	to := ref("to", "where it goes; left out: the whole service", func(r *Route) **To { return &r.To }, toValue())
	if !outbound {
		to.schema = schema{"not": schema{}}
		to.read = func(d *decoder, n *yaml.Node, _ *Route) bool {
			return d.fail(n, "an inbound route has one destination, our own app")
		}
	}
	v := object(
		in("name", "labels metrics and logs; left out: the text of the match", func(r *Route) *string { return &r.Name }, line()),
		in("match", "what it takes: METHOD PATH, or a map; left out: everything", func(r *Route) *Match { return &r.Match }, match),
		in("policy", "own fields win over the service's", func(r *Route) *Policy { return &r.Policy }, policy),
		ref("rewrite", "changes before it is sent on", func(r *Route) **Rewrite { return &r.Rewrite }, rewriteValue()),
		to,
		ref("respond", "answers here", func(r *Route) **Respond { return &r.Respond }, respondValue()),
		ref("redirect", "answers with another location", func(r *Route) **Redirect { return &r.Redirect }, redirectValue()),
	)
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *Route) bool {
		out.From = d.origin(n)
		if !read(d, n, out) {
			return false
		}
		if out.Name == "" {
			out.Name = matchText(&out.Match)
		}
		return oneAction(d, n, out)
	}
	return v
}

// oneAction allows one of to, respond and redirect, and rewrite only for what is sent on.
func oneAction(d *decoder, n *yaml.Node, r *Route) bool {
	var actions []string
	for name, set := range map[string]bool{"to": r.To != nil, "respond": r.Respond != nil, "redirect": r.Redirect != nil} {
		if set {
			actions = append(actions, name)
		}
	}
	slices.Sort(actions)
	if len(actions) > 1 {
		return d.fail(n, "at most one of to, respond, redirect is expected, got %s", strings.Join(actions, " and "))
	}
	if r.Rewrite != nil && (r.Respond != nil || r.Redirect != nil) {
		return d.fail(n, "rewrite changes what is sent on, but %s sends nothing on", actions[0])
	}
	return true
}

// nameRoutes sees to it that a name that was given stands for one route.
func nameRoutes(d *decoder, n *yaml.Node, routes []*Route) bool {
	nodes := at(n, "routes")
	if nodes == nil || len(routes) < 2 {
		return true
	}
	if nodes.Kind == yaml.AliasNode {
		nodes = nodes.Alias
	}
	ok := true
	first := map[string]Origin{}
	for i, r := range routes {
		if i >= len(nodes.Content) || !has(nodes.Content[i], "name") || r == nil || r.Name == "" {
			continue
		}
		if f, twice := first[r.Name]; twice {
			d.errors = append(d.errors, r.From.errorAt(d.pathText()+".routes["+strconv.Itoa(i)+"]", "the name "+strconv.Quote(r.Name)+" is given twice, first at "+f.String()))
			ok = false
			continue
		}
		first[r.Name] = r.From
	}
	return ok
}

func toValue() value[To] {
	split := object(
		must(in("weight", "share, relative to the other branches", func(s *Split) *int { return &s.Weight }, number(0, most))),
		in("service", "another service", func(s *Split) *string { return &s.Service }, claimed(claimService, line())),
		in("labels", "endpoints that carry all of these", func(s *Split) *map[string]string { return &s.Labels }, labels()),
	)
	v := object(
		in("service", "another service", func(t *To) *string { return &t.Service }, claimed(claimService, line())),
		in("labels", "endpoints that carry all of these", func(t *To) *map[string]string { return &t.Labels }, labels()),
		in("else", "when no endpoint carries them: any or fail (fail)", func(t *To) *string { return &t.Else }, word("any", "fail")),
		in("split", "a choice by weight", func(t *To) *[]Split { return &t.Split }, filledList(split)),
	)
	return then(v, func(d *decoder, n *yaml.Node, out *To) bool {
		total := 0
		for _, s := range out.Split {
			total += s.Weight
		}
		labelled := len(out.Labels) > 0 || slices.ContainsFunc(out.Split, func(s Split) bool { return len(s.Labels) > 0 })
		switch {
		case out.Split != nil && (out.Service != "" || out.Labels != nil):
			return d.fail(n, "split stands alone: its branches name the service and the labels")
		case out.Split != nil && total == 0:
			return d.fail(n, "the weights of a split must not all be 0")
		case out.Else != "" && !labelled:
			return d.fail(n, "else needs labels")
		case out.Split == nil && out.Service == "" && len(out.Labels) == 0:
			return d.fail(n, "one of service, labels, split is expected")
		case out.Else == "" && labelled:
			out.Else = "fail"
		}
		return true
	})
}

func respondValue() value[Respond] {
	v := object(
		in("status", "from 200 to 599 (200)", func(r *Respond) *int { return &r.Status }, number(200, 599)),
		in("headers", "of the answer", func(r *Respond) *[]Header { return &r.Headers }, headers()),
		in("body", "of the answer", func(r *Respond) *string { return &r.Body }, text()),
	)
	return preset(then(v, func(d *decoder, n *yaml.Node, out *Respond) bool {
		if (out.Status == 204 || out.Status == 205 || out.Status == 304) && out.Body != "" {
			return d.fail(n, "an answer with status %d has no body", out.Status)
		}
		return true
	}), Respond{Status: 200})
}

func redirectValue() value[Redirect] {
	status := checked(number(300, 399), func(s int) string {
		if !slices.Contains([]int{301, 302, 303, 307, 308}, s) {
			return "one of 301, 302, 303, 307, 308 is expected, got " + strconv.Itoa(s)
		}
		return ""
	}).as(orVariable(schema{"enum": []any{301, 302, 303, 307, 308}}))
	location := checked(line(), func(s string) string {
		if !strings.HasPrefix(s, "/") && !strings.Contains(s, "://") || strings.ContainsAny(s, " \"<>") {
			return "a URL or a path that starts with / is expected, got " + strconv.Quote(s)
		}
		return ""
	})
	return preset(object(
		must(in("to", "the URL or path", func(r *Redirect) *string { return &r.To }, location)),
		in("status", "301, 302, 303, 307 or 308 (302)", func(r *Redirect) *int { return &r.Status }, status),
	), Redirect{Status: 302})
}

// preset starts from a value that is not the zero value.
func preset[T any](v value[T], from T) value[T] {
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *T) bool {
		*out = from
		return read(d, n, out)
	}
	return v
}

func rewriteValue() value[Rewrite] {
	pathPrefix := checked(line(), func(s string) string {
		if !strings.HasPrefix(s, "/") || strings.ContainsAny(s, "?# ") {
			return "a path that starts with / is expected, got " + strconv.Quote(s)
		}
		return ""
	})
	prefixes := object(
		must(in("from", "the beginning that is replaced", func(r *Rewrite) *string { return &r.PrefixFrom }, pathPrefix)),
		must(in("to", "what stands there then", func(r *Rewrite) *string { return &r.PrefixTo }, pathPrefix)),
	)
	v := object(
		in("prefix", "replaces the beginning of the path", func(r *Rewrite) *Rewrite { r.HasPrefix = true; return r }, prefixes),
		in("path", "replaces the whole path", func(r *Rewrite) *string { return &r.Path }, requestPath()),
		in("host", "replaces the host", func(r *Rewrite) *string { return &r.Host }, checked(line(), func(s string) string {
			if strings.Contains(s, "*") {
				return "a host to send on has no *, got " + strconv.Quote(s)
			}
			return hostProblem(lowerASCII(s))
		})),
		in("headers", "of the request", func(r *Rewrite) *Rewrite { return r }, object(
			in("set", "name and value; replaces what the caller sent", func(r *Rewrite) *[]Header { return &r.SetHeaders }, headers()),
			in("remove", "names", func(r *Rewrite) *[]string { return &r.RemoveHeaders }, list(checked(fieldName(), framingProblem))),
		)),
	)
	return then(v, func(d *decoder, n *yaml.Node, out *Rewrite) bool {
		if out.HasPrefix && out.Path != "" {
			return d.fail(n, "only one of prefix, path is expected")
		}
		return true
	})
}

// headers is a map from field names to values, in the order written.
func headers() value[[]Header] {
	v := text()
	read := func(d *decoder, n *yaml.Node, out *[]Header) bool {
		var all []Header
		ok := d.pairs(n, "a map", func(key, val *yaml.Node) bool {
			name := key.Value
			if problem := fieldNameProblem(name) + framingProblem(name); problem != "" {
				return d.fail(key, "%s", problem)
			}
			if slices.ContainsFunc(all, func(h Header) bool { return strings.EqualFold(h.Name, name) }) {
				return d.fail(key, "given twice in different case")
			}
			h := Header{Name: name}
			if !v.read(d, val, &h.Value) {
				return false
			}
			if strings.ContainsFunc(h.Value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) || strings.TrimSpace(h.Value) != h.Value {
				return d.fail(val, "a header value has no line breaks, control characters or spaces at its ends")
			}
			all = append(all, h)
			return true
		})
		*out = all
		return ok
	}
	return value[[]Header]{read: read, schema: schema{"type": "object", "additionalProperties": v.schema}}
}

// fieldName is the name of a header field.
func fieldName() value[string] { return checked(text(), fieldNameProblem) }

// fieldNameProblem holds names to RFC 9110 section 5.6.2: a token.
func fieldNameProblem(s string) string {
	if !isToken(s) {
		return strconv.Quote(s) + " is no header name"
	}
	return ""
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// framingProblem refuses the fields that belong to one connection or frame the message: a rule must not touch them.
func framingProblem(name string) string {
	switch lowerASCII(name) {
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "te", "trailer", "upgrade", "content-length", "proxy-authenticate", "proxy-authorization":
		return name + " belongs to one connection or frames the message: it cannot be changed by a rule"
	case "host":
		return "the host is changed with rewrite: {host: …}"
	}
	return ""
}

// requestPath is a path without query.
func requestPath() value[string] {
	return checked(line(), func(s string) string {
		if !strings.HasPrefix(s, "/") || strings.ContainsAny(s, "?# ") {
			return "a path that starts with / is expected, without query, got " + strconv.Quote(s)
		}
		return ""
	})
}

// regex is an RE2 expression.
func regex() value[string] {
	return checked(text(), func(s string) string {
		if _, err := regexp.Compile(s); err != nil {
			return "not a regular expression (RE2): " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")
		}
		return ""
	})
}
