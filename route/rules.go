package route

import (
	"errors"
	"fmt"
)

// Rules is an ordered list of matches, compiled: the first that fits wins. It is immutable.
type Rules struct {
	rules []rule
	texts []string
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

// Match returns the index of the first rule that fits. It does not allocate, but for regular expressions.
func (r *Rules) Match(f *Facts) (index int, ok bool) {
	for i := range r.rules {
		if r.rules[i].misses(f) == partNone {
			return i, true
		}
	}
	return -1, false
}
