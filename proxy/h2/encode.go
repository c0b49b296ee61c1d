package h2

import (
	"strings"

	"golang.org/x/net/http2/hpack"
)

// field is a header field.
type field = hpack.HeaderField

// encoder encodes header blocks. The lock of its connection guards it.
type encoder struct {
	e    *hpack.Encoder
	buf  []byte
	text []byte // of a value that is put together
	memo *memo  // nil until the first field
	era  uint32 // of the table: another one since something was indexed
	owes bool   // a table size update, which the library puts before its next field
}

func newEncoder() *encoder {
	e := &encoder{}
	e.e = hpack.NewEncoder(e)
	e.e.SetMaxDynamicTableSizeLimit(tableSize)
	return e
}

// Write implements io.Writer for the library.
func (e *encoder) Write(p []byte) (int, error) {
	e.buf = append(e.buf, p...)
	return len(p), nil
}

// limit obeys the peer's SETTINGS_HEADER_TABLE_SIZE, as far as it is below our own.
func (e *encoder) limit(n uint32) {
	e.e.SetMaxDynamicTableSize(min(n, tableSize))
	e.owes = true
}

// constant adds a field whose strings live for ever.
func (e *encoder) constant(name, value string) {
	if n := e.recall(name, value, sum(name, value)); n != nil {
		e.again(n)
		return
	}
	e.write(field{Name: name, Value: value})
}

// static adds a field that the static table has as a whole at an index below 64.
func (e *encoder) static(index byte) {
	if e.owes {
		f := &static[index-1]
		e.write(field{Name: f.Name, Value: f.Value})
		return
	}
	e.buf = append(e.buf, 0x80|index)
}

// write has the library add a field whose strings live for ever. What it writes begins with a set bit where it is nothing
// but an index (RFC 7541 6.1); all else may change the table.
func (e *encoder) write(f field) (index []byte) {
	e.owes = false
	at := len(e.buf)
	_ = e.e.WriteField(f) // our Write does not fail
	if e.buf[at]&0x80 != 0 {
		return e.buf[at:]
	}
	if e.era++; e.era == 0 { // an index of that long ago must not hold again
		e.memo.forget()
	}
	return nil
}

// again adds a field that was here before. The index that the library found for it holds until something is indexed.
func (e *encoder) again(n *noted) {
	if n.size > 0 && n.era == e.era && !e.owes {
		e.buf = append(e.buf, n.code[:n.size]...)
		return
	}
	index := e.write(field{Name: n.text[:n.name], Value: n.text[n.name:]})
	n.size = 0
	if len(index) <= len(n.code) {
		n.era, n.size = e.era, uint8(copy(n.code[:], index))
	}
}

func (e *encoder) recall(name, value string, sum uint32) *noted {
	if e.memo == nil {
		e.memo = new(memo)
	}
	return e.memo.recall(name, value, sum)
}

// usual adds a field that each message has.
func (e *encoder) usual(u usual, name, value string) {
	if e.memo != nil {
		if n := e.memo.usual[u]; n != nil && n.is(name, value) {
			e.again(n)
			return
		}
	}
	n := e.recall(name, value, sum(name, value))
	if n == nil {
		e.once(name, value)
		return
	}
	e.memo.usual[u] = n
	e.again(n)
}

// add adds a field whose strings may live only as long as its message.
func (e *encoder) add(name, value string) { e.addSum(name, value, sum(name, value)) }

// addSum is add for a field whose sum is known.
func (e *encoder) addSum(name, value string, sum uint32) {
	if n := e.recall(name, value, sum); n != nil {
		e.again(n)
		return
	}
	e.once(name, value)
}

// once adds a field that will hardly come again.
func (e *encoder) once(name, value string) {
	if e.owes {
		e.write(field{Name: strings.Clone(name), Value: strings.Clone(value)})
		return
	}
	e.literal(literalOnce, name, value)
}

// secret adds a field that no hop may index.
func (e *encoder) secret(name, value string) {
	if e.owes {
		e.write(field{Name: strings.Clone(name), Value: strings.Clone(value), Sensitive: true})
		return
	}
	e.literal(literalNever, name, value)
}

// Literals with a new name (RFC 7541 6.2.2, 6.2.3).
const (
	literalOnce  = 0x00
	literalNever = 0x10
)

// literal adds a field that is not indexed, not Huffman-coded either.
func (e *encoder) literal(form byte, name, value string) {
	e.buf = append(e.buf, form)
	e.buf = appendText(e.buf, name)
	e.buf = appendText(e.buf, value)
}

// appendText adds a string literal (RFC 7541 5.2).
func appendText(b []byte, s string) []byte {
	n := len(s)
	if n < 0x7f {
		b = append(b, byte(n))
	} else {
		b = append(b, 0x7f)
		for n -= 0x7f; n >= 0x80; n >>= 7 {
			b = append(b, byte(n)|0x80)
		}
		b = append(b, byte(n))
	}
	return append(b, s...)
}
