package config

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// fill puts variables in place: ${NAME}, ${NAME:-default}, and $${ for a literal ${. It answers what is wrong, if anything.
func fill(text string, env func(string) (string, bool)) (string, string) {
	var b strings.Builder
	for {
		i := strings.Index(text, "${")
		if i < 0 {
			b.WriteString(text)
			return b.String(), ""
		}
		if i > 0 && text[i-1] == '$' {
			b.WriteString(text[:i-1])
			b.WriteString("${")
			text = text[i+2:]
			continue
		}
		b.WriteString(text[:i])
		inner, rest, closed := strings.Cut(text[i+2:], "}")
		if !closed {
			return "", `"${" has no "}"; write $${ for a literal ${`
		}
		value, problem := variable(inner, env)
		if problem != "" {
			return "", problem
		}
		b.WriteString(value)
		text = rest
	}
}

// variable gives the value of what stands between ${ and }.
func variable(inner string, env func(string) (string, bool)) (string, string) {
	name, fallback, hasFallback := strings.Cut(inner, ":-")
	if !isVariable(name) {
		return "", "${" + inner + "} is not a variable: write ${NAME} or ${NAME:-default}, and $${ for a literal ${"
	}
	value, set := "", false
	if env != nil {
		value, set = env(name)
	}
	switch {
	case hasFallback && value == "":
		return fallback, ""
	case !set:
		return "", "the variable " + name + " is not set; ${" + name + ":-default} gives one"
	}
	return value, ""
}

func isVariable(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// scalar is the text of one plain value. Only the text of a bare scalar says what type it has; one that was quoted is text,
// and one that was filled in is whatever its place asks for.
type scalar struct {
	text           string
	quoted, filled bool
}

// bare tells whether the text itself decides the type.
func (s scalar) bare() bool { return !s.quoted && !s.filled }

// scalar reads the text of n with its variables filled in; what names what is expected here.
func (d *decoder) scalar(n *yaml.Node, what string) (s scalar, at *yaml.Node, ok bool) {
	const quotes = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle | yaml.TaggedStyle
	n, ok = d.follow(n)
	if !ok {
		return scalar{}, n, false
	}
	if n.Kind != yaml.ScalarNode || isNull(n) {
		return scalar{}, n, d.fail(n, "%s is expected, got %s", what, d.got(n))
	}
	s = scalar{text: n.Value, quoted: n.Style&quotes != 0}
	if !strings.Contains(s.text, "${") {
		return s, n, true
	}
	f, done := d.filled[n]
	if !done {
		text, problem := fill(n.Value, d.env)
		if problem != "" {
			d.fail(n, "%s", problem)
		}
		f = filling{text: text, ok: problem == ""}
		d.filled[n] = f
	}
	s.text, s.filled = f.text, true
	return s, n, f.ok
}

// nodeFromEnv fills what SIDECAR_* variables say about us; they win over the document, as flags win over them.
func nodeFromEnv(node *Node, env func(string) (string, bool)) {
	if env == nil {
		return
	}
	for _, v := range []struct {
		name string
		to   *string
	}{
		{"SIDECAR_SERVICE", &node.Service},
		{"SIDECAR_ID", &node.ID},
		{"SIDECAR_GROUP", &node.Group},
		{"SIDECAR_VERSION", &node.Version},
		{"SIDECAR_ZONE", &node.Zone},
		{"SIDECAR_REGION", &node.Region},
		{"SIDECAR_TENANT", &node.Tenant},
		{"SIDECAR_ENVIRONMENT", &node.Environment},
	} {
		if text, ok := env(v.name); ok && text != "" {
			*v.to = text
		}
	}
}
