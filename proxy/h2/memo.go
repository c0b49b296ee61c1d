package h2

import "hash/maphash"

// memo remembers which fields were sent lately. The encoder keeps the strings of what it indexes, but those of messages lie
// in buffers that are used again: so a field is indexed when it comes for the second time, as a copy that stays, which also
// spares the table what comes only once.
type memo struct {
	seed  maphash.Seed
	slots [memoSlots]noted
}

// noted is a field that was sent. It is kept small: each connection has many.
type noted struct {
	hash uint32 // 0: free
	era  uint32 // of the encoder's table, in which code holds
	text string // name and value, ours; empty after the first time
	name uint16 // its length
	size uint8  // of code; 0: there is none
	code [2]byte
}

const (
	memoSlots = 128
	memoBytes = 1 << 10 // what is longer is not indexed
)

// recall returns what is remembered of a field that has been here before; nil: nothing.
func (m *memo) recall(name, value string) *noted {
	if len(name)+len(value) > memoBytes {
		return nil
	}
	h := maphash.String(m.seed, name)*31 ^ maphash.String(m.seed, value)
	hash := uint32(h) | 1
	at := &m.slots[h>>1%memoSlots]
	if at.hash != hash {
		if other := &m.slots[h>>32%memoSlots]; other.hash == hash || at.hash != 0 {
			at = other
		}
	}
	switch {
	case at.hash != hash:
		*at = noted{hash: hash}
		return nil
	case at.text == "":
		at.text, at.name = name+value, uint16(len(name))
	case int(at.name) != len(name) || at.text[:at.name] != name || at.text[at.name:] != value:
		return nil
	}
	return at
}

// forget frees all places.
func (m *memo) forget() { clear(m.slots[:]) }
