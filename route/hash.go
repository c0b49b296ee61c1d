package route

// Hash turns a request id, or the key of consistent hashing, into bits: FNV-1a with a final mix, so that short texts that
// differ little still differ in all bits. It is equal on every sidecar and for all time, since shares of traffic hang on it.
func Hash(s string) uint64 {
	h := hashText(s)
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	return h ^ h>>29
}

// maxRequestID is how long a request id may be, in octets.
const maxRequestID = 128

// IsRequestID tells whether a caller's request id is taken: it can stand in a log without harm. Another one is made anew.
func IsRequestID(s string) bool {
	if s == "" || len(s) > maxRequestID {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9', 'a' <= c|0x20 && c|0x20 <= 'z':
		case c == '-', c == '_', c == '.', c == ':', c == '/', c == '+', c == '=', c == '@':
		default:
			return false
		}
	}
	return true
}
