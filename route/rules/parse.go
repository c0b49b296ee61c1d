package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// maxText bounds the text of one rule, in bytes.
const maxText = 64 << 10

// Parse reads the text of a rule: a condition, a condition:// URL or a script:// URL. A line may hold more than one
// condition. Warnings say what was read otherwise than written, or is hardly meant.
func Parse(text string) (list []Rule, warnings []string, err error) {
	if len(text) > maxText {
		return nil, nil, fmt.Errorf("longer than %d bytes", maxText)
	}
	text = strings.TrimSpace(text)
	if scheme, rest, ok := strings.Cut(text, "://"); ok && isName(scheme) {
		return parseURL(scheme, rest)
	}
	return parseConditions(text)
}

// parser reads conditions.
type parser struct {
	tokens   []token
	at       int
	warnings []string
}

func (p *parser) warn(format string, args ...any) {
	if w := fmt.Sprintf(format, args...); !slices.Contains(p.warnings, w) {
		p.warnings = append(p.warnings, w)
	}
}

func (p *parser) peek() token {
	if p.at < len(p.tokens) {
		return p.tokens[p.at]
	}
	return token{kind: tokenEnd}
}

func (p *parser) next() token {
	t := p.peek()
	p.at++
	return t
}

func parseConditions(text string) ([]Rule, []string, error) {
	p := &parser{}
	if text == "" {
		return nil, nil, errors.New("a rule is expected, like host = 10.0.0.1 => host = 10.0.0.2")
	}
	if err := p.scan(text); err != nil {
		return nil, p.warnings, err
	}
	if !slices.ContainsFunc(p.tokens, func(t token) bool { return t.kind == tokenArrow }) {
		p.warn("without =>: read as the right side, for every caller")
		p.tokens = append([]token{{kind: tokenArrow, at: 1}}, p.tokens...)
	}
	var list []Rule
	for p.peek().kind != tokenEnd {
		r, err := p.rule()
		if err != nil {
			return nil, p.warnings, err
		}
		list = append(list, r)
	}
	if len(list) > 1 {
		p.warn("%d rules on one line: read as %q; write each as an entry of its own", len(list), texts(list))
	}
	for i := range list {
		p.doubt(&list[i])
	}
	return list, p.warnings, nil
}

func texts(list []Rule) []string {
	all := make([]string, len(list))
	for i := range list {
		all[i] = list[i].Text
	}
	return all
}

// rule reads one condition, up to the end or to where the next one begins.
func (p *parser) rule() (Rule, error) {
	r := Rule{Enabled: true}
	var err error
	if r.When, err = p.clause(); err != nil {
		return r, err
	}
	if t := p.next(); t.kind != tokenArrow {
		return r, t.unexpected("=>, & or ,")
	}
	if r.Then, err = p.clause(); err != nil {
		return r, err
	}
	if t := p.peek(); t.kind == tokenArrow || t.kind == tokenWord && !p.another() {
		return r, t.unexpected("& or ,")
	}
	for i := range r.Then {
		if r.Then[i].Key == keyMethod {
			return r, errors.New("the right side chooses endpoints, which have no method: write it left of =>")
		}
	}
	r.Forbid = len(r.Then) == 0
	r.Text = strings.TrimSpace(r.When.String() + " => " + r.Then.String())
	return r, nil
}

// another tells whether a further rule begins here: the line has one more arrow.
func (p *parser) another() bool {
	return p.at+1 < len(p.tokens) && p.tokens[p.at+1].isOperator() &&
		slices.ContainsFunc(p.tokens[p.at:], func(t token) bool { return t.kind == tokenArrow })
}

// clause reads terms; none is a clause too.
func (p *parser) clause() (Clause, error) {
	var c Clause
	if p.peek().kind != tokenWord {
		return nil, nil
	}
	for {
		if err := p.term(&c); err != nil {
			return nil, err
		}
		if p.peek().kind != tokenAnd {
			return c, nil
		}
		p.next()
	}
}

// term reads key = value,value. What is said of a key twice holds together.
func (p *parser) term(c *Clause) error {
	key := p.next()
	if key.kind != tokenWord {
		return key.unexpected("an attribute, like host or method")
	}
	if problem := keyProblem(key.text); problem != "" {
		return fmt.Errorf("%s at character %d", problem, key.at)
	}
	op := p.next()
	if !op.isOperator() {
		return op.unexpected("= or != behind " + key.text)
	}
	i := slices.IndexFunc(*c, func(t Term) bool { return t.Key == key.text })
	if i < 0 {
		*c = append(*c, Term{Key: key.text})
		i = len(*c) - 1
	}
	to := &(*c)[i].In
	if op.kind == tokenNot {
		to = &(*c)[i].Out
	}
	for {
		value := p.next()
		if value.kind != tokenWord {
			return value.unexpected("a value of " + key.text)
		}
		v, err := newPattern(key.text, value.text)
		if err != nil {
			return fmt.Errorf("%w at character %d", err, value.at)
		}
		*to = append(*to, v)
		if p.peek().kind != tokenComma {
			return nil
		}
		p.next()
		if k := p.peek().kind; k == tokenArrow || k == tokenEnd || k == tokenAnd {
			p.warn("a comma without a value behind it is passed over")
			return nil
		}
	}
}

// keyProblem says what is wrong with an attribute. Most are labels, so that most names will do.
func keyProblem(key string) string {
	switch {
	case strings.ContainsAny(key, "[]"):
		return key + ": arguments, attachments and the like are inside of a message and cannot be matched"
	case strings.ContainsAny(key, "*$/~"):
		return key + " is no name of an attribute"
	}
	return ""
}

// doubt warns of what is hardly meant.
func (p *parser) doubt(r *Rule) {
	if len(r.When) == 0 && r.Forbid {
		p.warn("forbids every caller")
	}
	p.doubtHosts(r.When)
	p.doubtHosts(r.Then)
	for _, t := range r.When {
		if t.Key != keyMethod {
			continue
		}
		for _, list := range [][]Pattern{t.In, t.Out} {
			for _, v := range list {
				if v.kind == patternText && slices.Contains(usualPrefixes, v.text) {
					p.warn("method %s fits only a method of exactly that name: write %s* for all that begin so", v.text, v.text)
				}
			}
		}
	}
}

// doubtHosts tells of hosts that are written like an address and are none: they fit nobody.
func (p *parser) doubtHosts(c Clause) {
	for _, t := range c {
		if t.Key != keyHost {
			continue
		}
		for _, v := range slices.Concat(t.In, t.Out) {
			if v.kind != patternText || strings.Trim(v.text, "0123456789.:") != "" {
				continue
			}
			if _, err := netip.ParseAddr(v.text); err != nil {
				p.warn("host %s is no address and fits nobody: an address without a port, a network (10.1.0.0/16) or 10.1.* is expected", v.text)
			}
		}
	}
}

// usualPrefixes begin names of methods more often than they are one (S-122 lost its asterisks).
var usualPrefixes = []string{"add", "count", "create", "delete", "find", "get", "is", "list", "query", "remove", "save", "set", "update"}

func isName(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20
		if c < 'a' || c > 'z' {
			return false
		}
	}
	return s != ""
}
