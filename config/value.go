package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// value is how one kind of value is read, and how it is described to an editor: the grammar is built from these, so that
// the loader and the schema cannot disagree.
type value[T any] struct {
	read   func(d *decoder, n *yaml.Node, out *T) bool
	schema schema
}

// checked adds a rule; test answers what is wrong with the value.
func checked[T any](v value[T], test func(T) string) value[T] {
	return then(v, func(d *decoder, n *yaml.Node, out *T) bool {
		if problem := test(*out); problem != "" {
			return d.fail(n, "%s", problem)
		}
		return true
	})
}

// then runs more after a value was read well.
func then[T any](v value[T], more func(d *decoder, n *yaml.Node, out *T) bool) value[T] {
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *T) bool { return read(d, n, out) && more(d, n, out) }
	return v
}

// text is a string. A bare number, truth value or nothing is not: whether 1.10 is 1.1 must not depend on a tool on the way.
func text() value[string] {
	return value[string]{schema: schema{"type": "string"}, read: func(d *decoder, n *yaml.Node, out *string) bool {
		s, n, ok := d.scalar(n, "text")
		switch {
		case !ok:
			return false
		case s.bare() && typed(s.text):
			return d.fail(n, "text is expected, got %s: put it in quotes", s.text)
		case strings.ContainsRune(s.text, 0):
			return d.fail(n, "text must not contain a NUL character")
		}
		*out = s.text
		return true
	}}
}

// filledText is text that must not be empty.
func filledText() value[string] {
	v := checked(text(), func(s string) string {
		if strings.TrimSpace(s) == "" {
			return "must not be empty"
		}
		return ""
	})
	v.schema = schema{"type": "string", "minLength": 1}
	return v
}

// word is one of a few words.
func word(known ...string) value[string] {
	what := "one of " + strings.Join(known, ", ")
	if len(known) == 1 {
		what = known[0]
	}
	return value[string]{schema: orVariable(schema{"enum": anys(known)}), read: func(d *decoder, n *yaml.Node, out *string) bool {
		s, n, ok := d.scalar(n, what)
		if !ok {
			return false
		}
		if slices.Contains(known, s.text) {
			*out = s.text
			return true
		}
		if near := nearest(s.text, known); near != "" {
			return d.fail(n, "%s is expected, got %q: did you mean %s?", what, s.text, near)
		}
		return d.fail(n, "%s is expected, got %q", what, s.text)
	}}
}

// boolean is true or false, and nothing else that older tools read as such.
func boolean() value[bool] {
	return value[bool]{schema: orVariable(schema{"type": "boolean"}), read: func(d *decoder, n *yaml.Node, out *bool) bool {
		s, n, ok := d.scalar(n, "true or false")
		if !ok {
			return false
		}
		b, is := truth(s.text)
		if !is || s.quoted && !s.filled {
			return d.fail(n, "true or false is expected, got %s", quoted(s))
		}
		*out = b
		return true
	}}
}

// number is a whole number within bounds.
func number(low, high int) value[int] {
	what := fmt.Sprintf("a whole number from %d to %d", low, high)
	return value[int]{
		schema: orVariable(schema{"type": "integer", "minimum": low, "maximum": high}),
		read: func(d *decoder, n *yaml.Node, out *int) bool {
			s, n, ok := d.scalar(n, what)
			if !ok {
				return false
			}
			v, is := whole(s.text)
			if !is || s.quoted && !s.filled || v < int64(low) || v > int64(high) {
				return d.fail(n, "%s is expected, got %s", what, quoted(s))
			}
			*out = int(v)
			return true
		},
	}
}

// duration is a time span with its unit, within bounds. A bare 0 needs no unit.
func duration(low, high time.Duration) value[time.Duration] {
	const what = "a duration is expected (like 50ms, 1s, 5m)"
	return value[time.Duration]{
		schema: orVariable(schema{"type": []any{"string", "integer"}, "pattern": `^(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`, "maximum": 0, "minimum": 0}),
		read: func(d *decoder, n *yaml.Node, out *time.Duration) bool {
			s, n, ok := d.scalar(n, "a duration (like 50ms, 1s, 5m)")
			if !ok {
				return false
			}
			v, err := time.ParseDuration(s.text)
			switch {
			case isNumber(s.text) && (err != nil || v != 0):
				return d.fail(n, `%s, got %q: which unit? (ms, s, m, h)`, what, s.text)
			case err != nil || strings.HasPrefix(s.text, "+"):
				return d.fail(n, "%s, got %q", what, s.text)
			case v < low || v > high:
				return d.fail(n, "a duration from %s to %s is expected, got %q", Span(low), Span(high), s.text)
			}
			*out = v
			return true
		},
	}
}

// size is a number of bytes with its unit, within bounds. A bare 0 needs no unit.
func size(low, high int64) value[int64] {
	const what = "a size is expected (like 64KiB, 1MB)"
	return value[int64]{
		schema: orVariable(schema{"type": []any{"string", "integer"}, "pattern": `^(0|([0-9]+(\.[0-9]+)?)(B|kB|KB|MB|GB|KiB|MiB|GiB))$`, "maximum": 0, "minimum": 0}),
		read: func(d *decoder, n *yaml.Node, out *int64) bool {
			s, n, ok := d.scalar(n, "a size (like 64KiB, 1MB)")
			if !ok {
				return false
			}
			v, is := bytesOf(s.text)
			switch {
			case isNumber(s.text) && v != 0:
				return d.fail(n, "%s, got %q: which unit? (B, KB, MB, GB, KiB, MiB, GiB)", what, s.text)
			case !is:
				return d.fail(n, "%s, got %q", what, s.text)
			case v < low || v > high:
				return d.fail(n, "a size from %d to %d bytes is expected, got %q", low, high, s.text)
			}
			*out = v
			return true
		},
	}
}

// ratio is a share, written 20% or 0.2.
func ratio() value[float64] {
	const what = "a ratio is expected (like 20% or 0.2)"
	return value[float64]{
		schema: orVariable(schema{"type": []any{"string", "number"}, "minimum": 0, "maximum": 1, "pattern": `^([0-9]+(\.[0-9]+)?%|0(\.[0-9]+)?|1(\.0+)?)$`}),
		read: func(d *decoder, n *yaml.Node, out *float64) bool {
			s, n, ok := d.scalar(n, "a ratio (like 20% or 0.2)")
			if !ok {
				return false
			}
			digits, percent := strings.CutSuffix(s.text, "%")
			v, err := strconv.ParseFloat(digits, 64)
			if err != nil || !isNumber(digits) {
				return d.fail(n, "%s, got %q", what, s.text)
			}
			if !percent && v > 1 && v <= 100 {
				return d.fail(n, "a ratio is from 0 to 1, or from 0%% to 100%%, got %q: did you mean %s%%?", s.text, s.text)
			}
			if percent {
				v /= 100
			}
			if v < 0 || v > 1 {
				return d.fail(n, "a ratio is from 0 to 1, or from 0%% to 100%%, got %q", s.text)
			}
			*out = v
			return true
		},
	}
}

// isNull tells whether n is a bare nothing.
func isNull(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode || n.Style != 0 {
		return false
	}
	switch n.Value {
	case "", "~", "null", "Null", "NULL":
		return true
	}
	return false
}

// truth reads the truth values of YAML 1.2.
func truth(s string) (val, ok bool) {
	switch s {
	case "true", "True", "TRUE":
		return true, true
	case "false", "False", "FALSE":
		return false, true
	}
	return false, false
}

// typed tells whether a bare scalar of this text is something else than text in YAML 1.2.
func typed(s string) bool {
	if _, is := truth(s); is {
		return true
	}
	return isNumber(s)
}

// isNumber follows the core schema of YAML 1.2.
func isNumber(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	switch strings.TrimLeft(s, "+-") {
	case ".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN":
		return true
	}
	if len(s) > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'o') {
		_, err := strconv.ParseUint(s, 0, 64)
		return err == nil && !strings.Contains(s, "_")
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && !strings.ContainsRune("+-.eE", rune(c)) {
			return false
		}
	}
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

// whole reads a decimal number. A float without a fraction passes, since some tools rewrite 1000000 as 1e+06.
func whole(s string) (int64, bool) {
	if v, err := strconv.ParseInt(s, 10, 64); err == nil {
		return v, true
	}
	if !isNumber(s) {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// bytesOf reads a number of bytes.
func bytesOf(s string) (int64, bool) {
	units := [...]struct {
		name  string
		bytes float64
	}{
		{"KiB", 1 << 10},
		{"MiB", 1 << 20},
		{"GiB", 1 << 30},
		{"kB", 1e3},
		{"KB", 1e3},
		{"MB", 1e6},
		{"GB", 1e9},
		{"B", 1},
		{"", 1},
	}
	for _, u := range units {
		digits, is := strings.CutSuffix(s, u.name)
		if !is {
			continue
		}
		v, err := strconv.ParseFloat(digits, 64)
		if err != nil || !isNumber(digits) || v < 0 || v*u.bytes > 1<<53 {
			return 0, false
		}
		return int64(v * u.bytes), true
	}
	return 0, false
}

// Span writes a duration the way a person does: 1h and not 1h0m0s.
func Span(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// quoted writes a scalar into a message, with quotes where it had some.
func quoted(s scalar) string {
	if s.bare() && typed(s.text) {
		return s.text
	}
	return strconv.Quote(s.text)
}
