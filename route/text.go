package route

import (
	"strconv"
	"strings"
)

// String is the text form of a match for logs and metrics, as in "GET /v1/items/*": methods joined by "|", the path
// ("~" before a regular expression, "..." behind a plain prefix), then the other parts. The zero Match is "*".
func (m *Match) String() string {
	var words []string
	add := func(s string) { words = append(words, s) }
	if len(m.Methods) > 0 {
		add(strings.Join(m.Methods, "|"))
	}
	switch p := m.Path; p.Kind {
	case PathAny:
	case PathExact:
		add(p.Value)
	case PathPrefix:
		add(p.Value + "...")
	case PathBelow:
		add(p.Value + "*")
	case PathRegex:
		add("~" + p.Value)
	}
	if len(m.Hosts) > 0 {
		add("host=" + strings.Join(m.Hosts, "|"))
	}
	if len(m.Callers) > 0 {
		add("caller=" + strings.Join(m.Callers, "|"))
	}
	for _, l := range []struct {
		kind   string
		values []Value
	}{{"header", m.Headers}, {"query", m.Query}, {"cookie", m.Cookies}, {"segment", m.Segments}} {
		for i := range l.values {
			add(l.kind + ":" + l.values[i].String())
		}
	}
	if m.HasPercent {
		add(strconv.FormatFloat(m.Percent*100, 'g', 6, 64) + "%")
	}
	if len(words) == 0 {
		return "*"
	}
	return strings.Join(words, " ")
}

// String is the text form of one comparison, as in "x-uid%20=3|4".
func (v *Value) String() string {
	switch v.Kind {
	case ValueExact:
		return v.Name + "=" + v.Text
	case ValuePresent:
		return v.Name
	case ValueAbsent:
		return "!" + v.Name
	case ValuePrefix:
		return v.Name + "=" + v.Text + "..."
	case ValueRegex:
		return v.Name + "~" + v.Text
	case ValueMedia:
		return v.Name + ":" + v.Text
	case ValueIn:
		return v.Name + "=" + strings.Join(v.In, "|")
	case ValueMod:
		b := append([]byte(v.Name), '%')
		b = strconv.AppendUint(b, v.Mod, 10)
		for i, r := range v.Residues {
			b = append(b, "|="[btoi(i == 0)])
			b = strconv.AppendUint(b, r, 10)
		}
		return string(b)
	}
	return v.Name + "?"
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
