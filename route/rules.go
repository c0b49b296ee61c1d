package route

import (
	"errors"
	"fmt"
)

// Rules is an ordered list of matches, compiled: the first that fits wins. It is immutable.
type Rules struct {
	rules []rule
	texts []string
	index index
}

// NewRules compiles matches. All mistakes are reported at once, each with the index of its match.
func NewRules(matches []Match) (*Rules, error) {
	r := &Rules{rules: make([]rule, len(matches)), texts: make([]string, len(matches))}
	var errs []error
	seen := make(map[string]uint64, len(matches))
	for i := range matches {
		m := &matches[i]
		r.texts[i] = m.String()
		key := m.Name
		if key == "" {
			key = r.texts[i]
		}
		salt := hashText(key) + seen[key]*0x9e3779b97f4a7c15
		seen[key]++
		if err := r.rules[i].compile(m, salt); err != nil {
			errs = append(errs, &RuleError{Index: i, Err: err})
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	r.index = newIndex(r.rules)
	return r, nil
}

// RuleError is a mistake in one match.
type RuleError struct {
	Index int // in the list given to NewRules
	Err   error
}

// Error implements error.
func (e *RuleError) Error() string { return fmt.Sprintf("match %d: %v", e.Index, e.Err) }

// Unwrap gives the mistake without the index.
func (e *RuleError) Unwrap() error { return e.Err }

// Len returns the number of rules.
func (r *Rules) Len() int { return len(r.rules) }

// Text is the text form of the match at index.
func (r *Rules) Text(index int) string { return r.texts[index] }

// Match returns the index of the first rule that fits, -1 and false if none does. It does not allocate, but for regular
// expressions and for long encoded query values. Only rules whose path can fit are looked at.
func (r *Rules) Match(f *Facts) (index int, ok bool) {
	var c candidates
	c.find(&r.index, f.Path)
	for i := c.next(); i >= 0; i = c.next() {
		if u := &r.rules[i]; u.missesRest(f) == partNone && (u.pathRE == nil || u.pathRE.MatchString(f.Path)) {
			return int(i), true
		}
	}
	return -1, false
}

// Misses says which part of a match does not fit, for explanations: "path", "header" and so on; "" if all fit.
func (r *Rules) Misses(index int, f *Facts) string { return r.rules[index].misses(f).String() }
