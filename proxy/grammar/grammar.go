// Package grammar holds what is the same in every version of HTTP: which characters a name, a value, a target and an
// authority are made of (RFC 9110 5, RFC 3986 3.2.2), and how lists are read. It is pure: functions of their arguments. It
// imports nothing of the project. Tests: tables, and fuzz tests against slower, plainer definitions.
package grammar

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"unsafe"
)

// Class is a set of character classes.
type Class uint8

// The classes.
const (
	Token  Class = 1 << iota // RFC 9110 5.6.2
	Name                     // of a field in HTTP/2: a token without capitals (RFC 9113 8.2.1)
	Target                   // of a request target: visible ASCII but for '#' (RFC 9112 3.2: a fragment is never sent)
	Host                     // of a reg-name (RFC 3986 3.2.2) but for the comma, which only a list has
	Digit
	Hex
)

var classes = buildClasses()

func buildClasses() (t [256]Class) {
	set := func(c Class, s string) {
		for i := range len(s) {
			t[s[i]] |= c
		}
	}
	const lower, upper, digits = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
	set(Token|Name, lower+digits+"!#$%&'*+-.^_`|~")
	set(Token, upper)
	set(Host, lower+upper+digits+"-._~!$&'()*+;=%")
	set(Digit|Hex, digits)
	set(Hex, "abcdefABCDEF")
	for c := byte(0x21); c < 0x7f; c++ {
		if c != '#' {
			t[c] |= Target
		}
	}
	return t
}

// Is reports whether c is of a class.
func Is(c byte, class Class) bool { return classes[c]&class != 0 }

// All reports whether all characters of s are of a class.
func All(s string, class Class) bool {
	for i := range len(s) {
		if classes[s[i]]&class == 0 {
			return false
		}
	}
	return true
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// ValidValue reports whether b may be a field value (RFC 9110 5.5): no control character but HTAB, no DEL. It looks at
// eight bytes at a time.
func ValidValue(b []byte) bool {
	for len(b) >= 8 {
		w := binary.LittleEndian.Uint64(b)
		control := (w - ones*0x20) & ^w & highs
		del := w ^ ones*0x7f
		del = (del - ones) & ^del & highs
		if control|del != 0 && !validSlow(b[:8]) {
			return false
		}
		b = b[8:]
	}
	return validSlow(b)
}

func validSlow(b []byte) bool {
	for _, c := range b {
		if c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// ValidText is ValidValue for a string.
func ValidText(s string) bool { return ValidValue(unsafe.Slice(unsafe.StringData(s), len(s))) }

// TrimOWS cuts spaces and tabs off both ends.
func TrimOWS(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// EqualFold compares with a lower-case ASCII string.
func EqualFold(s, lower string) bool {
	if len(s) != len(lower) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// NextItem cuts the first item off a comma list, trimmed; items may be empty.
func NextItem(list string) (item, rest string, more bool) {
	i := 0
	for i < len(list) && list[i] != ',' {
		i++
	}
	item, more = list[:i], i < len(list)
	if more {
		rest = list[i+1:]
	}
	for item != "" && (item[0] == ' ' || item[0] == '\t') {
		item = item[1:]
	}
	for item != "" && (item[len(item)-1] == ' ' || item[len(item)-1] == '\t') {
		item = item[:len(item)-1]
	}
	return item, rest, more
}

// ParseLength reads a Content-Length: digits only (RFC 9110 8.6), below 2^62.
func ParseLength(s string) (int64, bool) {
	if s == "" || !All(s, Digit) {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		n = n*10 + int64(s[i]-'0')
		if n >= 1<<58 {
			return 0, false
		}
	}
	return n, true
}

// ValidAuthority reports whether s is host [ ":" port ] without user information (RFC 9110 4.2.4, 7.2); an empty one is
// valid, as HTTP/1.0 may leave it out.
func ValidAuthority(s string) bool {
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
	return name != "" && len(name) <= 255 && All(name, Host) && validPort(port)
}

// validPort accepts *DIGIT up to 65535.
func validPort(s string) bool {
	n := 0
	for i := range len(s) {
		if !Is(s[i], Digit) {
			return false
		}
		if n = n*10 + int(s[i]-'0'); n > 65535 {
			return false
		}
	}
	return true
}

// SplitPort cuts ":port" off an authority; the brackets of an IPv6 literal stay with the name.
func SplitPort(authority string) (name, port string) {
	i := strings.LastIndexByte(authority, ':')
	if i < 0 || strings.HasSuffix(authority, "]") {
		return authority, ""
	}
	return authority[:i], authority[i+1:]
}
