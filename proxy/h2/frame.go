package h2

import (
	"errors"
	"hash/maphash"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// This file alone knows the framing library. What the library leaves to its users is settled here: it knows nothing of
// limits on settings, takes padding errors in HEADERS for harmless though they lose the compression state, and reports
// short payloads as the end of the connection.

// code is an error code of RFC 9113 7.
type code uint32

const (
	noError          = code(http2.ErrCodeNo)
	protocolError    = code(http2.ErrCodeProtocol)
	internalError    = code(http2.ErrCodeInternal)
	flowControlError = code(http2.ErrCodeFlowControl)
	settingsTimeout  = code(http2.ErrCodeSettingsTimeout)
	streamClosed     = code(http2.ErrCodeStreamClosed)
	frameSizeError   = code(http2.ErrCodeFrameSize)
	refusedStream    = code(http2.ErrCodeRefusedStream)
	cancelled        = code(http2.ErrCodeCancel)
	compressionError = code(http2.ErrCodeCompression)
	connectError     = code(http2.ErrCodeConnect)
	enhanceYourCalm  = code(http2.ErrCodeEnhanceYourCalm)
)

// String returns the name of c as the RFC has it.
func (c code) String() string { return http2.ErrCode(c).String() }

// kind is the type of a frame.
type kind = http2.FrameType

const (
	kindData         = http2.FrameData
	kindHeaders      = http2.FrameHeaders
	kindPriority     = http2.FramePriority
	kindReset        = http2.FrameRSTStream
	kindSettings     = http2.FrameSettings
	kindPush         = http2.FramePushPromise
	kindPing         = http2.FramePing
	kindGoAway       = http2.FrameGoAway
	kindWindow       = http2.FrameWindowUpdate
	kindContinuation = http2.FrameContinuation

	flagEndStream  = 0x1 // of DATA and HEADERS
	flagAck        = 0x1 // of SETTINGS and PING
	flagEndHeaders = 0x4 // of HEADERS and CONTINUATION
)

// Identifiers of settings (RFC 9113 6.5.2, RFC 8441 3).
const (
	setTableSize     = http2.SettingHeaderTableSize
	setEnablePush    = http2.SettingEnablePush
	setMaxStreams    = http2.SettingMaxConcurrentStreams
	setInitialWindow = http2.SettingInitialWindowSize
	setMaxFrame      = http2.SettingMaxFrameSize
	setMaxList       = http2.SettingMaxHeaderListSize
	setConnect       = http2.SettingEnableConnectProtocol
)

type setting = http2.Setting

const (
	// Preface is what a client sends first (RFC 9113 3.4).
	Preface = http2.ClientPreface

	maxFrame      = 16384 // what we accept, and send at most
	tableSize     = 4096  // of header compression, both ways
	maxSettings   = 32    // entries of one frame
	defaultWindow = 65535
	maxWindow     = 1<<31 - 1
	frameHead     = 9 // bytes before the payload
)

// connError ends the whole connection.
type connError struct {
	code code
	text string
}

// Error implements error.
func (e *connError) Error() string { return e.code.String() + ": " + e.text }

// streamError ends one stream.
type streamError struct {
	id   uint32
	code code
	text string
}

// Error implements error.
func (e *streamError) Error() string { return e.code.String() + ": " + e.text }

// frame is a frame that was read, valid until the next one is.
type frame struct {
	kind     kind
	flags    byte
	id       uint32
	length   int    // of the payload, padding included: what counts for flow control
	payload  []byte // DATA: without padding; HEADERS, CONTINUATION: the fragment; PING: the eight bytes
	code     code   // RST_STREAM, GOAWAY
	value    uint32 // WINDOW_UPDATE: increment; GOAWAY: last stream; HEADERS and PRIORITY: the stream depended on
	settings [maxSettings]setting
	count    int // of settings
}

func (f *frame) has(flag byte) bool { return f.flags&flag != 0 }

const readBuffer = 16 << 10

var readBuffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

func lendRead() []byte    { return readBuffers.Get().(*[readBuffer]byte)[:] }
func returnRead(b []byte) { readBuffers.Put((*[readBuffer]byte)(b)) }

// frames reads frames from a connection. It belongs to the reader goroutine.
type frames struct {
	c      *netio.Conn
	framer *http2.Framer
	buf    []byte // nil while idle
	r, w   int
	failed error // of the socket
	// onWait is called every tickEvery, whether anything comes or not; an error of it ends the reading.
	onWait func(time.Time) error
	tick   time.Time // when it is called next
	f      frame
}

func newFrames(c *netio.Conn, first []byte) *frames {
	fs := &frames{c: c, tick: time.Now().Add(tickEvery)}
	fs.framer = http2.NewFramer(io.Discard, fs)
	fs.framer.SetMaxReadFrameSize(maxFrame)
	fs.framer.SetReuseFrames()
	if len(first) > 0 {
		fs.buf = lendRead()
		fs.w = copy(fs.buf, first)
	}
	return fs
}

// Read implements io.Reader for the framer. While it waits it holds no buffer.
func (fs *frames) Read(p []byte) (int, error) {
	if fs.r == fs.w {
		fs.release()
		if err := fs.fill(); err != nil {
			fs.failed = err
			return 0, err
		}
	}
	n := copy(p, fs.buf[fs.r:fs.w])
	fs.r += n
	return n, nil
}

func (fs *frames) fill() error {
	for {
		if now := time.Now(); !now.Before(fs.tick) {
			if err := fs.onWait(now); err != nil {
				return err
			}
			fs.tick = now.Add(tickEvery)
		}
		b, n, err := fs.c.ReadLent(lendRead, returnRead, fs.tick)
		if err == nil {
			fs.buf, fs.r, fs.w = b, 0, n
			return nil
		}
		if !errors.Is(err, netio.ErrTimeout) {
			return err
		}
	}
}

func (fs *frames) release() {
	if fs.buf != nil {
		returnRead(fs.buf)
		fs.buf = nil
	}
}

// preface reads what a client sends first.
func (fs *frames) preface() error {
	var b [len(Preface)]byte
	if _, err := io.ReadFull(fs, b[:]); err != nil {
		return err
	}
	if string(b[:]) != Preface {
		return errPreface
	}
	return nil
}

// next reads one frame. Errors are connError, streamError or those of the socket.
func (fs *frames) next() (*frame, error) {
	head, err := fs.framer.ReadFrameHeader()
	if err == nil {
		var fr http2.Frame
		if fr, err = fs.framer.ReadFrameForHeader(head); err == nil {
			return fs.describe(head, fr)
		}
	}
	var ce http2.ConnectionError
	var se http2.StreamError
	switch {
	case fs.failed != nil:
		return nil, fs.failed
	case errors.Is(err, http2.ErrFrameTooLarge):
		return nil, &connError{frameSizeError, "frame larger than SETTINGS_MAX_FRAME_SIZE"}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return nil, &connError{frameSizeError, "payload too short for its frame"}
	case errors.As(err, &ce):
		text := "malformed frame"
		if detail := fs.framer.ErrorDetail(); detail != nil {
			text = detail.Error()
		}
		return nil, &connError{code(ce), text}
	case errors.As(err, &se) && (head.Type == kindHeaders || head.Type == kindContinuation):
		return nil, &connError{code(se.Code), "malformed HEADERS: its block is lost, and the compression state with it"}
	case errors.As(err, &se):
		return nil, &streamError{se.StreamID, code(se.Code), "malformed " + head.Type.String()}
	}
	return nil, &connError{protocolError, err.Error()}
}

// describe copies what matters of a frame.
func (fs *frames) describe(head http2.FrameHeader, fr http2.Frame) (*frame, error) {
	f := &fs.f
	f.kind, f.flags, f.id, f.length = head.Type, byte(head.Flags), head.StreamID, int(head.Length)
	f.payload, f.code, f.value, f.count = nil, 0, 0, 0
	switch fr := fr.(type) {
	case *http2.DataFrame:
		f.payload = fr.Data()
	case *http2.HeadersFrame:
		f.payload = fr.HeaderBlockFragment()
		if fr.HasPriority() && fr.Priority.StreamDep == f.id {
			return nil, &connError{protocolError, "stream depends on itself"}
		}
	case *http2.ContinuationFrame:
		f.payload = fr.HeaderBlockFragment()
	case *http2.PriorityFrame:
		f.value = fr.StreamDep
	case *http2.RSTStreamFrame:
		f.code = code(fr.ErrCode)
	case *http2.PingFrame:
		f.payload = fr.Data[:]
	case *http2.GoAwayFrame:
		f.code, f.value = code(fr.ErrCode), fr.LastStreamID
	case *http2.WindowUpdateFrame:
		f.value = fr.Increment
	case *http2.SettingsFrame:
		return f, fs.settings(fr)
	}
	return f, nil
}

// settings takes over all entries, each of which is checked: the library checks some of them only where they stand first.
func (fs *frames) settings(fr *http2.SettingsFrame) error {
	f := &fs.f
	if fr.NumSettings() > maxSettings {
		return &connError{enhanceYourCalm, "too many settings in one frame"}
	}
	for i := range fr.NumSettings() {
		s := fr.Setting(i)
		if err := s.Valid(); err != nil {
			var ce http2.ConnectionError
			if !errors.As(err, &ce) {
				ce = http2.ConnectionError(protocolError)
			}
			return &connError{code(ce), "setting out of bounds: " + s.String()}
		}
		if s.ID == setConnect && s.Val > 1 {
			return &connError{protocolError, "setting out of bounds: " + s.String()}
		}
		f.settings[f.count] = s
		f.count++
	}
	return nil
}

// field is a header field.
type field = hpack.HeaderField

// decoder decodes header blocks. It belongs to the reader goroutine.
type decoder struct {
	d     *hpack.Decoder
	emit  func(field)
	begun bool // a block is being decoded
}

func newDecoder(maxString int, emit func(field)) *decoder {
	d := &decoder{d: hpack.NewDecoder(tableSize, emit), emit: emit}
	d.d.SetMaxStringLength(maxString)
	return d
}

// feed decodes a fragment of a block, the last one if end.
func (d *decoder) feed(p []byte, end bool) error {
	if !d.begun {
		d.begun = true
		var err error
		if p, err = d.resize(p); err != nil {
			return err
		}
	}
	if _, err := d.d.Write(p); err != nil {
		return &connError{compressionError, err.Error()}
	}
	if !end {
		return nil
	}
	d.begun = false
	if err := d.d.Close(); err != nil {
		return &connError{compressionError, err.Error()}
	}
	return nil
}

// resize applies the table size updates at the beginning of a block (RFC 7541 4.2): two of them are legal, which the
// library does not know.
func (d *decoder) resize(p []byte) ([]byte, error) {
	for len(p) > 0 && p[0]&0xe0 == 0x20 {
		n, used := uint64(p[0]&0x1f), 1
		if n == 0x1f {
			shift := 0
			for {
				if used == len(p) || shift > 28 {
					return p, nil // split or absurd: the library judges
				}
				b := p[used]
				used++
				n += uint64(b&0x7f) << shift
				if shift += 7; b&0x80 == 0 {
					break
				}
			}
		}
		if n > tableSize {
			return nil, &connError{compressionError, "table size update above our limit"}
		}
		d.d.SetMaxDynamicTableSize(uint32(n))
		p = p[used:]
	}
	return p, nil
}

// encoder encodes header blocks. The lock of its connection guards it.
type encoder struct {
	e    *hpack.Encoder
	buf  []byte
	text []byte // of a value that is put together
	memo *memo  // nil until the first field
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
	e.owes = false
	_ = e.e.WriteField(field{Name: name, Value: value}) // our Write does not fail
}

// add adds a field whose strings may live only as long as its message.
func (e *encoder) add(name, value string) {
	if e.memo == nil {
		e.memo = &memo{seed: maphash.MakeSeed()}
	}
	if n, v, ok := e.memo.recall(name, value); ok {
		e.constant(n, v)
		return
	}
	if e.owes {
		e.constant(strings.Clone(name), strings.Clone(value))
		return
	}
	e.literal(literalOnce, name, value)
}

// secret adds a field that no hop may index.
func (e *encoder) secret(name, value string) {
	if e.owes {
		_ = e.e.WriteField(field{Name: strings.Clone(name), Value: strings.Clone(value), Sensitive: true}) // as in constant
		e.owes = false
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

// appendHead adds the nine bytes before a payload of n bytes.
func appendHead(b []byte, n int, k kind, flags byte, id uint32) []byte {
	return append(b, byte(n>>16), byte(n>>8), byte(n), byte(k), flags, byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
}

func append32(b []byte, v uint32) []byte {
	return append(b, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

// appendBlock adds a header block as one HEADERS frame and as many CONTINUATION frames as it takes.
func appendBlock(b, block []byte, size int, id uint32, end bool) []byte {
	k, flags := kindHeaders, byte(0)
	if end {
		flags = flagEndStream
	}
	for {
		n := min(len(block), size)
		if n == len(block) {
			flags |= flagEndHeaders
		}
		b = appendHead(b, n, k, flags, id)
		b = append(b, block[:n]...)
		if block = block[n:]; len(block) == 0 {
			return b
		}
		k, flags = kindContinuation, 0
	}
}

func appendSettings(b []byte, list ...setting) []byte {
	b = appendHead(b, 6*len(list), kindSettings, 0, 0)
	for _, s := range list {
		b = append(b, byte(s.ID>>8), byte(s.ID))
		b = append32(b, s.Val)
	}
	return b
}

func appendGoAway(b []byte, last uint32, c code, text string) []byte {
	b = appendHead(b, 8+len(text), kindGoAway, 0, 0)
	b = append32(b, last)
	b = append32(b, uint32(c))
	return append(b, text...)
}

func appendReset(b []byte, id uint32, c code) []byte {
	return append32(appendHead(b, 4, kindReset, 0, id), uint32(c))
}

func appendWindow(b []byte, id, n uint32) []byte {
	return append32(appendHead(b, 4, kindWindow, 0, id), n)
}

func appendPing(b []byte, ack bool, data []byte) []byte {
	flags := byte(0)
	if ack {
		flags = flagAck
	}
	return append(appendHead(b, 8, kindPing, flags, 0), data[:8]...)
}
