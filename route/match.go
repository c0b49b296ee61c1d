package route

// Match is what a rule asks for: all given parts must hold, within a part one of the list is enough. The zero Match
// fits every request. It is plain data; NewRules compiles it.
type Match struct {
	Name       string // the route's name: salts Percent, so that it stays the same when rules move; empty: the text
	Methods    []string
	Path       Path
	Headers    []Value
	Query      []Value
	Cookies    []Value
	Segments   []Value  // parts of the path between slashes, by their number from 1
	Hosts      []string // patterns as for Hosts
	Callers    []string // service name, address or CIDR, or key=value label
	Percent    float64  // 0 … 1, of the requests that fit all the rest
	HasPercent bool     // false: all
}

// PathKind says how a path is compared.
type PathKind uint8

// The kinds of path match.
const (
	PathAny    PathKind = iota
	PathExact           // the path as a whole
	PathPrefix          // a plain string prefix
	PathBelow           // "/a/*": below "/a/", not "/a" itself
	PathRegex           // RE2, anchored at neither end
)

// Path compares the normalised path.
type Path struct {
	Kind  PathKind
	Value string // for PathBelow with its final slash
}

// ValueKind says how a header, query or cookie value is compared.
type ValueKind uint8

// The kinds of value match.
const (
	ValueExact ValueKind = iota
	ValuePresent
	ValueAbsent
	ValuePrefix
	ValueRegex // RE2, anchored at neither end
	ValueIn
	ValueMod
	ValueMedia // a media type, also with a suffix ("+proto") or parameters, whatever its case
)

// Value compares one named value. Where a name occurs more than once, one occurrence that fits is enough. Header names
// are compared without case, names of parameters and cookies with it.
type Value struct {
	Name     string
	Kind     ValueKind
	Text     string   // exact, prefix, regex
	In       []string // ValueIn
	Mod      uint64   // ValueMod: the value is a decimal number and that modulo Mod is one of Residues
	Residues []uint64
}
