package route

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// maxAuthority bounds what Lookup compares: a DNS name has at most 253 octets. What is longer fits only "*".
const maxAuthority = 256

// Hosts maps an authority (Host, :authority) to an id. Patterns are a name, "*.suffix" (any name below suffix, not
// suffix itself), "*" (what nothing else takes), or an IP address; each may end in ":port" and then fits only that port.
// An exact name wins over a suffix, a longer suffix over a shorter one, "*" comes last; among equals the pattern with a
// port wins. Names are compared without case, without port and without one trailing dot. Hosts is immutable.
type Hosts struct {
	names    map[string]*host
	suffixes map[string]*host // without "*."
	any      *host
	maxDots  int // of the suffixes: longer ones need not be tried
}

// host is what one name pattern leads to: by port, and without.
type host struct {
	ports   []portHost
	id      int
	pattern string
	plain   bool // there is a pattern without port
}

type portHost struct {
	port    uint16
	id      int
	pattern string
}

// NewHosts compiles patterns. All mistakes are reported at once, each with its pattern, in a stable order.
func NewHosts(patterns map[string]int) (*Hosts, error) {
	t := &Hosts{names: make(map[string]*host, len(patterns)), suffixes: map[string]*host{}}
	var errs []error
	for _, p := range slices.Sorted(maps.Keys(patterns)) {
		if err := t.add(p, patterns[p]); err != nil {
			errs = append(errs, fmt.Errorf("host %q: %w", p, err))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return t, nil
}

// CheckHost tells whether a host pattern is well formed.
func CheckHost(pattern string) error {
	_, err := NewHosts(map[string]int{pattern: 0})
	return err
}

func (t *Hosts) add(pattern string, id int) error {
	name, port, hasPort, err := splitPattern(pattern)
	if err != nil {
		return err
	}
	h := t.slot(name)
	if hasPort {
		for _, p := range h.ports {
			if p.port == port && p.id != id {
				return fmt.Errorf("is the same as %q", p.pattern)
			}
		}
		h.ports = append(h.ports, portHost{port, id, pattern})
		return nil
	}
	if h.plain && h.id != id {
		return fmt.Errorf("is the same as %q", h.pattern)
	}
	h.plain, h.id, h.pattern = true, id, pattern
	return nil
}

// slot finds or makes the entry of a canonical name.
func (t *Hosts) slot(name string) *host {
	if name == "*" {
		if t.any == nil {
			t.any = &host{}
		}
		return t.any
	}
	m := t.names
	if rest, ok := strings.CutPrefix(name, "*."); ok {
		m, name = t.suffixes, rest
		t.maxDots = max(t.maxDots, strings.Count(name, "."))
	}
	h := m[name]
	if h == nil {
		h = &host{}
		m[name] = h
	}
	return h
}

// splitPattern returns the canonical name of a pattern and its port.
func splitPattern(pattern string) (name string, port uint16, hasPort bool, err error) {
	if a, aerr := netip.ParseAddr(pattern); aerr == nil {
		return a.String(), 0, false, nil // an IPv6 address may be written without brackets
	}
	name, port, hasPort, ok := splitAuthority(pattern)
	if !ok {
		return "", 0, false, errors.New("want NAME, *.SUFFIX, * or an IP address, each with an optional :PORT")
	}
	for i := range len(name) { // before ToLower, which makes ASCII of some letters
		if name[i] >= 0x80 {
			return "", 0, false, errors.New("not ASCII; write the xn-- form")
		}
	}
	name = strings.ToLower(name)
	if a, aerr := netip.ParseAddr(name); aerr == nil {
		return a.String(), port, hasPort, nil
	}
	base := strings.TrimPrefix(name, "*.")
	switch {
	case name == "*" && !strings.HasPrefix(pattern, "*."):
		return name, port, hasPort, nil
	case strings.Contains(base, "*"):
		return "", 0, false, errors.New(`"*" may stand only alone or as the first label`)
	case base == "" || base[0] == '.' || strings.Contains(base, ".."):
		return "", 0, false, errors.New("an empty label")
	case len(base) > maxAuthority:
		return "", 0, false, fmt.Errorf("longer than %d octets", maxAuthority)
	}
	return name, port, hasPort, nil
}

// splitAuthority takes an authority apart: the name without brackets and trailing dot, and the port if there is one
// ("svc:" has none, RFC 3986 section 3.2.3). It refuses what no authority can be.
func splitAuthority(s string) (name string, port uint16, hasPort, ok bool) {
	name = s
	rest := ""
	if s != "" && s[0] == '[' {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", 0, false, false
		}
		name, rest = s[1:end], s[end+1:]
		if strings.IndexByte(name, ':') < 0 {
			return "", 0, false, false
		}
	} else if i := strings.IndexByte(s, ':'); i >= 0 {
		name, rest = s[:i], s[i:]
	}
	if rest != "" {
		if rest[0] != ':' {
			return "", 0, false, false
		}
		if port, hasPort, ok = parsePort(rest[1:]); !ok {
			return "", 0, false, false
		}
	}
	if n := len(name); n > 0 && name[n-1] == '.' {
		name = name[:n-1]
	}
	return name, port, hasPort, validName(name)
}

func parsePort(s string) (port uint16, has, ok bool) {
	if s == "" {
		return 0, false, true
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false, false
		}
		if n = n*10 + int(s[i]-'0'); n > 65535 {
			return 0, false, false
		}
	}
	return uint16(n), true, true
}

// validName refuses the characters that would let one authority pass for another.
func validName(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || '-' <= c && c <= '9' && c != '/' {
			continue // nearly all
		}
		switch {
		case c <= ' ' || c == 0x7f:
			return false
		case c == '/' || c == '\\' || c == '@' || c == ',' || c == '?' || c == '#' || c == '[' || c == ']':
			return false
		}
	}
	return true
}

// Lookup finds the id of an authority as it was sent. It does not allocate.
func (t *Hosts) Lookup(authority string) (id int, ok bool) {
	id, _, ok = t.Which(authority)
	return id, ok
}

// Which is Lookup that also says which pattern it was.
func (t *Hosts) Which(authority string) (id int, pattern string, ok bool) {
	name, port, hasPort, valid := splitAuthority(authority)
	if !valid {
		return 0, "", false
	}
	if len(name) <= maxAuthority {
		var buf [maxAuthority]byte
		if id, pattern, ok = t.find(fold(buf[:0], name), port, hasPort); ok {
			return id, pattern, true
		}
	}
	return t.any.on(port, hasPort)
}

// find tries the exact name, then the suffixes from the longest to the shortest.
func (t *Hosts) find(name []byte, port uint16, hasPort bool) (int, string, bool) {
	if id, p, ok := t.names[string(name)].on(port, hasPort); ok {
		return id, p, true
	}
	if len(t.suffixes) == 0 {
		return 0, "", false
	}
	dots := 0
	for _, c := range name {
		if c == '.' {
			dots++
		}
	}
	for i := 1; i < len(name); i++ {
		if name[i] != '.' {
			continue
		}
		if dots--; dots > t.maxDots {
			continue
		}
		if id, p, ok := t.suffixes[string(name[i+1:])].on(port, hasPort); ok {
			return id, p, true
		}
	}
	return 0, "", false
}

// on chooses by port; h may be nil.
func (h *host) on(port uint16, hasPort bool) (int, string, bool) {
	if h == nil {
		return 0, "", false
	}
	if hasPort {
		for i := range h.ports {
			if h.ports[i].port == port {
				return h.ports[i].id, h.ports[i].pattern, true
			}
		}
	}
	return h.id, h.pattern, h.plain
}

// fold appends the canonical form of a name: lower case, and IPv6 addresses as RFC 5952 writes them.
func fold(dst []byte, name string) []byte {
	if strings.IndexByte(name, ':') >= 0 && strings.IndexByte(name, '%') < 0 {
		if a, err := netip.ParseAddr(name); err == nil {
			return a.AppendTo(dst)
		}
	}
	for i := range len(name) {
		dst = append(dst, lower(name[i]))
	}
	return dst
}
