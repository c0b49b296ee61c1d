package config

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// rulesValue is a list of rules; one alone may stand without the brackets.
func rulesValue() value[Rules] {
	v := list(pointer(ruleValue()))
	single := pointer(ruleValue())
	return value[Rules]{
		schema: schema{"anyOf": []any{schema{"type": "string"}, v.schema}},
		read: func(d *decoder, n *yaml.Node, out *Rules) bool {
			out.From = d.origin(n)
			at := n
			if n.Kind == yaml.AliasNode {
				at = n.Alias
			}
			if at.Kind == yaml.ScalarNode && !isNull(at) {
				out.List = make([]*Rule, 1)
				return single.read(d, n, &out.List[0])
			}
			return v.read(d, n, &out.List)
		},
	}
}

func ruleValue() value[Rule] {
	short := value[Rule]{schema: schema{"type": "string"}, read: func(d *decoder, n *yaml.Node, out *Rule) bool {
		return ruleText().read(d, n, &out.Text)
	}}
	parts := struct{ when, then, forbid string }{}
	side := func(name, doc string, at *string) field[Rule] {
		f := conditionValue()
		return field[Rule]{name: name, doc: doc, schema: f.schema, read: func(d *decoder, n *yaml.Node, _ *Rule) bool {
			return f.read(d, n, at)
		}}
	}
	v := object(
		in("name", "says which rule it was; left out: its text", func(r *Rule) *string { return &r.Name }, line()),
		in("rule", "a condition, or a condition:// or script:// URL", func(r *Rule) *string { return &r.Text }, ruleText()),
		side("when", "which calls it is about: attribute to value or list of values; a ! before a value negates it", &parts.when),
		side("then", "which endpoints it leaves, in the same form", &parts.then),
		field[Rule]{name: "forbid", doc: "the caller is refused (false)", schema: boolean().schema, read: func(d *decoder, n *yaml.Node, _ *Rule) bool {
			b := false
			ok := boolean().read(d, n, &b)
			parts.forbid = strconv.FormatBool(b)
			return ok
		}},
		in("script", "JavaScript that chooses endpoints", func(r *Rule) *string { return &r.Script }, filledText()),
		opt("priority", "larger acts first (0)", func(r *Rule) *Opt[int] { return &r.Priority }, number(-most, most)),
		opt("enabled", "false: it is kept and does not act (true)", func(r *Rule) *Opt[bool] { return &r.Enabled }, boolean()),
		opt("force", "what leaves no endpoint: true refuses, false is passed over (false)", func(r *Rule) *Opt[bool] { return &r.Force }, boolean()),
		opt("runtime", "a script is asked for each call, not once for each list of endpoints (false)", func(r *Rule) *Opt[bool] { return &r.Runtime }, boolean()),
		opt("until", "it acts no more from then on: a ban that ends by itself (2026-12-01T10:00:00Z)", func(r *Rule) *Opt[Instant] { return &r.Until }, instant()),
	)
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *Rule) bool {
		parts.when, parts.then, parts.forbid = "", "", ""
		if !read(d, n, out) {
			return false
		}
		return d.oneRule(n, out, parts.when, parts.then, parts.forbid == "true")
	}
	whole := either(short, v)
	inner := whole.read
	whole.read = func(d *decoder, n *yaml.Node, out *Rule) bool {
		out.From = d.origin(n)
		return inner(d, n, out)
	}
	return whole
}

// instant is a point in time (RFC 3339).
func instant() value[Instant] {
	return convert(line(), func(s string) (Instant, string) {
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return 0, "a time like 2026-12-01T10:00:00Z is expected, got " + strconv.Quote(s)
		}
		return Instant(t.Unix()), ""
	})
}

// oneRule sees to it that a map says one rule, and writes when and then as the condition that they are.
func (d *decoder) oneRule(n *yaml.Node, r *Rule, when, then string, forbid bool) bool {
	var forms []string
	for _, f := range []struct {
		name string
		set  bool
	}{{"rule", r.Text != ""}, {"script", r.Script != ""}, {"when and then", has(n, "when") || has(n, "then") || forbid}} {
		if f.set {
			forms = append(forms, f.name)
		}
	}
	switch {
	case len(forms) != 1:
		return d.fail(n, "one of rule, script, or when with then or forbid is expected, got %s", cmpOr(strings.Join(forms, " and "), "none"))
	case forms[0] != "when and then":
		return true
	case forbid == (then != ""):
		return d.fail(n, "either then or forbid: true is expected: a rule leaves some endpoints or refuses the caller")
	}
	r.Text = strings.TrimSpace(when + " => " + then)
	return true
}

func cmpOr(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// ruleText is the text of a rule: line breaks count as blanks.
func ruleText() value[string] {
	return convert(filledText(), func(s string) (string, string) {
		return strings.TrimSpace(strings.Map(func(r rune) rune {
			if r == '\n' || r == '\r' || r == '\t' {
				return ' '
			}
			return r
		}, s)), ""
	})
}

// conditionValue is a map from attributes to values, written as one side of a condition.
func conditionValue() value[string] {
	word := some(checked(line(), func(s string) string {
		if s = strings.TrimPrefix(s, "!"); s == "" || strings.ContainsAny(s, "=!,&<>\"'|; ") {
			return "a value of a rule has no blanks and none of = ! , & < > | ; in it, got " + strconv.Quote(s)
		}
		return ""
	}))
	return value[string]{
		schema: schema{"type": "object", "additionalProperties": word.schema},
		read: func(d *decoder, n *yaml.Node, out *string) bool {
			var terms []string
			ok := d.pairs(n, "a map", func(key, val *yaml.Node) bool {
				if strings.ContainsAny(key.Value, "=!,&<>\"'|; *$/~[]") || key.Value == "" {
					return d.fail(key, "%q is no name of an attribute", key.Value)
				}
				var values, yes, not []string
				if !word.read(d, val, &values) {
					return false
				}
				for _, v := range values {
					if v, negated := strings.CutPrefix(v, "!"); negated {
						not = append(not, v)
					} else {
						yes = append(yes, v)
					}
				}
				if len(yes) > 0 {
					terms = append(terms, key.Value+" = "+strings.Join(yes, ","))
				}
				if len(not) > 0 {
					terms = append(terms, key.Value+" != "+strings.Join(not, ","))
				}
				return true
			})
			*out = strings.Join(terms, " & ")
			return ok
		},
	}
}

func groupSwitchValue() value[GroupSwitch] {
	v := object(
		in("service", "which service; * for all (*)", func(g *GroupSwitch) *string { return &g.Service }, checked(line(), func(s string) string {
			if s == "*" {
				return ""
			}
			return nameProblem(s)
		})),
		must(in("from", "the group that calls are meant for", func(g *GroupSwitch) *string { return &g.Group }, line())),
		must(in("to", "the groups that they go to: one or a list", func(g *GroupSwitch) *[]string { return &g.To }, some(line()))),
		in("enabled", "false: it is kept and does nothing (true)", func(g *GroupSwitch) *bool { return &g.Enabled }, boolean()),
	)
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *GroupSwitch) bool {
		out.From, out.Service, out.Enabled = d.origin(n), "*", true
		if !read(d, n, out) {
			return false
		}
		if slices.Contains(out.To, out.Group) {
			return d.fail(n, "the group %q is switched to itself", out.Group)
		}
		return true
	}
	return v
}

func greyValue() value[Grey] {
	v := object(
		must(in("match", "which requests are grey; those that carry the mark "+GreyHeader+" with this name are too", func(g *Grey) *Match { return &g.Match }, matchValue())),
		must(in("labels", "what makes an endpoint grey", func(g *Grey) *map[string]string { return &g.Labels }, labels())),
		in("else", "grey requests to a service without such endpoints: any takes the normal ones, fail refuses (any)", func(g *Grey) *string { return &g.Else }, word("any", "fail")),
		in("enabled", "false: no request is grey; such endpoints still get none that are not (true)", func(g *Grey) *bool { return &g.Enabled }, boolean()),
	)
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *Grey) bool {
		key := d.key
		out.Name, out.From, out.Else, out.Enabled = key.Value, d.origin(key), "any", true
		if !read(d, n, out) {
			return false
		}
		if len(out.Labels) == 0 {
			return d.fail(n, "labels must not be empty")
		}
		return true
	}
	return v
}

// groupCircles finds switches that lead back to where they began.
func (c *Config) groupCircles() Errors {
	var all Errors
	for i := range c.Groups {
		g := &c.Groups[i]
		if !g.Enabled {
			continue
		}
		service := g.Service
		if to, _ := c.Switched(service, g.Group); len(to) == 0 {
			all = append(all, g.From.errorAt("groups", "calls meant for "+strconv.Quote(g.Group)+" go in a circle: each group they are switched to is switched away itself"))
		}
	}
	return all
}
