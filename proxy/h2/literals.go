package h2

import "hash/maphash"

// literals remembers what literals that came lately decode to. So a peer that indexes nothing, or the same fields in each
// message, costs little more than one whose blocks are indexes.
type literals struct {
	last   uint64               // hash of what was looked for last
	seen   [literalSlots]uint32 // of hashes of what came once
	slots  [literalSlots]*literal
	octets int // of all slots
}

// literal is a field that was given as a literal.
type literal struct {
	index string // the name, where that came as an index; else it is part of
	code  string
	entry
}

const (
	literalSlots  = 64
	literalCode   = 256     // octets: a longer one is not remembered
	literalOctets = 8 << 10 // that a connection remembers
)

// recall returns the field that a code means behind the index of a name, if any; nil: it is not remembered.
func (l *literals) recall(index string, code []byte) *entry {
	if l == nil || len(code) > literalCode {
		return nil
	}
	l.last = maphash.Bytes(seed, code) + uint64(len(index))
	if k := l.slots[l.last%literalSlots]; k != nil && k.code == string(code) && k.index == index {
		return &k.entry
	}
	return nil
}

// learn remembers what recall was asked for last, if it has come before.
func (l *literals) learn(index string, code []byte, e *entry) {
	if l == nil || len(code) > literalCode {
		return
	}
	i, hash := l.last%literalSlots, uint32(l.last>>32)|1
	if l.seen[i] != hash {
		l.seen[i] = hash
		return
	}
	if l.octets += len(code) + e.size(); l.octets > literalOctets {
		*l = literals{octets: len(code) + e.size()}
	}
	l.slots[i] = &literal{index: index, code: string(code), entry: *e}
}
