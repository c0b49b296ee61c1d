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
}

// Caller is who asks.
type Caller struct {
	Service string
	Addr    netip.Addr
	Labels  map[string]string
}
