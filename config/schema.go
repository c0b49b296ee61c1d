package config

import (
	"encoding/json"
	"maps"
)

// schema is one JSON Schema (draft 2020-12) object.
type schema map[string]any

// Schema gives the JSON Schema of a document, built from the same description that the loader follows.
func Schema() []byte {
	g := newGrammar()
	root := maps.Clone(g.document.schema)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "sidecar configuration"
	root["$defs"] = g.defs
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil // unreachable: the tree holds only maps, lists, texts and numbers
	}
	return append(out, '\n')
}

// objectSchema describes a map of known keys. Keys that are not built yet are left out, so that no editor offers them.
func objectSchema[T any](fields []field[T]) schema {
	properties, required := schema{}, []any(nil)
	for _, f := range fields {
		if f.read == nil {
			continue
		}
		p := maps.Clone(f.schema)
		if f.doc != "" {
			p["description"] = f.doc
		}
		properties[f.name] = p
		if f.required {
			required = append(required, f.name)
		}
	}
	s := schema{"type": "object", "additionalProperties": false, "properties": properties}
	if required != nil {
		s["required"] = required
	}
	return s
}

// orVariable allows text with a variable in it where another type is expected.
func orVariable(s schema) schema {
	return schema{"anyOf": []any{s, schema{"$ref": "#/$defs/variable"}}}
}

// define gives a value a name in the schema, so that it is written down once.
func define[T any](g *grammar, name string, v value[T]) value[T] {
	g.defs[name] = v.schema
	v.schema = schema{"$ref": "#/$defs/" + name}
	return v
}
