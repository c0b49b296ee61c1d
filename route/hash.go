package route

// Hash turns a request id, or the key of consistent hashing, into bits: FNV-1a with a final mix, so that short texts that
// differ little still differ in all bits. It is equal on every sidecar and for all time, since shares of traffic hang on it.
func Hash(s string) uint64 {
	h := hashText(s)
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	return h ^ h>>29
}
