package h2

import (
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

const (
	readSome = 18 << 10 // holds any frame that we accept
	readMuch = 64 << 10 // for peers that fill the other kind
)

var (
	someBuffers = sync.Pool{New: func() any { return new([readSome]byte) }}
	muchBuffers = sync.Pool{New: func() any { return new([readMuch]byte) }}
)

func lendSome() []byte { return someBuffers.Get().(*[readSome]byte)[:] }
func lendMuch() []byte { return muchBuffers.Get().(*[readMuch]byte)[:] }

func returnRead(b []byte) {
	if len(b) == readMuch {
		muchBuffers.Put((*[readMuch]byte)(b))
	} else {
		someBuffers.Put((*[readSome]byte)(b))
	}
}

// frames reads frames from a connection, where they lie in its buffer. DATA is handed on in parts, as it comes; of other
// frames the whole is waited for. It belongs to the reader goroutine.
type frames struct {
	c    *netio.Conn
	buf  []byte // nil while idle
	r, w int
	much bool // the last read filled its buffer
	pace readPace
	// onWait is called every tickEvery, whether anything comes or not; an error of it ends the reading.
	onWait func(time.Time) error
	onRead func()    // is called before each read; nil: nothing is
	tick   time.Time // when it is called next
	at     time.Time // of the last read, roughly; zero: nobody has asked
	f      frame
	block  uint32 // the stream whose header block is not complete: only its CONTINUATION may come
	left   int    // octets to come of the DATA frame in f
	last   byte   // its flags
}

func newFrames(c *netio.Conn, first []byte) *frames {
	fs := &frames{c: c, tick: time.Now().Add(tickEvery)}
	if len(first) > 0 {
		fs.buf = lendSome()
		fs.w = copy(fs.buf, first)
	}
	return fs
}

// await sees to it that n octets are at hand, in one piece. While none is, it holds no buffer.
func (fs *frames) await(n int) error {
	for fs.w-fs.r < n {
		if now := time.Now(); !now.Before(fs.tick) {
			if err := fs.onWait(now); err != nil {
				return err
			}
			fs.tick = now.Add(tickEvery)
		}
		if err := fs.read(n); err != nil && !errors.Is(err, netio.ErrTimeout) {
			return err
		}
	}
	return nil
}

// read takes what the peer has sent, once.
func (fs *frames) read(n int) error {
	fs.at = time.Time{}
	if fs.onRead != nil {
		fs.onRead()
	}
	if fs.r == fs.w {
		fs.release()
		lend := lendSome
		if fs.much {
			lend = lendMuch
		}
		var b []byte
		var got int
		var err error
		if fs.pace.moderated() {
			b = lend()
			if got, err = fs.pace.read(fs.c, b); got == 0 {
				returnRead(b)
			}
		} else if b, got, err = fs.c.ReadLent(lend, returnRead, fs.tick); err == nil {
			fs.pace.woken(fs.c)
		}
		if err == nil {
			fs.buf, fs.r, fs.w, fs.much = b, 0, got, got == len(b) || got > readSome
		}
		return err
	}
	if fs.r+n > len(fs.buf) {
		fs.w = copy(fs.buf, fs.buf[fs.r:fs.w])
		fs.r = 0
	}
	var got int
	var err error
	if fs.pace.moderated() {
		got, err = fs.pace.read(fs.c, fs.buf[fs.w:])
	} else {
		got, err = fs.c.Read(fs.buf[fs.w:], fs.tick)
	}
	fs.w += got
	return err
}

// when returns the time at which what is being handled came.
func (fs *frames) when() time.Time {
	if fs.at.IsZero() {
		fs.at = time.Now()
	}
	return fs.at
}

func (fs *frames) release() {
	if fs.buf != nil {
		returnRead(fs.buf)
		fs.buf = nil
	}
}

// preface reads what a client sends first.
func (fs *frames) preface() error {
	if err := fs.await(len(Preface)); err != nil {
		return err
	}
	if string(fs.buf[fs.r:fs.r+len(Preface)]) != Preface {
		return errPreface
	}
	fs.r += len(Preface)
	return nil
}

// next reads one frame, or a part of one that has DATA. Errors are connError, streamError or those of the socket.
func (fs *frames) next() (*frame, error) {
	f := &fs.f
	if fs.left > 0 {
		return fs.part()
	}
	if err := fs.await(frameHead); err != nil {
		return nil, err
	}
	fs.pace.found++
	h := fs.buf[fs.r:]
	f.length = int(h[0])<<16 | int(h[1])<<8 | int(h[2])
	f.kind, f.flags, f.id = kind(h[3]), h[4], number31(h[5:])
	f.payload, f.part, f.code, f.value, f.count = nil, false, 0, 0, 0
	if f.length > maxFrame {
		return nil, &connError{frameSizeError, "frame larger than SETTINGS_MAX_FRAME_SIZE"}
	}
	if err := fs.order(); err != nil {
		return nil, err
	}
	if f.kind == kindData && !f.has(flagPadded) && f.length > 0 {
		fs.r += frameHead
		if f.id == 0 {
			return nil, onConnection(f)
		}
		fs.left, fs.last = f.length, f.flags
		return fs.part()
	}
	if err := fs.await(frameHead + f.length); err != nil {
		return nil, err
	}
	p := fs.buf[fs.r+frameHead:][:f.length:f.length]
	fs.r += frameHead + f.length
	if err := f.parse(p); err != nil {
		return nil, err
	}
	return f, nil
}

// part returns what is at hand of a DATA frame.
func (fs *frames) part() (*frame, error) {
	if err := fs.await(1); err != nil {
		return nil, err
	}
	f := &fs.f
	n := min(fs.left, fs.w-fs.r)
	f.payload, f.length = fs.buf[fs.r:fs.r+n:fs.r+n], n
	fs.r += n
	fs.left -= n
	f.part, f.flags = fs.left > 0, fs.last
	if f.part {
		f.flags &^= flagEndStream
	}
	return f, nil
}

// order checks that nothing comes between the parts of a header block (RFC 9113 4.3).
func (fs *frames) order() error {
	f := &fs.f
	switch {
	case fs.block != 0 && (f.kind != kindContinuation || f.id != fs.block):
		return &connError{protocolError, "a header block is not complete"}
	case fs.block == 0 && f.kind == kindContinuation:
		return &connError{protocolError, "CONTINUATION without a header block"}
	}
	if f.kind == kindHeaders || f.kind == kindContinuation {
		fs.block = f.id
		if f.has(flagEndHeaders) {
			fs.block = 0
		}
	}
	return nil
}

func onConnection(f *frame) error {
	return &connError{protocolError, f.kind.String() + " on stream 0"}
}

var errSize = &connError{frameSizeError, "payload of the wrong size for its frame"}

// parse takes a payload apart: first its size, then its stream, then what is in it.
func (f *frame) parse(p []byte) error {
	switch n := len(p); {
	case f.kind == kindReset && n != 4, f.kind == kindPing && n != 8, f.kind == kindWindow && n != 4,
		f.kind == kindSettings && f.has(flagAck) && n > 0:
		return errSize
	}
	switch f.kind {
	case kindData, kindHeaders, kindPriority, kindReset, kindContinuation:
		if f.id == 0 {
			return onConnection(f)
		}
	case kindSettings, kindPing, kindGoAway, kindUpdate:
		if f.id != 0 {
			return &connError{protocolError, f.kind.String() + " on a stream"}
		}
	}
	switch f.kind {
	case kindData:
		return f.parseData(p)
	case kindHeaders:
		return f.parseHeaders(p)
	case kindSettings:
		return f.parseSettings(p)
	case kindContinuation, kindPing:
		f.payload = p
	case kindPriority:
		if len(p) != 5 {
			return errSize
		}
		f.value = number31(p)
	case kindUpdate:
		switch {
		case len(p) < 4:
			return errSize
		case number31(p) == 0:
			return &connError{protocolError, "PRIORITY_UPDATE of stream 0"}
		}
	case kindReset:
		f.code = code(binary.BigEndian.Uint32(p))
	case kindGoAway:
		if len(p) < 8 {
			return errSize
		}
		f.value, f.code = number31(p), code(binary.BigEndian.Uint32(p[4:]))
	case kindWindow:
		f.value = number31(p)
		switch {
		case f.value == 0 && f.id == 0:
			return &connError{protocolError, "WINDOW_UPDATE of nothing"}
		case f.value == 0:
			return &streamError{f.id, protocolError, "WINDOW_UPDATE of nothing"}
		}
	}
	return nil
}

// number31 reads a number whose highest bit is reserved.
func number31(p []byte) uint32 { return binary.BigEndian.Uint32(p) & (1<<31 - 1) }

// parseData takes the padding off.
func (f *frame) parseData(p []byte) error {
	if f.has(flagPadded) {
		if len(p) == 0 {
			return errSize
		}
		pad := int(p[0])
		if p = p[1:]; pad > len(p) {
			return &connError{protocolError, "more padding than payload"}
		}
		p = p[:len(p)-pad]
	}
	f.payload = p[:len(p):len(p)]
	return nil
}

func (f *frame) parseHeaders(p []byte) error {
	pad := 0
	if f.has(flagPadded) {
		if len(p) == 0 {
			return errSize
		}
		pad, p = int(p[0]), p[1:]
	}
	if f.has(flagPriority) {
		if len(p) < 5 {
			return errSize
		}
		if number31(p) == f.id {
			return &connError{protocolError, "stream depends on itself"}
		}
		p = p[5:]
	}
	if pad > len(p) {
		return &connError{protocolError, "malformed HEADERS: its block is lost, and the compression state with it"}
	}
	f.payload = p[: len(p)-pad : len(p)-pad]
	return nil
}

// parseSettings takes over all entries, each of which is checked.
func (f *frame) parseSettings(p []byte) error {
	switch {
	case len(p)%6 != 0:
		return errSize
	case len(p) > 6*maxSettings:
		return &connError{enhanceYourCalm, "too many settings in one frame"}
	}
	for ; len(p) > 0; p = p[6:] {
		s := setting{ID: http2.SettingID(binary.BigEndian.Uint16(p)), Val: binary.BigEndian.Uint32(p[2:])}
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
