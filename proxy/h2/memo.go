package h2

import "hash/maphash"

// memo remembers which fields were sent lately. The encoder keeps the strings of what it indexes, but those of messages lie
// in buffers that are used again: so a field is indexed when it comes for the second time, as a copy that stays, which also
// spares the table what comes only once.
type memo struct {
	slots  [memoSlots]noted
	octets int            // of all texts
	usual  [usuals]*noted // where what each message has was found last
}

// usual is a field that each message has, mostly with the value of the last one.
type usual uint8

const (
	usualMethod usual = iota
	usualAuthority
	usualPath
	usualClient
	usualProto
	usuals
)

// seed keeps peers from choosing what collides.
var seed = maphash.MakeSeed()

// sum is a hash of a field; never 0.
func sum(name, value string) uint32 {
	return uint32(maphash.String(seed, name)*31^maphash.String(seed, value)) | 1
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

	memoOctets = 16 << 10 // that a connection remembers
)

// recall returns what is remembered of a field, with its sum, that has been here before; nil: nothing.
func (m *memo) recall(name, value string, hash uint32) *noted {
	if len(name)+len(value) > memoBytes {
		return nil
	}
	at := &m.slots[hash>>1%memoSlots]
	if at.hash != hash {
		if other := &m.slots[hash>>9%memoSlots]; other.hash == hash || at.hash != 0 {
			at = other
		}
	}
	switch {
	case at.hash != hash:
		m.octets -= len(at.text)
		*at = noted{hash: hash}
		return nil
	case at.text == "":
		if m.octets += len(name) + len(value); m.octets > memoOctets {
			m.forget()
			return nil
		}
		at.text, at.name = name+value, uint16(len(name))
	case !at.is(name, value):
		return nil
	}
	return at
}

func (n *noted) is(name, value string) bool {
	return int(n.name) == len(name) && n.text[:n.name] == name && n.text[n.name:] == value
}

// forget frees all places.
func (m *memo) forget() { *m = memo{} }
