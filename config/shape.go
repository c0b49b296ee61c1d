package config

import (
	"cmp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// field is one key of a map.
type field[T any] struct {
	name, doc string
	read      func(d *decoder, n *yaml.Node, out *T) bool // nil: known, and not built yet
	schema    schema
	required  bool
}

// in is a key whose value lives at a place in T.
func in[T, F any](name, doc string, at func(*T) *F, v value[F]) field[T] {
	return field[T]{name: name, doc: doc, schema: v.schema, read: func(d *decoder, n *yaml.Node, out *T) bool {
		return v.read(d, n, at(out))
	}}
}

// opt is a key that may be left out, and whose origin is kept.
func opt[T, F any](name, doc string, at func(*T) *Opt[F], v value[F]) field[T] {
	return field[T]{name: name, doc: doc, schema: v.schema, read: func(d *decoder, n *yaml.Node, out *T) bool {
		o := at(out)
		if !v.read(d, n, &o.Value) {
			return false
		}
		o.Set, o.From = true, d.origin(n)
		return true
	}}
}

// ref is a key whose value is kept by pointer.
func ref[T, F any](name, doc string, at func(*T) **F, v value[F]) field[T] {
	return in(name, doc, at, pointer(v))
}

// within makes fields of a part of T fields of T.
func within[T, F any](at func(*T) *F, fields []field[F]) []field[T] {
	out := make([]field[T], len(fields))
	for i, f := range fields {
		out[i] = field[T]{name: f.name, doc: f.doc, schema: f.schema, required: f.required, read: func(d *decoder, n *yaml.Node, t *T) bool {
			return f.read(d, n, at(t))
		}}
	}
	return out
}

// soon is a key that the language has and this version does not: it is refused by name.
func soon[T any](name string) field[T] { return field[T]{name: name} }

// must marks a key that cannot be left out.
func must[T any](f field[T]) field[T] {
	f.required = true
	return f
}

// object is a map of known keys.
func object[T any](fields ...field[T]) value[T] {
	index := make(map[string]*field[T], len(fields))
	for i := range fields {
		index[fields[i].name] = &fields[i]
	}
	described := objectSchema(fields)
	read := func(d *decoder, n *yaml.Node, out *T) bool {
		d.around = append(d.around, around{len(d.path), described})
		defer func() { d.around = d.around[:len(d.around)-1] }()
		ok := d.pairs(n, "a map", func(key, val *yaml.Node) bool {
			f := index[key.Value]
			switch {
			case f == nil:
				return d.fail(key, "%s", unknown(d, key.Value, fields))
			case f.read == nil:
				return d.fail(key, "not supported yet")
			}
			return f.read(d, val, out)
		})
		return required(d, n, fields) && ok
	}
	return value[T]{read: read, schema: described}
}

// choice is a map that holds exactly one of its keys.
func choice[T any](fields ...field[T]) value[T] {
	v := object(fields...)
	v.schema["minProperties"], v.schema["maxProperties"] = 1, 1
	return then(v, func(d *decoder, n *yaml.Node, _ *T) bool {
		if n, _ = d.follow(n); len(n.Content) != 2 {
			return d.fail(n, "exactly one of %s is expected", strings.Join(names(fields), ", "))
		}
		return true
	})
}

func required[T any](d *decoder, n *yaml.Node, fields []field[T]) bool {
	n, ok := d.follow(n)
	if n.Kind != yaml.MappingNode {
		return false
	}
	for _, f := range fields {
		if f.required && !has(n, f.name) {
			ok = d.fail(n, "%s is missing", f.name)
		}
	}
	return ok
}

// has tells whether the map n has the key.
func has(n *yaml.Node, key string) bool { return at(n, key) != nil }

// at finds the value of a key of the map n.
func at(n *yaml.Node, key string) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func names[T any](fields []field[T]) []string {
	var known []string
	for _, f := range fields {
		if f.read != nil {
			known = append(known, f.name)
		}
	}
	return known
}

// unknown says that a key is not known, and what was perhaps meant.
func unknown[T any](d *decoder, key string, fields []field[T]) string {
	all := make([]string, 0, len(fields))
	for _, f := range fields {
		all = append(all, f.name)
	}
	if key == "<<" {
		return "merge keys are not part of YAML 1.2: name a policy under policies and take it with use"
	}
	if near := cmp.Or(nearest(key, all), sameBeginning(key, all)); near != "" {
		return "unknown key, did you mean " + near + "?"
	}
	if place := d.elsewhere(key); place != "" {
		return "unknown key, did you mean " + place + "?"
	}
	return "unknown key; known are " + strings.Join(names(fields), ", ")
}

// pointer keeps a value by pointer.
func pointer[T any](v value[T]) value[*T] {
	return value[*T]{schema: v.schema, read: func(d *decoder, n *yaml.Node, out **T) bool {
		t := new(T)
		*out = t
		return v.read(d, n, t)
	}}
}

// list is a list of values.
func list[T any](v value[T]) value[[]T] {
	read := func(d *decoder, n *yaml.Node, out *[]T) bool {
		n, ok := d.follow(n)
		if !ok {
			return false
		}
		if n.Kind != yaml.SequenceNode {
			return d.fail(n, "a list is expected, got %s", d.got(n))
		}
		all := make([]T, len(n.Content))
		for i, c := range n.Content {
			ok = d.within(segment{index: i}, func() bool { return v.read(d, c, &all[i]) }) && ok
		}
		*out = all
		return ok
	}
	return value[[]T]{read: read, schema: schema{"type": "array", "items": v.schema}}
}

// filledList is a list with at least one value.
func filledList[T any](v value[T]) value[[]T] {
	l := checked(list(v), func(all []T) string {
		if len(all) == 0 {
			return "the list must not be empty"
		}
		return ""
	})
	l.schema["minItems"] = 1
	return l
}

// some is a list with at least one value; one value alone may stand without the brackets.
func some[T any](v value[T]) value[[]T] {
	l := filledList(v)
	return value[[]T]{
		schema: schema{"anyOf": []any{v.schema, l.schema}},
		read: func(d *decoder, n *yaml.Node, out *[]T) bool {
			if n.Kind == yaml.SequenceNode || n.Kind == yaml.AliasNode && n.Alias.Kind == yaml.SequenceNode {
				return l.read(d, n, out)
			}
			*out = make([]T, 1)
			return v.read(d, n, &(*out)[0])
		},
	}
}

// mapping is a map from names to values; test answers what is wrong with a name.
func mapping[T any](v value[T], test func(string) string) value[map[string]T] {
	read := func(d *decoder, n *yaml.Node, out *map[string]T) bool {
		if *out == nil {
			*out = make(map[string]T)
		}
		return d.pairs(n, "a map", func(key, val *yaml.Node) bool {
			if problem := test(key.Value); problem != "" {
				return d.fail(key, "%s", problem)
			}
			var t T
			ok := v.read(d, val, &t)
			(*out)[key.Value] = t
			return ok
		})
	}
	return value[map[string]T]{read: read, schema: schema{"type": "object", "additionalProperties": v.schema}}
}

// either reads a scalar by short and all else by long.
func either[T any](short, long value[T]) value[T] {
	return value[T]{
		schema: schema{"anyOf": []any{short.schema, long.schema}},
		read: func(d *decoder, n *yaml.Node, out *T) bool {
			at := n
			if n.Kind == yaml.AliasNode {
				at = n.Alias
			}
			if at.Kind == yaml.ScalarNode && !isNull(at) {
				return short.read(d, n, out)
			}
			return long.read(d, n, out)
		},
	}
}

// convert reads one type and keeps another; make answers what is wrong, if anything.
func convert[F, T any](v value[F], turn func(F) (T, string)) value[T] {
	return value[T]{schema: v.schema, read: func(d *decoder, n *yaml.Node, out *T) bool {
		var f F
		if !v.read(d, n, &f) {
			return false
		}
		t, problem := turn(f)
		if problem != "" {
			return d.fail(n, "%s", problem)
		}
		*out = t
		return true
	}}
}

// anys turns words into what a schema holds.
func anys(words []string) []any {
	out := make([]any, 0, len(words))
	for _, w := range words {
		out = append(out, w)
	}
	return out
}
