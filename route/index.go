package route

import (
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// index finds the rules whose path can fit, without looking at the others. Every rule stands in exactly one list, and
// all lists are ascending, so that merging them gives the order of a linear scan.
type index struct {
	exact map[string][]int32 // by the whole path
	root  *node              // by prefix: prefixes, "below", and regular expressions that begin with a literal
	any   []int32            // the rest
}

// node is one node of the prefix tree: the path of labels to it is a prefix. It is immutable once built.
type node struct {
	label  string
	firsts string // the first octets of the kids' labels
	kids   []*node
	rules  []int32
	up     *node // the nearest node above that has rules
	chain  int   // how many lists there are from here up
}

// maxLists bounds the lists of one path. Where more prefixes than that are nested, a node repeats the rules above it.
const maxLists = 24

func newIndex(rules []rule) index {
	x := index{exact: map[string][]int32{}, root: &node{}}
	for i := range rules {
		r, n := &rules[i], int32(i)
		switch p := r.path; p.Kind {
		case PathExact:
			x.exact[p.Value] = append(x.exact[p.Value], n)
		case PathPrefix, PathBelow:
			x.root.insert(p.Value, n)
		case PathRegex:
			if prefix := literalPrefix(p.Value); prefix != "" {
				x.root.insert(prefix, n)
				continue
			}
			x.any = append(x.any, n)
		default:
			x.any = append(x.any, n)
		}
	}
	x.root.link(nil)
	return x
}

// insert adds a rule under a prefix below n.
func (n *node) insert(prefix string, rule int32) {
	for {
		if prefix == "" {
			n.rules = append(n.rules, rule)
			return
		}
		k := strings.IndexByte(n.firsts, prefix[0])
		if k < 0 {
			n.firsts += prefix[:1]
			n.kids = append(n.kids, &node{label: prefix, rules: []int32{rule}})
			return
		}
		kid := n.kids[k]
		same := 1
		for same < len(prefix) && same < len(kid.label) && prefix[same] == kid.label[same] {
			same++
		}
		if same < len(kid.label) { // split the edge
			n.kids[k] = &node{label: kid.label[:same], firsts: kid.label[same : same+1], kids: []*node{kid}}
			kid.label = kid.label[same:]
		}
		n, prefix = n.kids[k], prefix[same:]
	}
}

// link sets the ways up.
func (n *node) link(up *node) {
	n.up = up
	if n.rules != nil {
		n.chain = 1
		if up != nil {
			n.chain += up.chain
		}
		if n.chain > maxLists {
			for u := up; u != nil; u = u.up {
				n.rules = append(n.rules, u.rules...)
			}
			slices.Sort(n.rules)
			n.up, n.chain = nil, 1
		}
		up = n
	}
	for _, k := range n.kids {
		k.link(up)
	}
}

// deepest returns the lowest node with rules whose prefix the path has; nil if there is none.
func (n *node) deepest(path string) *node {
	var found *node
	for {
		if n.rules != nil {
			found = n
		}
		if path == "" {
			return found
		}
		k := strings.IndexByte(n.firsts, path[0])
		if k < 0 || !strings.HasPrefix(path, n.kids[k].label) {
			return found
		}
		n = n.kids[k]
		path = path[len(n.label):]
	}
}

// literalPrefix returns the text that every match of a regular expression begins with, if it can match only at the
// beginning; "" otherwise.
func literalPrefix(expr string) string {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return ""
	}
	re = re.Simplify()
	if re.Op != syntax.OpConcat || len(re.Sub) < 2 || re.Sub[0].Op != syntax.OpBeginText {
		return ""
	}
	lit := re.Sub[1]
	// U+FFFD also matches an octet that is no UTF-8.
	if lit.Op != syntax.OpLiteral || lit.Flags&syntax.FoldCase != 0 || slices.Contains(lit.Rune, utf8.RuneError) {
		return ""
	}
	return string(lit.Rune)
}

// candidates merges the lists of one path. It lives on the stack.
type candidates struct {
	lists [maxLists + 2][]int32
	n     int
}

func (c *candidates) find(x *index, path string) {
	c.add(x.exact[path])
	c.add(x.any)
	for n := x.root.deepest(path); n != nil; n = n.up {
		c.add(n.rules)
	}
}

func (c *candidates) add(list []int32) {
	if len(list) > 0 {
		c.lists[c.n] = list
		c.n++
	}
}

// next returns the lowest rule not yet given, -1 at the end.
func (c *candidates) next() int32 {
	if c.n == 0 {
		return -1
	}
	best := 0
	for i := 1; i < c.n; i++ {
		if c.lists[i][0] < c.lists[best][0] {
			best = i
		}
	}
	rule := c.lists[best][0]
	if c.lists[best] = c.lists[best][1:]; len(c.lists[best]) == 0 {
		c.n--
		c.lists[best] = c.lists[c.n]
	}
	return rule
}
