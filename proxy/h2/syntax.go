package h2

import (
	"net/netip"
	"strings"
	"sync"
)

// Character classes, bits of chars.
const (
	isName   = 1 << iota // of a field name: a token without capitals (RFC 9113 8.2.1)
	isToken              // RFC 9110 5.6.2
	isTarget             // of a path: visible ASCII but for '#'
	isHost               // of a reg-name but for the comma
	isDigit
)

var chars = buildChars()

func buildChars() (t [256]uint8) {
	set := func(bit uint8, s string) {
		for i := range len(s) {
			t[s[i]] |= bit
		}
	}
	const lower, upper = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	const digits, marks = "0123456789", "!#$%&'*+-.^_`|~"
	set(isName|isToken, lower+digits+marks)
	set(isToken, upper)
	set(isHost, lower+upper+digits+"-._~!$&'()*+;=%")
	set(isDigit, digits)
	for c := byte(0x21); c < 0x7f; c++ {
		if c != '#' {
			t[c] |= isTarget
		}
	}
	return t
}

func all(s string, class uint8) bool {
	for i := range len(s) {
		if chars[s[i]]&class == 0 {
			return false
		}
	}
	return true
}

const maxName = 1 << 10

func validName(s string) bool  { return s != "" && len(s) <= maxName && all(s, isName) }
func validToken(s string) bool { return s != "" && len(s) <= 32 && all(s, isToken) }

// validValue accepts what RFC 9110 5.5 does, without whitespace at the ends (RFC 9113 8.2.1).
func validValue(s string) bool {
	if s == "" {
		return true
	}
	if c := s[0]; c == ' ' || c == '\t' {
		return false
	}
	if c := s[len(s)-1]; c == ' ' || c == '\t' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

const maxPath = 16 << 10

func validPath(s, method string) bool {
	if s == "*" {
		return method == "OPTIONS"
	}
	return s != "" && s[0] == '/' && len(s) <= maxPath && all(s, isTarget)
}

// validAuthority reports whether s is host [ ":" port ] without user information (RFC 9113 8.3.1).
func validAuthority(s string) bool {
	name, port := s, ""
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return false
		}
		a, err := netip.ParseAddr(s[1:end])
		if err != nil || !a.Is6() || a.Zone() != "" {
			return false
		}
		rest := s[end+1:]
		return rest == "" || rest[0] == ':' && validPort(rest[1:])
	}
	if i := strings.IndexByte(s, ':'); i >= 0 {
		name, port = s[:i], s[i+1:]
	}
	return name != "" && len(name) <= 255 && all(name, isHost) && validPort(port)
}

func validPort(s string) bool {
	n := 0
	for i := range len(s) {
		if chars[s[i]]&isDigit == 0 {
			return false
		}
		if n = n*10 + int(s[i]-'0'); n > 65535 {
			return false
		}
	}
	return true
}

func parseLength(s string) (int64, bool) {
	if s == "" || len(s) > 17 || !all(s, isDigit) {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}

// lowered remembers the lower-case forms of names that came over HTTP/1. It is bounded: names come from the network.
var lowered struct {
	mu sync.RWMutex
	m  map[string]string
}

const maxLowered = 1024

// lowerName returns a field name in lower case, mostly without making it anew.
func lowerName(s string) string {
	upper := false
	for i := range len(s) {
		upper = upper || 'A' <= s[i] && s[i] <= 'Z'
	}
	if !upper {
		return s
	}
	lowered.mu.RLock()
	l, ok := lowered.m[s]
	lowered.mu.RUnlock()
	if ok {
		return l
	}
	l = strings.ToLower(s)
	lowered.mu.Lock()
	defer lowered.mu.Unlock()
	if lowered.m == nil {
		lowered.m = make(map[string]string)
	}
	if len(lowered.m) < maxLowered {
		lowered.m[strings.Clone(s)] = l
	}
	return l
}
