package h2

import (
	"golang.org/x/net/http2/hpack"
)

// decoder decodes header blocks (RFC 7541). It belongs to the reader goroutine.
type decoder struct {
	emit  func(*entry) error // is given each field, which is valid until it returns
	limit int                // octets of a string
	table table
	known *literals // nil until a second block comes: many connections carry but one
	begun bool      // a field of this block has come
	used  bool      // a block has been decoded
	rest  []byte    // of a representation whose end has not come
	now   entry     // being emitted
}

func newDecoder(limit int, emit func(*entry) error) *decoder {
	return &decoder{emit: emit, limit: limit, table: table{limit: tableSize}}
}

// Errors of header blocks. Each ends the connection, since its table is not what the peer takes it for any more.
var (
	errTruncated = &connError{compressionError, "truncated header block"}
	errInteger   = &connError{compressionError, "an integer of a header block is out of bounds"}
	errIndex     = &connError{compressionError, "an index of a header block means nothing"}
	errString    = &connError{compressionError, "a string of a header block is too long"}
	errHuffman   = &connError{compressionError, "malformed Huffman code"}
	errResize    = &connError{compressionError, "table size update behind a field"}
	errTableSize = &connError{compressionError, "table size update above our limit"}
)

// feed decodes a fragment of a block, the last one if end.
func (d *decoder) feed(p []byte, end bool) error {
	if len(d.rest) > 0 {
		d.rest = append(d.rest, p...)
		p = d.rest
	}
	for len(p) > 0 {
		n, err := d.next(p)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		p = p[n:]
	}
	switch {
	case !end:
		d.rest = append(d.rest[:0], p...)
		return nil
	case len(p) > 0:
		return errTruncated
	}
	if d.used && d.known == nil {
		d.known = new(literals)
	}
	d.rest, d.begun, d.used = nil, false, true
	return nil
}

// next decodes one representation (RFC 7541 6) and returns its length; 0: its end has not come.
func (d *decoder) next(p []byte) (int, error) {
	switch b := p[0]; {
	case b&0x80 != 0:
		i, n, err := integer(p, 7)
		if n == 0 {
			return 0, err
		}
		e := d.table.at(i)
		if e == nil {
			return 0, errIndex
		}
		d.begun = true
		return n, d.emit(e)
	case b&0x40 != 0:
		return d.literal(p, 6)
	case b&0x20 != 0:
		return d.resize(p)
	}
	return d.literal(p, 4)
}

// resize applies a table size update: two in a row are legal, before the first field (RFC 7541 4.2).
func (d *decoder) resize(p []byte) (int, error) {
	size, n, err := integer(p, 5)
	switch {
	case n == 0:
		return 0, err
	case d.begun:
		return 0, errResize
	case size > tableSize:
		return 0, errTableSize
	}
	d.table.resize(size)
	return n, nil
}

// literal decodes a field whose value is given, and its name by an index or as well (RFC 7541 6.2).
func (d *decoder) literal(p []byte, bits int) (int, error) {
	index, from, err := integer(p, bits)
	if from == 0 {
		return 0, err
	}
	name, at := "", from
	if index > 0 {
		e := d.table.at(index)
		if e == nil {
			return 0, errIndex
		}
		name = e.Name
	} else {
		n, err := d.span(p[at:])
		if n == 0 {
			return 0, err
		}
		at += n
	}
	n, err := d.span(p[at:])
	if n == 0 {
		return 0, err
	}
	end := at + n
	d.begun = true
	secret := bits == 4 && p[0]&0x10 != 0
	e := d.known.recall(name, p[from:end])
	if e == nil || secret {
		if e, err = d.decode(name, p[from:at], p[at:end]); err != nil {
			return 0, err
		}
		if e.Secret = secret; !secret {
			d.known.learn(name, p[from:end], e)
		}
	}
	if bits == 6 {
		d.table.add(e)
	}
	return end, d.emit(e)
}

// decode makes a field of the codes of its name, unless that is known, and of its value.
func (d *decoder) decode(name string, nameCode, valueCode []byte) (_ *entry, err error) {
	if len(nameCode) > 0 {
		if name, err = d.text(nameCode); err != nil {
			return nil, err
		}
	}
	value, err := d.text(valueCode)
	if err != nil {
		return nil, err
	}
	d.now = newEntry(name, value)
	return &d.now, nil
}

// span returns the length of a string literal (RFC 7541 5.2); 0: its end has not come.
func (d *decoder) span(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	size, n, err := integer(p, 7)
	switch {
	case n == 0:
		return 0, err
	case size > d.limit:
		return 0, errString
	case size > len(p)-n:
		return 0, nil
	}
	return n + size, nil
}

// text decodes a string literal that is there as a whole.
func (d *decoder) text(p []byte) (string, error) {
	_, n, _ := integer(p, 7)
	if p[0]&0x80 == 0 {
		return string(p[n:]), nil
	}
	s, err := hpack.HuffmanDecodeToString(p[n:])
	switch {
	case err != nil:
		return "", errHuffman
	case len(s) > d.limit:
		return "", errString
	}
	return s, nil
}

// maxOctets is how many octets an integer may have behind its first: enough for all that is within our limits.
const maxOctets = 4

// integer reads an integer with a prefix of so many bits (RFC 7541 5.1) and returns its length; 0: its end has not come.
func integer(p []byte, bits int) (value, length int, err error) {
	most := 1<<bits - 1
	if value = int(p[0]) & most; value < most {
		return value, 1, nil
	}
	for i, b := range p[1:] {
		if i == maxOctets {
			return 0, 0, errInteger
		}
		value += int(b&0x7f) << (7 * i)
		if b&0x80 == 0 {
			return value, i + 2, nil
		}
	}
	return 0, 0, nil
}
