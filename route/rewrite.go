package route

import (
	"strings"
	"unsafe"
)

// Rewrite changes the path before the request is sent on. The zero Rewrite changes nothing.
type Rewrite struct {
	HasPrefix bool   // From … To counts
	From, To  string // a path that begins with From begins with To instead
	Whole     string // replaces the whole path; empty: not
}

// Path returns the path to send. A query behind "?" is kept; one in Whole is put before it. Where nothing changes the
// path itself is returned; otherwise the result is built in dst (grown if need be) and shares its memory.
//
// The seam of From and To never doubles a slash and never loses the leading one: /old to / makes /x of /old/x.
func (r *Rewrite) Path(dst []byte, path string) string {
	switch {
	case r.Whole != "":
		dst = append(dst[:0], r.Whole...)
		if i := strings.IndexByte(path, '?'); i >= 0 {
			if strings.IndexByte(r.Whole, '?') >= 0 {
				dst, i = append(dst, '&'), i+1
			}
			dst = append(dst, path[i:]...)
		}
	case r.HasPrefix && strings.HasPrefix(path, r.From):
		dst = append(dst[:0], r.To...)
		rest := path[len(r.From):]
		switch {
		case len(dst) > 0 && dst[len(dst)-1] == '/' && strings.HasPrefix(rest, "/"):
			rest = rest[1:]
		case len(dst) == 0 && !strings.HasPrefix(rest, "/"):
			dst = append(dst, '/')
		}
		dst = append(dst, rest...)
	default:
		return path
	}
	return unsafe.String(unsafe.SliceData(dst), len(dst))
}
