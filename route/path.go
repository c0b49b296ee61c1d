package route

import (
	"strings"
	"unsafe"
)

// Verdict says what is wrong with a path; PathOK if nothing is.
type Verdict uint8

// The verdicts. All but PathOK are answered with 400.
const (
	PathOK         Verdict = iota
	PathRelative           // does not begin with a slash
	PathEscape             // a percent sign without two hexadecimal digits
	PathControl            // NUL (also as %00), another control character, or a blank
	PathBackslash          // some servers take it for a slash
	PathFragment           // "#" is never sent (RFC 9112 section 3.2)
	PathClimbs             // ".." above the root
	PathSuspicious         // ".." or "." that only some servers see: "..;x" or between encoded slashes
)

func (v Verdict) String() string {
	return [...]string{
		"ok", "path does not begin with a slash", "invalid percent-encoding", "control character in path",
		"backslash in path", "fragment in path", "path climbs above the root", "hidden dot segment in path",
	}[v]
}

// class of an octet for the scan. Zero is an octet that is fine anywhere.
const (
	octetPlain = iota
	octetPercent
	octetBad
	octetBackslash
	octetFragment
	octetQuery
)

func octet(c byte) int {
	switch {
	case c == '%':
		return octetPercent
	case c <= ' ' || c == 0x7f:
		return octetBad
	case c == '\\':
		return octetBackslash
	case c == '#':
		return octetFragment
	case c == '?':
		return octetQuery
	}
	return octetPlain
}

// NormalizePath brings a path into the one form that rules are matched with and that is sent on (RFC 3986 section
// 6.2.2): escapes of unreserved characters are decoded, the other escapes get upper-case digits, dot segments are
// removed. Escaped reserved characters (%2F, %5C among them), double slashes and a trailing slash stay: they are the
// app's to interpret. A query behind "?" is kept as it is. The empty path becomes "/", "*" stays.
//
// A path in that form already is returned itself after one scan. Otherwise the result is built in dst (grown if need
// be) and shares its memory: it is valid until dst is used again. dst must not overlap path.
func NormalizePath(dst []byte, path string) (string, Verdict) {
	if path == "" {
		return "/", PathOK
	}
	if path[0] != '/' {
		if path == "*" {
			return path, PathOK
		}
		return path, PathRelative
	}
	end, verdict, normal := scanPath(path)
	if verdict != PathOK || normal {
		return path, verdict
	}
	return rewritePath(dst, path, end)
}

// scanPath finds the end of the path, what is plainly wrong, and whether the path is normal already.
func scanPath(path string) (end int, verdict Verdict, normal bool) {
	normal = true
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c >= '/' && c != '?' && c != '\\' && c != 0x7f {
			continue // nearly all
		}
		switch octet(c) {
		case octetPlain:
			if c == '.' && path[i-1] == '/' { // a dot segment perhaps; path[0] is a slash
				normal = false
			}
		case octetPercent:
			if i+2 >= len(path) || !isHex(path[i+1]) || !isHex(path[i+2]) {
				return 0, PathEscape, false
			}
			normal = false
			i += 2
		case octetQuery:
			return i, scanQuery(path[i:]), normal
		case octetBad:
			return 0, PathControl, false
		case octetBackslash:
			return 0, PathBackslash, false
		case octetFragment:
			return 0, PathFragment, false
		}
	}
	return len(path), PathOK, normal
}

// scanQuery refuses only what could break the request line or hide something behind it.
func scanQuery(query string) Verdict {
	for i := range len(query) {
		c := query[i]
		if c > '#' && c != 0x7f {
			continue
		}
		switch octet(c) {
		case octetBad:
			return PathControl
		case octetFragment:
			return PathFragment
		}
	}
	return PathOK
}

// rewritePath builds the normal form of target[:end] segment by segment.
func rewritePath(dst []byte, target string, end int) (string, Verdict) {
	path := target[:end]
	dst = dst[:0]
	for at := 0; at < len(path); { // path[at] is a slash
		dst = append(dst, '/')
		start := len(dst) // of this segment
		var ok bool
		if dst, at, ok = appendSegment(dst, path, at+1); !ok {
			return target, PathControl
		}
		last := at == len(path)
		switch seg := dst[start:]; {
		case string(seg) == ".":
			dst = dst[:start]
			if !last {
				dst = dst[:start-1]
			}
		case string(seg) == "..":
			if start == 1 {
				return target, PathClimbs
			}
			dst = dst[:start-1]
			for dst[len(dst)-1] != '/' {
				dst = dst[:len(dst)-1]
			}
			if !last {
				dst = dst[:len(dst)-1]
			}
		case hidesDots(seg):
			return target, PathSuspicious
		}
	}
	if string(dst) == path {
		return target, PathOK
	}
	dst = append(dst, target[end:]...)
	return unsafe.String(unsafe.SliceData(dst), len(dst)), PathOK
}

// appendSegment decodes one segment and returns where it ends.
func appendSegment(dst []byte, path string, at int) (out []byte, end int, ok bool) {
	for ; at < len(path) && path[at] != '/'; at++ {
		if path[at] != '%' {
			dst = append(dst, path[at])
			continue
		}
		c := unhex(path[at+1])<<4 | unhex(path[at+2])
		at += 2
		switch {
		case c == 0:
			return dst, at, false
		case unreserved(c):
			dst = append(dst, c)
		default:
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return dst, at, true
}

const upperHex = "0123456789ABCDEF"

// unreserved as RFC 3986 section 2.3 has it.
func unreserved(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

// hidesDots finds dot segments that a later server may see where we do not: before a path parameter ("..;x", which some
// strip first), or beside an encoded slash or backslash ("..%2Fx", which some decode first).
func hidesDots(seg []byte) bool {
	whole := len(seg)
	for len(seg) > 0 {
		piece, rest := seg, seg[len(seg):]
		for i := 0; i+2 < len(seg); i++ {
			if seg[i] == '%' && (string(seg[i+1:i+3]) == "2F" || string(seg[i+1:i+3]) == "5C") {
				piece, rest = seg[:i], seg[i+3:]
				break
			}
		}
		param := false
		for i := range piece {
			if piece[i] == ';' {
				piece, param = piece[:i], true
				break
			}
		}
		if dots := string(piece) == "." || string(piece) == ".."; dots && (param || whole != len(piece)) {
			return true
		}
		seg = rest
	}
	return false
}

// PathOf cuts the query off a target: Facts.Path and Facts.Query.
func PathOf(target string) (path, query string) {
	path, query, _ = strings.Cut(target, "?")
	return path, query
}
