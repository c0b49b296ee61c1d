package grpcweb

import "strings"

// AnyOrigin is the pattern that fits every origin.
const AnyOrigin = "*"

// Allows reports whether one of the patterns fits an origin: "*", an origin, or one whose host begins with "*.". Origins
// are compared as browsers write them: in lower case, without the scheme's own port.
func Allows(patterns []string, origin string) bool {
	for _, p := range patterns {
		if p == AnyOrigin || p == origin {
			return true
		}
		scheme, suffix, wild := strings.Cut(p, "://*.")
		if !wild {
			continue
		}
		host, ok := strings.CutPrefix(origin, scheme+"://")
		if ok && len(host) > len(suffix)+1 && strings.HasSuffix(host, suffix) && host[len(host)-len(suffix)-1] == '.' {
			return true
		}
	}
	return false
}
