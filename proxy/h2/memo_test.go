package h2

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/net/http2/hpack"
)

// TestEncoderKeepsNothingOfMessages sends fields whose memory is overwritten behind each message, as that of pooled buffers
// is, and changes the size of the table meanwhile: what is decoded is what was meant.
func TestEncoderKeepsNothingOfMessages(t *testing.T) {
	e, buffer := newEncoder(), make([]byte, 4<<10)
	e.era = math.MaxUint32 - 5000 // the count of what was indexed starts again meanwhile
	var got []hpack.HeaderField
	d := newDecoder(1<<16, func(e *entry) error { got = append(got, text(e)); return nil })
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 20_000 {
		var want []hpack.HeaderField
		at := 0
		keep := func(s string) string {
			n := copy(buffer[at:], s)
			at += n
			return unsafe.String(&buffer[at-n], n)
		}
		got = nil
		if i%1000 == 500 {
			e.limit([]uint32{0, 100, 4096}[rnd.IntN(3)])
			e.limit(uint32(rnd.IntN(9000)))
		}
		for range 1 + rnd.IntN(12) {
			name, value := fmt.Sprintf("x-name-%02d", rnd.IntN(30)), fmt.Sprintf("value %06d", rnd.IntN(1<<rnd.IntN(20)))
			want = append(want, hpack.HeaderField{Name: name, Value: value})
			e.add(keep(name), keep(value))
			if i%3 == 0 { // one that repeats while nothing else is indexed
				want = append(want, hpack.HeaderField{Name: ":status", Value: "200"}, hpack.HeaderField{Name: "te", Value: "trailers"})
				e.static(static200)
				e.constant("te", "trailers")
				path := fmt.Sprintf("/%d", rnd.IntN(3))
				want = append(want, hpack.HeaderField{Name: ":path", Value: path})
				e.usual(usualPath, keep(":path"), keep(path))
			}
		}
		if i%100 == 0 {
			name, value := "x-long", strings.Repeat("v", []int{126, 127, 128, 254, 255, 300, 3000}[rnd.IntN(7)])
			want = append(want, hpack.HeaderField{Name: name, Value: value})
			e.add(name, value)
		}
		if err := d.feed(e.buf, true); err != nil {
			t.Fatal(err)
		}
		e.buf = e.buf[:0]
		if !slices.Equal(got, want) {
			t.Fatalf("block %d: got %v, want %v", i, got, want)
		}
		clear(buffer)
	}
}

// TestEncoderForgetsOldIndexes: an index that was found 2^32 changes of the table ago does not hold again.
func TestEncoderForgetsOldIndexes(t *testing.T) {
	e := newEncoder()
	var got []hpack.HeaderField
	d := newDecoder(1<<16, func(e *entry) error { got = append(got, text(e)); return nil })
	thrice := func(name string) {
		for range 3 { // the first is not indexed, the second is, the third finds its index
			e.add(name, "value")
		}
	}
	thrice("x-old")
	then := e.era
	e.era = math.MaxUint32
	for e.era != then {
		thrice(fmt.Sprintf("x-new-%d", e.era))
	}
	e.add("x-old", "value")
	if err := d.feed(e.buf, true); err != nil {
		t.Fatal(err)
	}
	if last := got[len(got)-1]; last.Name != "x-old" {
		t.Errorf("x-old was sent as %v", last)
	}
}

// TestEncoderIndexesWhatRepeats: the third time, a field takes one octet.
func TestEncoderIndexesWhatRepeats(t *testing.T) {
	e := newEncoder()
	for i, want := range []int{1 + 1 + 6 + 1 + 9, 0, 1} {
		e.buf = e.buf[:0]
		e.add("x-name", "one value")
		if got := len(e.buf); want > 0 && got != want {
			t.Errorf("%d octets the time %d, want %d", got, i, want)
		}
	}
}

// TestEncoderTableIsBounded (H2-DS-111): a peer that offers a table without bound gets no more than ours: what is sent can
// be decoded with 4096 octets, and nothing is kept beyond them.
func TestEncoderTableIsBounded(t *testing.T) {
	e := newEncoder()
	e.limit(1<<32 - 1)
	d := hpack.NewDecoder(tableSize, func(hpack.HeaderField) {})
	d.SetAllowedMaxDynamicTableSize(tableSize)
	for i := range 5000 {
		for range 3 {
			e.add(fmt.Sprintf("x-name-%d", i%500), strings.Repeat("v", 300))
		}
		if _, err := d.Write(e.buf); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		e.buf = e.buf[:0]
	}
	if n := e.e.MaxDynamicTableSize(); n > tableSize {
		t.Errorf("a table of %d", n)
	}
}
