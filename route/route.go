// Package route decides where a request goes: which virtual host, and which of its ordered rules. It is pure: tables are
// immutable once compiled and shared freely, facts come in as arguments, and every answer carries its reason. It imports
// nothing of the project. Tests: tables of matches, a property test against a linear scan, fuzz of host and path
// normalisation, and a benchmark at 5 000 rules.
package route

import "net/netip"

// Facts is what a rule may look at. Strings are only valid during the call.
type Facts struct {
	Method string
	Host   string // as sent, port and all
	Path   string // normalised, without query
	Query  string // raw, without the question mark
	Fields Fields // request header
	Caller Caller
	Hash   uint64 // of the request id: decides Percent, so that retries agree
}

// Fields gives access to the header without copying it.
type Fields interface {
	// Get returns the first field of that name (compared without case) and whether there is one.
	Get(name string) (value string, ok bool)
	// Next returns the next field of that name at or behind position from (0: the beginning), and the position to go
	// on from. It must not allocate.
	Next(name string, from int) (value string, next int, ok bool)
}

// Field is one header field.
type Field struct{ Name, Value string }

// FieldList is a header as a plain list: for explanations, simulation and tests.
type FieldList []Field

// Get returns the first field of that name.
func (l FieldList) Get(name string) (string, bool) {
	v, _, ok := l.Next(name, 0)
	return v, ok
}

// Next returns the next field of that name at or behind from.
func (l FieldList) Next(name string, from int) (string, int, bool) {
	for i := from; i < len(l); i++ {
		if EqualFold(l[i].Name, name) {
			return l[i].Value, i + 1, true
		}
	}
	return "", len(l), false
}

// EqualFold compares two names without the case of ASCII letters (strings.EqualFold would also fold U+212A to k).
func EqualFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if a[i] != b[i] && lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// Caller is who asks.
type Caller struct {
	Service string
	Addr    netip.Addr
	Labels  map[string]string
}
