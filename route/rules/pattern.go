package rules

import (
	"fmt"
	"net/netip"
	"strings"
)

// Pattern is one value of a term: a text, one with * in it, a network, or $name for an attribute of the caller. The zero
// Pattern fits nothing.
type Pattern struct {
	text string
	kind patternKind
	net  netip.Prefix
	// of a glob: what must stand before the first and behind the last star
	head, tail string
	middle     []string // and in between, in order
	ref        string
}

type patternKind uint8

const (
	patternNone patternKind = iota
	patternText
	patternGlob
	patternNet
	patternRef
)

// newPattern reads one value. What looks like a network is one for hosts only.
func newPattern(key, text string) (Pattern, error) {
	p := Pattern{text: text, kind: patternText}
	switch {
	case text == "":
		return Pattern{}, fmt.Errorf("%s has an empty value", key)
	case text[0] == '$':
		p.kind, p.ref = patternRef, text[1:]
		if p.ref == "" {
			return Pattern{}, fmt.Errorf("%s: $ without a name", key)
		}
	case key == keyHost && strings.Contains(text, "/"):
		n, err := netip.ParsePrefix(text)
		if err != nil {
			return Pattern{}, fmt.Errorf("%s: %q is not a network", key, text)
		}
		p.kind, p.net = patternNet, netip.PrefixFrom(n.Addr().Unmap(), unmapped(n)).Masked()
	case strings.Contains(text, "*"):
		parts := strings.Split(text, "*")
		p.kind, p.head, p.tail = patternGlob, parts[0], parts[len(parts)-1]
		for _, m := range parts[1 : len(parts)-1] {
			if m != "" {
				p.middle = append(p.middle, m)
			}
		}
	case key == keyHost:
		p.text = HostOf(text).Text
	}
	return p, nil
}

// unmapped is the length of a prefix once its address is written as IPv4.
func unmapped(n netip.Prefix) int {
	if n.Addr().Is4In6() && n.Bits() >= 96 {
		return n.Bits() - 96
	}
	return n.Bits()
}

func (p *Pattern) fitsHost(h *Host, ref *Party) bool {
	switch p.kind {
	case patternNet:
		return p.net.Contains(h.Addr)
	case patternRef:
		if p.ref != keyHost || ref == nil {
			return p.fitsText(h.Text, ref)
		}
		for i := range ref.Hosts {
			if ref.Hosts[i].Text == h.Text {
				return true
			}
		}
		return false
	}
	return p.fitsText(h.Text, ref)
}

func (p *Pattern) fitsText(s string, ref *Party) bool {
	switch p.kind {
	case patternText:
		return s == p.text
	case patternGlob:
		return p.glob(s)
	case patternRef:
		if ref == nil || ref.Attr == nil {
			return false
		}
		value, ok := ref.Attr(p.ref)
		return ok && value == s
	}
	return false
}

// glob tells whether s is what the pattern says; a star stands for any text, an empty one included.
func (p *Pattern) glob(s string) bool {
	if len(s) < len(p.head)+len(p.tail) || !strings.HasPrefix(s, p.head) || !strings.HasSuffix(s, p.tail) {
		return false
	}
	s = s[len(p.head) : len(s)-len(p.tail)]
	for _, m := range p.middle {
		i := strings.Index(s, m)
		if i < 0 {
			return false
		}
		s = s[i+len(m):]
	}
	return true
}

// overlaps tells whether some value may fit both; it errs towards true.
func (p *Pattern) overlaps(q *Pattern) bool {
	switch {
	case p.kind == patternRef || q.kind == patternRef:
		return true
	case p.kind == patternText:
		h := HostOf(p.text)
		return q.fitsHost(&h, nil)
	case q.kind == patternText:
		return q.overlaps(p)
	case p.kind == patternNet && q.kind == patternNet:
		return p.net.Overlaps(q.net)
	case p.kind == patternGlob && q.kind == patternGlob:
		return strings.HasPrefix(p.head, q.head) || strings.HasPrefix(q.head, p.head)
	}
	return true
}
