package route

import "strings"

// segment is one compiled part of a path: what stands between two slashes.
type segment struct {
	value
	n int // from 1
}

// fits looks at the part with that number of a normalised path. A path that ends in a slash has an empty last part.
func (s *segment) fits(path string) bool {
	part, ok := pathSegment(path, s.n)
	if s.Kind == ValueAbsent {
		return !ok
	}
	return ok && s.holds(part)
}

func pathSegment(path string, n int) (string, bool) {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return "", false
	}
	for ; n > 1; n-- {
		i := strings.IndexByte(rest, '/')
		if i < 0 {
			return "", false
		}
		rest = rest[i+1:]
	}
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		rest = rest[:i]
	}
	return rest, true
}
