package h1

import (
	"encoding/binary"
	"unsafe"
)

// Character classes, bits of chars.
const (
	isToken  = 1 << iota // RFC 9110 5.6.2
	isTarget             // of a request target: visible ASCII but for '#' (RFC 9112 3.2: a fragment is never sent)
	isHost               // of a reg-name (RFC 3986 3.2.2) but for the comma, which only a list has
	isDigit
	isHex
)

var chars = buildChars()

func buildChars() (t [256]uint8) {
	set := func(bit uint8, s string) {
		for i := range len(s) {
			t[s[i]] |= bit
		}
	}
	const alnum = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	set(isToken, alnum+"!#$%&'*+-.^_`|~")
	set(isHost, alnum+"-._~!$&'()*+;=%")
	set(isDigit, "0123456789")
	set(isHex, "0123456789abcdefABCDEF")
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

// str is b as a string without a copy: it is valid as long as nobody writes to b.
func str(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// validValue reports whether b may be a field value (RFC 9110 5.5): no control character but HTAB, no DEL. It looks at
// eight bytes at a time.
func validValue(b []byte) bool {
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

// trimOWS cuts spaces and tabs off both ends.
func trimOWS(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// equalFold compares with a lower-case ASCII string.
func equalFold(s, lower string) bool {
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

// nextItem cuts the first item off a comma list, trimmed; items may be empty.
func nextItem(list string) (item, rest string, more bool) {
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

// parseLength reads a Content-Length: digits only (RFC 9110 8.6), below 2^62.
func parseLength(s string) (int64, bool) {
	if s == "" || !all(s, isDigit) {
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
