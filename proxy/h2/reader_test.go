package h2

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// script is a connection from which bytes come in pieces whose sizes a test chooses.
type script struct {
	net.Conn
	rest []byte
	rnd  *rand.Rand
	most int
}

// Read implements io.Reader.
func (s *script) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), 1+s.rnd.IntN(s.most))], s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// SetReadDeadline implements net.Conn.
func (s *script) SetReadDeadline(time.Time) error { return nil }

// seen is a frame as both readers see it, or how the reading went on.
type seen struct {
	kind    kind
	flags   byte
	id      uint32
	payload string
	code    code
	value   uint32
	count   int
	end     string // of the connection; "stream" when only a stream is
}

// ours reads with our reader; the parts of DATA are put together.
func ours(b []byte, seed uint64, most int) (list []seen) {
	fs := newFrames(netio.New(&script{rest: b, rnd: rand.New(rand.NewPCG(seed, 1)), most: most}), nil)
	fs.onWait = func(time.Time) error { return nil }
	defer fs.release()
	var whole []byte
	for {
		f, err := fs.next()
		var ce *connError
		var se *streamError
		switch {
		case errors.As(err, &se):
			list = append(list, seen{id: se.id, code: se.code, end: "stream"})
			continue
		case errors.As(err, &ce):
			return append(list, seen{code: ce.code, end: "connection"})
		case err != nil:
			return append(list, seen{end: "closed"})
		}
		if f.part {
			whole = append(whole, f.payload...)
			continue
		}
		if f.kind == kindPush {
			return append(list, seen{kind: f.kind, flags: f.flags, id: f.id})
		}
		list = append(list, seen{f.kind, f.flags, f.id, string(whole) + string(f.payload), f.code, f.value, f.count, ""})
		whole = whole[:0]
	}
}

// theirs reads with the library. What it judges otherwise is corrected: padding errors in HEADERS are fatal since the
// block is lost, a payload too short for its padding is an error of size, and all settings are checked.
func theirs(b []byte) (list []seen) {
	fr := http2.NewFramer(io.Discard, bytes.NewReader(b))
	fr.SetMaxReadFrameSize(maxFrame)
	over := func(c code) []seen { return append(list, seen{code: c, end: "connection"}) }
	for {
		head, err := fr.ReadFrameHeader()
		whole := err == nil && len(b) >= frameHead+int(head.Length)
		var f http2.Frame
		if err == nil {
			f, err = fr.ReadFrameForHeader(head)
		}
		if whole {
			b = b[frameHead+int(head.Length):]
		}
		var ce http2.ConnectionError
		var se http2.StreamError
		switch {
		case errors.Is(err, http2.ErrFrameTooLarge):
			return over(frameSizeError)
		case err != nil && !whole && !errors.As(err, &ce):
			return append(list, seen{end: "closed"})
		case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
			return over(frameSizeError)
		case errors.As(err, &ce):
			return over(code(ce))
		case errors.As(err, &se) && head.Type == kindHeaders:
			return over(code(se.Code))
		case errors.As(err, &se):
			list = append(list, seen{id: se.StreamID, code: code(se.Code), end: "stream"})
			continue
		case err != nil:
			return over(protocolError)
		}
		s := seen{kind: head.Type, flags: byte(head.Flags), id: head.StreamID}
		switch f := f.(type) {
		case *http2.DataFrame:
			s.payload = string(f.Data())
		case *http2.HeadersFrame:
			s.payload = string(f.HeaderBlockFragment())
			if f.HasPriority() && f.Priority.StreamDep == s.id {
				return over(protocolError)
			}
		case *http2.ContinuationFrame:
			s.payload = string(f.HeaderBlockFragment())
		case *http2.PriorityFrame:
			s.value = f.StreamDep
		case *http2.RSTStreamFrame:
			s.code = code(f.ErrCode)
		case *http2.PingFrame:
			s.payload = string(f.Data[:])
		case *http2.GoAwayFrame:
			s.code, s.value = code(f.ErrCode), f.LastStreamID
		case *http2.WindowUpdateFrame:
			s.value = f.Increment
		case *http2.SettingsFrame:
			if f.NumSettings() > maxSettings {
				return over(enhanceYourCalm)
			}
			for i := range f.NumSettings() {
				set := f.Setting(i)
				if err := set.Valid(); errors.As(err, &ce) {
					return over(code(ce))
				}
				if set.ID == setConnect && set.Val > 1 {
					return over(protocolError)
				}
				s.count++
			}
		}
		list = append(list, s)
		if s.kind == kindPush { // for us it is the end, whatever is in it
			return list
		}
	}
}

// same compares what both readers make of bytes, up to the first end of the connection.
func same(t *testing.T, b []byte, seed uint64, most int) {
	t.Helper()
	a, z := ours(b, seed, most), theirs(b)
	for i := range max(len(a), len(z)) {
		switch {
		case i < len(a) && i < len(z) && a[i] == z[i]:
			continue
		// Any PUSH_PROMISE ends the connection, a malformed one here and any other in handle.
		case i < len(a) && i < len(z) && a[i].kind == kindPush && z[i].end == "connection":
			return
		// Of a frame that is cut short, we may have judged the head.
		case i < len(a) && i < len(z) && z[i].end == "closed" && a[i].end == "connection":
			return
		}
		t.Fatalf("frame %d of %x: ours\n%+v\nthe library's\n%+v", i, b, a[min(i, len(a)):], z[min(i, len(z)):])
	}
}

// FuzzFrameReader holds our reader against the library's, whatever comes and in whatever pieces.
func FuzzFrameReader(f *testing.F) {
	var b bytes.Buffer
	fr := http2.NewFramer(&b, nil)
	fr.AllowIllegalWrites = true
	_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1})
	f.Add(append([]byte(nil), b.Bytes()...), uint64(1), uint16(5))
	b.Reset()
	writeAll(fr, rand.New(rand.NewPCG(1, 2)), 40)
	f.Add(append([]byte(nil), b.Bytes()...), uint64(1), uint16(100))
	b.Reset()
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("abc"), PadLength: 2, Priority: http2.PriorityParam{StreamDep: 3}})
	_ = fr.WriteContinuation(3, true, nil)
	f.Add(append([]byte(nil), b.Bytes()...), uint64(1), uint16(1))
	for _, raw := range []string{
		"\x00\x00\x00\x00\x08\x00\x00\x00\x01", "\x00\x00\x01\x00\x08\x00\x00\x00\x01\x01", "\x00\x00\x01\x01\x2c\x00\x00\x00\x01\x00",
		"\x00\x40\x01\x00\x00\x00\x00\x00\x01", "\x00\x00\x04\x08\x00\x00\x00\x00\x01\x00\x00\x00\x00",
	} {
		f.Add([]byte(raw), uint64(1), uint16(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, seed uint64, most uint16) { same(t, b, seed, int(most)+1) })
}

// writeAll writes frames of all kinds, most of them sound.
func writeAll(fr *http2.Framer, rnd *rand.Rand, n int) {
	for range n {
		id := uint32(1 + 2*rnd.IntN(5))
		switch p := make([]byte, rnd.IntN(1<<rnd.IntN(15))); rnd.IntN(12) {
		case 0, 1, 2:
			_ = fr.WriteData(id, rnd.IntN(2) == 0, p)
		case 3:
			_ = fr.WriteDataPadded(id, rnd.IntN(2) == 0, p, make([]byte, rnd.IntN(255)))
		case 4:
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p, EndHeaders: true, PadLength: uint8(rnd.IntN(255))})
		case 5:
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p, Priority: http2.PriorityParam{StreamDep: 11, Weight: 1}})
			_ = fr.WriteContinuation(id, false, p)
			_ = fr.WriteContinuation(id, true, nil)
		case 6:
			_ = fr.WritePing(rnd.IntN(2) == 0, [8]byte{1, 2, 3})
		case 7:
			_ = fr.WriteWindowUpdate(id-1, uint32(1+rnd.IntN(1<<30)))
		case 8:
			_ = fr.WriteRSTStream(id, http2.ErrCodeCancel)
		case 9:
			_ = fr.WriteGoAway(id, http2.ErrCodeNo, p[:min(len(p), 100)])
		case 10:
			_ = fr.WriteSettings(http2.Setting{ID: http2.SettingID(1 + rnd.IntN(4)), Val: uint32(rnd.IntN(2))})
		case 11:
			_ = fr.WriteRawFrame(http2.FrameType(10+rnd.IntN(100)), 0xff, id, p)
		}
	}
}

// TestFrameReaderAsTheLibrary reads long runs of sound and of damaged frames with both.
func TestFrameReaderAsTheLibrary(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		var b bytes.Buffer
		fr := http2.NewFramer(&b, nil)
		fr.AllowIllegalWrites = true
		writeAll(fr, rnd, 60)
		text := b.Bytes()
		if seed%3 == 0 { // damage
			for range 1 + rnd.IntN(4) {
				text[rnd.IntN(len(text))] = byte(rnd.Uint32())
			}
		}
		if seed%5 == 0 {
			text = text[:rnd.IntN(len(text))]
		}
		same(t, text, seed, 1+rnd.IntN(1<<rnd.IntN(17)))
	}
}

// TestFrameReaderCopiesNothing: what is at hand is read where it lies, without allocating.
func TestFrameReaderCopiesNothing(t *testing.T) {
	var b bytes.Buffer
	fr := http2.NewFramer(&b, nil)
	for range 100 {
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, EndHeaders: true})
		_ = fr.WriteData(1, false, make([]byte, 20))
	}
	fs := newFrames(netio.New(&script{}), b.Bytes())
	fs.onWait = func(time.Time) error { return nil }
	defer fs.release()
	if n := testing.AllocsPerRun(50, func() {
		for range 2 {
			if f, err := fs.next(); err != nil || cap(f.payload) != len(f.payload) {
				t.Fatal(f, err)
			}
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
