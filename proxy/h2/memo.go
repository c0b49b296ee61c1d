package h2

import (
	"hash/maphash"
	"strings"
)

// memo remembers which fields were sent lately. The encoder keeps the strings of what it indexes, but those of messages lie
// in buffers that are used again: so a field is indexed when it comes for the second time, as a copy that stays, which also
// spares the table what comes only once.
type memo struct {
	seed  maphash.Seed
	slots [memoSlots]noted
}

type noted struct {
	hash        uint64 // 0: free
	name, value string // ours; empty after the first time
}

const (
	memoSlots = 128
	memoBytes = 1 << 10 // what is longer is not indexed
)

// recall returns our copy of a field that has been here before.
func (m *memo) recall(name, value string) (string, string, bool) {
	if len(name)+len(value) > memoBytes {
		return "", "", false
	}
	h := maphash.String(m.seed, name)*31 ^ maphash.String(m.seed, value) | 1
	at := &m.slots[h>>1%memoSlots]
	if at.hash != h {
		if other := &m.slots[h>>32%memoSlots]; other.hash == h || at.hash != 0 {
			at = other
		}
	}
	switch {
	case at.hash != h:
		*at = noted{hash: h}
		return "", "", false
	case at.name == "":
		at.name, at.value = strings.Clone(name), strings.Clone(value)
	case at.name != name || at.value != value:
		return "", "", false
	}
	return at.name, at.value, true
}
