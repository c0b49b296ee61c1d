package route

import "strings"

// CookieValue returns the first cookie of that name, as sent.
func CookieValue(fields Fields, name string) (string, bool) {
	for at := 0; ; {
		s, next, ok := fields.Next("cookie", at)
		if !ok {
			return "", false
		}
		for pair := range strings.SplitSeq(s, ";") {
			if n, v, ok := cut(pair, '='); ok && trim(n) == name {
				return trim(v), true
			}
		}
		at = next
	}
}

// QueryValue returns the first parameter of that name in a raw query, as sent: still encoded.
func QueryValue(query, name string) (string, bool) {
	for pair := range strings.SplitSeq(query, "&") {
		if n, v, _ := cut(pair, '='); pair != "" && sameDecoded(n, name) {
			return v, true
		}
	}
	return "", false
}
