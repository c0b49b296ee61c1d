package h2

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// text is a decoded field as the library has it.
func text(e *entry) field { return field{Name: e.Name, Value: e.Value, Sensitive: e.Secret} }

// TestStaticTable: the library knows the same table.
func TestStaticTable(t *testing.T) {
	lib := hpack.NewDecoder(tableSize, nil)
	for i := range static {
		fields, err := lib.DecodeFull([]byte{0x80 | byte(i+1)})
		if err != nil || text(&static[i]) != fields[0] {
			t.Errorf("%d is %v, want %v, %v", i+1, text(&static[i]), fields, err)
		}
	}
}

// TestTableSizes (H2-HP-003, H2-HP-012, H2-HP-013): two size updates before a block are legal, also while the table holds
// something, and together with fragments; one above our limit is not.
func TestTableSizes(t *testing.T) {
	var got []field
	d := newDecoder(1<<16, func(e *entry) error { got = append(got, text(e)); return nil })
	for _, tc := range []struct {
		parts []string
		ok    bool
	}{
		{[]string{"\x20\x3f\xe1\x1f\x82"}, true},
		{[]string{"\x40\x01a\x01b"}, true},
		{[]string{"\x3f\xe1\x0f\x3f\xe1\x1f\xbe"}, true}, // 2048, then 4096: the entry is still there
		{[]string{"\x3f\xe1\x1f", "\x82"}, true},
		{[]string{"\x3f", "\xe1\x1f\x82"}, true},
		{[]string{"\x20\x20\x20\x82"}, true},
		{[]string{"\x3f\xe2\x1f\x82"}, false}, // 4097
		{[]string{"\x82\x20"}, false},         // behind a field
	} {
		got = nil
		var err error
		for i, p := range tc.parts {
			if err = d.feed([]byte(p), i == len(tc.parts)-1); err != nil {
				break
			}
		}
		if (err == nil) != tc.ok || tc.ok && len(got) != 1 {
			t.Errorf("%q: %v, %v", tc.parts, got, err)
		}
	}
}

// pair decodes blocks twice: by us, cut into pieces, and by the library.
type pair struct {
	ours *decoder
	lib  *hpack.Decoder
	got  []field
}

func newPair() *pair {
	p := &pair{lib: hpack.NewDecoder(tableSize, nil)}
	p.lib.SetMaxStringLength(longest)
	p.ours = newDecoder(longest, func(e *entry) error {
		again := newEntry(e.Name, e.Value)
		if again.Secret = e.Secret; again != *e {
			return fmt.Errorf("%+v is remembered as %+v", again, *e)
		}
		p.got = append(p.got, text(e))
		return nil
	})
	return p
}

const longest = 2000

// decode decodes a block in pieces of so many octets. It reports whether the block was accepted.
func (p *pair) decode(t *testing.T, block []byte, piece int) bool {
	t.Helper()
	p.got = nil
	var err error
	for rest := block; err == nil; {
		n := min(len(rest), piece)
		err = p.ours.feed(rest[:n], n == len(rest))
		if rest = rest[n:]; len(rest) == 0 {
			break
		}
	}
	var ce *connError
	if err != nil && !errors.As(err, &ce) {
		t.Fatal(err)
	}
	want, libErr := p.lib.DecodeFull(block)
	switch {
	case err == errInteger || err == errResize: //nolint:errorlint // the library lets some pass
		return false
	case libErr != nil && strings.Contains(libErr.Error(), "MUST occur at the beginning"): // so does it say of two in a row
		return false
	case (err == nil) != (libErr == nil):
		t.Fatalf("%q: %v, the library says %v", block, err, libErr)
	case err == nil && !slices.Equal(p.got, want):
		t.Fatalf("%q: %v, the library says %v", block, p.got, want)
	}
	return err == nil
}

// FuzzDecoder decodes blocks, each behind its length, as the library does.
func FuzzDecoder(f *testing.F) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for range 3 {
		var block bytes.Buffer
		b.Reset()
		for _, n := range []string{":method", "x-a", "cookie", "accept", "connection"} {
			_ = e.WriteField(field{Name: n, Value: "some value", Sensitive: n == "cookie"})
		}
		block.WriteByte(byte(b.Len()))
		block.Write(b.Bytes())
		f.Add(bytes.Repeat(block.Bytes(), 3), 1)
		f.Add(block.Bytes(), 100)
	}
	f.Add([]byte("\x05\x00\x01a\x01b\x05\x00\x01a\x01b\x05\x00\x01a\x01b\x05\x00\x01a\x01b\x05\x40\x01a\x01b\x01\xbe"), 3)
	f.Add([]byte("\x03\x20\x20\x82\x05\x3f\xe1\x1f\x82\x20\x09\x7f\x80\x80\x80\x80\x80\x80\x80\x01"), 2)
	f.Fuzz(func(t *testing.T, s []byte, piece int) {
		p := newPair()
		for piece = max(1, piece); len(s) > 0; {
			n := min(int(s[0]), len(s)-1)
			if !p.decode(t, s[1:1+n], piece) {
				return
			}
			s = s[1+n:]
		}
	})
}

// TestDecoder decodes what an encoder with a table makes of many fields, and one without: fields that come again, too long
// ones, secrets, new sizes of the table.
func TestDecoder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	p := newPair()
	var b bytes.Buffer
	e, plain := hpack.NewEncoder(&b), encoder{}
	for i := range 20_000 {
		b.Reset()
		if i%500 == 0 {
			e.SetMaxDynamicTableSize(uint32(rnd.IntN(tableSize + 1)))
		}
		for range 1 + rnd.IntN(12) {
			f := field{Name: fmt.Sprintf("x-name-%02d", rnd.IntN(30)), Value: fmt.Sprintf("value %06d", rnd.IntN(1<<rnd.IntN(20))), Sensitive: rnd.IntN(20) == 0}
			if rnd.IntN(100) == 0 {
				f.Value = strings.Repeat("v", rnd.IntN(longest))
			}
			if i%3 > 0 {
				_ = e.WriteField(f)
				continue
			}
			plain.buf = plain.buf[:0]
			plain.literal(literalOnce, f.Name, f.Value)
			b.Write(plain.buf)
		}
		if !p.decode(t, b.Bytes(), []int{1, 7, 1 << 20}[i%3]) {
			t.Fatalf("block %d was refused", i)
		}
	}
}

// TestDecoderRemembersWithinBounds: what comes again costs nothing, and what a peer makes a connection remember is bounded.
func TestDecoderRemembersWithinBounds(t *testing.T) {
	var e encoder
	d := newDecoder(1<<16, func(*entry) error { return nil })
	feed := func() {
		if err := d.feed(e.buf, true); err != nil {
			t.Fatal(err)
		}
	}
	e.literal(literalOnce, "x-name", "a value that no table holds")
	for range 3 {
		feed()
	}
	if n := testing.AllocsPerRun(100, feed); n > 0 {
		t.Errorf("%v allocations for what came before", n)
	}
	for i := range 2000 {
		e.buf = e.buf[:0]
		e.literal(literalOnce, fmt.Sprintf("x-%d", i), strings.Repeat("v", 200))
		for range 3 {
			feed()
		}
		held := 0
		for _, k := range d.known.slots {
			if k != nil {
				held += len(k.code) + k.size()
			}
		}
		if held > literalOctets {
			t.Fatalf("%d octets are remembered", held)
		}
	}
	e.buf = e.buf[:0]
	e.literal(literalNever, "x-secret", "s3cret")
	for range 3 {
		feed()
	}
	for _, k := range d.known.slots {
		if k != nil && k.Name == "x-secret" {
			t.Error("a secret is remembered")
		}
	}
}
