package config

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxAliased bounds how many values the aliases of one document may stand for.
const maxAliased = 250_000

// decoder is the state of one load: where we are, and what was found so far.
type decoder struct {
	config   *Config
	env      func(string) (string, bool)
	source   *Source
	path     []segment
	around   []around               // the maps that are being read, outermost first
	defs     map[string]any         // parts of the schema, by name
	key      *yaml.Node             // the key whose value is being read
	places   map[string]Origin      // of the keys of the first two levels, over all files
	claims   []claim                // of the service (or of the document) being read
	filled   map[*yaml.Node]filling // scalars with variables in them
	layouts  layouts                // for fingerprints
	errors   Errors
	warnings Errors
	budget   int  // values that may still be read
	partial  bool // a file was not readable: references into it are not looked at
}

// segment is one step of a path: a key, or the place in a list.
type segment struct {
	name  string
	index int // used when name is empty
}

// filling is a scalar after its variables were filled in.
type filling struct {
	text string
	ok   bool
}

// pathText writes the path of the value being read.
func (d *decoder) pathText() string { return textOf(d.path) }

func textOf(path []segment) string {
	var b strings.Builder
	for _, s := range path {
		switch {
		case s.name == "":
			b.WriteByte('[')
			b.WriteString(strconv.Itoa(s.index))
			b.WriteByte(']')
			continue
		case b.Len() > 0:
			b.WriteByte('.')
		}
		b.WriteString(s.name)
	}
	return b.String()
}

// origin says where n is written.
func (d *decoder) origin(n *yaml.Node) Origin {
	return Origin{Source: d.source, Line: int32(n.Line), Col: int32(n.Column)}
}

// fail notes a mistake at n; it answers false so that a reader can return it.
func (d *decoder) fail(n *yaml.Node, format string, args ...any) bool {
	d.errors = append(d.errors, d.origin(n).errorAt(d.pathText(), fmt.Sprintf(format, args...)))
	return false
}

// failIn notes a mistake in the value of a key of the map n.
func (d *decoder) failIn(n *yaml.Node, key, format string, args ...any) bool {
	return d.within(segment{name: key}, func() bool { return d.fail(at(n, key), format, args...) })
}

// warn notes what is allowed, yet hardly meant.
func (d *decoder) warn(n *yaml.Node, format string, args ...any) {
	d.warnings = append(d.warnings, d.origin(n).errorAt(d.pathText(), fmt.Sprintf(format, args...)))
}

// within runs read one step further down the path.
func (d *decoder) within(s segment, read func() bool) bool {
	d.path = append(d.path, s)
	ok := read()
	d.path = d.path[:len(d.path)-1]
	return ok
}

// follow takes an alias to what it stands for, and refuses tags.
func (d *decoder) follow(n *yaml.Node) (*yaml.Node, bool) {
	if d.budget--; d.budget <= 0 {
		if d.budget == 0 {
			d.fail(n, "the aliases of this document stand for more than %d values", maxAliased)
		}
		return n, false
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Style&yaml.TaggedStyle != 0 && (n.Tag != "!!str" || n.Kind != yaml.ScalarNode) {
		return n, d.fail(n, "the tag %s is not part of this language; leave it out", n.Tag)
	}
	return n, true
}

// pairs calls read for each key of the map n; a key given twice is a mistake.
func (d *decoder) pairs(n *yaml.Node, what string, read func(key, val *yaml.Node) bool) bool {
	n, ok := d.follow(n)
	if !ok {
		return false
	}
	if n.Kind != yaml.MappingNode {
		return d.fail(n, "%s is expected, got %s", what, d.got(n))
	}
	seen := keys{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			ok = d.fail(key, "a key is plain text, got %s", d.got(key))
			continue
		}
		ok = d.within(segment{name: key.Value}, func() bool {
			if first := seen.add(n.Content, i); first != nil {
				return d.fail(key, "given twice, first at %s", d.origin(first))
			}
			if !d.unionOf(key, val) {
				return false
			}
			d.key = key
			return read(key, val)
		}) && ok
	}
	return ok
}

// unionOf sees to it that the files of one load are disjoint: sections are shared, what stands in them is not.
func (d *decoder) unionOf(key, val *yaml.Node) bool {
	var path string
	switch {
	case len(d.path) == 2:
		path = d.path[0].name + "\x00" + d.path[1].name
	case len(d.path) == 1 && val.Kind == yaml.SequenceNode:
		path = d.path[0].name
	default:
		return true
	}
	if first, ok := d.places[path]; ok {
		return d.fail(key, "given twice, first at %s", first)
	}
	d.places[path] = d.origin(key)
	return true
}

// keys finds a key that stands twice in a map: small maps are searched, large ones hashed.
type keys struct{ index map[string]*yaml.Node }

// add notes the key content[i] and gives the earlier one of the same name.
func (k *keys) add(content []*yaml.Node, i int) *yaml.Node {
	const small = 32
	key := content[i]
	if len(content) <= small {
		for j := 0; j < i; j += 2 {
			if content[j].Kind == yaml.ScalarNode && content[j].Value == key.Value {
				return content[j]
			}
		}
		return nil
	}
	if k.index == nil {
		k.index = make(map[string]*yaml.Node, len(content)/2)
	}
	if first := k.index[key.Value]; first != nil {
		return first
	}
	k.index[key.Value] = key
	return nil
}

// got names what stands in the document, for a message.
func (d *decoder) got(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	default:
		if isNull(n) {
			return "nothing"
		}
		text := n.Value
		if f, ok := d.filled[n]; ok {
			text = f.text
		}
		const most = 60
		if len(text) > most {
			text = strings.ToValidUTF8(text[:most], "") + "…"
		}
		return strconv.Quote(text)
	}
}
