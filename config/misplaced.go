package config

import (
	"maps"
	"slices"
	"strings"
)

// around is a map that is being read: how deep it stands, and what it may hold.
type around struct {
	depth  int
	schema schema
}

// mostPlaces bounds how many places of a key are named: a key that is known in more is no hint.
const mostPlaces = 2

// elsewhere says where a key that is not known in the innermost map has a place, near by: in a map around it, or in a part of
// it. Empty: it has none. The path being read ends in the key.
func (d *decoder) elsewhere(key string) string {
	n := len(d.around) - 1
	for _, a := range slices.Backward(d.around[:n]) {
		if _, ok := d.properties(a.schema)[key]; ok {
			return joined(d.path[:a.depth], key)
		}
	}
	here := d.around[n]
	for depth := 1; depth <= 2; depth++ {
		places := d.below(here.schema, key, depth)
		if len(places) > mostPlaces {
			return ""
		}
		if len(places) > 0 {
			for i, p := range places {
				places[i] = joined(d.path[:here.depth], p)
			}
			return strings.Join(places, " or ")
		}
	}
	return ""
}

// below lists where a key stands so many steps below a map.
func (d *decoder) below(s schema, key string, depth int) []string {
	var places []string
	properties := d.properties(s)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		part, _ := properties[name].(schema)
		if depth > 1 {
			for _, p := range d.below(part, key, depth-1) {
				places = append(places, name+"."+p)
			}
		} else if _, ok := d.properties(part)[key]; ok {
			places = append(places, name+"."+key)
		}
	}
	return places
}

// properties are the keys of a map, whether it is described here, by name, or as one of several forms.
func (d *decoder) properties(s schema) schema {
	if name, ok := s["$ref"].(string); ok {
		s, _ = d.defs[strings.TrimPrefix(name, "#/$defs/")].(schema)
	}
	if p, ok := s["properties"].(schema); ok {
		return p
	}
	forms, _ := s["anyOf"].([]any)
	for _, f := range forms {
		if f, ok := f.(schema); ok {
			if p := d.properties(f); p != nil {
				return p
			}
		}
	}
	return nil
}

func joined(path []segment, key string) string {
	if at := textOf(path); at != "" {
		return at + "." + key
	}
	return key
}

// sameBeginning finds the one name that begins as all of another does, but perhaps its last letter: priority, priorities.
func sameBeginning(name string, known []string) string {
	const least = 5 // letters; fewer say little
	found := ""
	for _, k := range known {
		if len(name) > least && strings.HasPrefix(k, name[:len(name)-1]) {
			if found != "" {
				return ""
			}
			found = k
		}
	}
	return found
}
