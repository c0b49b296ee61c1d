package h1

import (
	"net/netip"
	"strings"
)

// validAuthority reports whether s is host [ ":" port ] without user information (RFC 9110 4.2.4, 7.2); an empty one is
// valid, as HTTP/1.0 may leave it out.
func validAuthority(s string) bool {
	if s == "" {
		return true
	}
	name, port := s, ""
	if s[0] == '[' {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return false
		}
		a, err := netip.ParseAddr(s[1:end])
		if err != nil || !a.Is6() || a.Zone() != "" {
			return false
		}
		if rest := s[end+1:]; rest != "" {
			return rest[0] == ':' && validPort(rest[1:])
		}
		return true
	}
	if i := strings.IndexByte(s, ':'); i >= 0 {
		name, port = s[:i], s[i+1:]
	}
	return name != "" && len(name) <= 255 && all(name, isHost) && validPort(port)
}

// validPort accepts *DIGIT up to 65535.
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
