package h1

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// emptyLines are as many as are passed over.
const emptyLines = "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n"

const (
	headBuffer = 8 << 10  // what most heads fit into
	bodyBuffer = 32 << 10 // for what does not come with the head
)

// Buffers are lent as pointers to arrays, so that lending allocates nothing.
var (
	headBuffers = sync.Pool{New: func() any { return new([headBuffer]byte) }}
	bodyBuffers = sync.Pool{New: func() any { return new([bodyBuffer]byte) }}
)

func lendHead() []byte    { return headBuffers.Get().(*[headBuffer]byte)[:] }
func returnHead(b []byte) { headBuffers.Put((*[headBuffer]byte)(b[:headBuffer])) }

// reader reads one message after the other from a connection. A head stays where it was read until release, since
// strings point into it; body bytes that come later go to a second buffer.
type reader struct {
	c    *netio.Conn
	head []byte // buffer that holds the head; nil while idle
	body []byte // second buffer; nil until needed
	// cur[r:w] is what was read and not consumed. cur is head or body.
	cur  []byte
	r, w int
	seen int   // bytes of an incomplete head that were looked at
	n    int64 // bytes read in all
}

// buffered is how many bytes are at hand.
func (rd *reader) buffered() int { return rd.w - rd.r }

// preload begins with bytes that somebody else has read.
func (rd *reader) preload(first []byte) {
	if len(first) == 0 {
		return
	}
	rd.head = lendHead()
	rd.cur, rd.r, rd.w = rd.head, 0, copy(rd.head, first)
	rd.n = int64(rd.w)
}

// wait waits for the first bytes of a message without holding a buffer meanwhile.
func (rd *reader) wait(until time.Time) error {
	if rd.head != nil {
		return nil
	}
	b, n, err := rd.c.ReadLent(lendHead, returnHead, until)
	if err != nil {
		return err
	}
	rd.head, rd.cur, rd.r, rd.w, rd.seen = b, b, 0, n, 0
	rd.n += int64(n)
	return nil
}

// ask sends what w holds and waits for the first bytes of the answer.
func (rd *reader) ask(w *writer, until time.Time) error {
	sent, b, n, err := rd.c.Ask(w.buf, w.stall, lendHead, returnHead, until)
	w.n.Add(int64(sent))
	switch {
	case sent == len(w.buf):
		w.buf = w.buf[:0]
	case sent == 0 && errors.Is(err, netio.ErrTimeout):
		// The time was over before anything could be tried. Who asks may go on waiting, for an answer to what must be sent.
		if failed := w.flush(); failed != nil {
			return failed
		}
	default:
		w.err = err
	}
	if err != nil {
		return err
	}
	rd.head, rd.cur, rd.r, rd.w, rd.seen = b, b, 0, n, 0
	rd.n += int64(n)
	return nil
}

// onlyEmptyLines reports whether nothing but a few empty lines is at hand, and passes over them: they are what some clients
// send behind a body, and no beginning of a request (RFC 9112 2.2). lines counts them.
func (rd *reader) onlyEmptyLines(lines *int) bool {
	b := rd.cur[rd.r:rd.w]
	n := len(b) / 2
	if *lines+n > maxLeadingLines || string(b) != emptyLines[:2*n] || len(b) != 2*n {
		return false
	}
	*lines += n
	rd.release()
	return true
}

// readHead reads up to the end of a head, which it returns. skip says that empty lines before it are passed over.
func (rd *reader) readHead(lim headLimits, skip bool, until time.Time) ([]byte, error) {
	lines := 0
	for {
		for skip && rd.w-rd.r >= 2 && rd.cur[rd.r] == '\r' && rd.cur[rd.r+1] == '\n' {
			rd.r += 2
			if lines++; lines > maxLeadingLines {
				return nil, errLeadingLines
			}
		}
		n, err := headEnd(rd.cur[rd.r:rd.w], rd.seen, lim.bytes)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			head := rd.cur[rd.r : rd.r+n]
			rd.r += n
			rd.seen = 0
			return head, nil
		}
		rd.seen = rd.w - rd.r
		if err := rd.more(lim, until); err != nil {
			return nil, err
		}
	}
}

// more reads more of a head, into a larger buffer where this one is full.
func (rd *reader) more(lim headLimits, until time.Time) error {
	if rd.w == len(rd.cur) {
		if rd.r > 0 {
			rd.w = copy(rd.cur, rd.cur[rd.r:rd.w])
			rd.r = 0
		} else {
			larger := make([]byte, min(2*len(rd.cur), lim.bytes+1))
			copy(larger, rd.cur)
			rd.giveBack()
			rd.head, rd.cur = larger, larger
		}
	}
	n, err := rd.c.Read(rd.cur[rd.w:], until)
	rd.w += n
	rd.n += int64(n)
	return err
}

func (rd *reader) giveBack() {
	if len(rd.head) == headBuffer {
		returnHead(rd.head)
	}
	rd.head = nil
}

// fill reads body bytes when none are at hand.
func (rd *reader) fill(until time.Time) error {
	if rd.body == nil {
		rd.body = bodyBuffers.Get().(*[bodyBuffer]byte)[:]
	}
	rd.cur, rd.r, rd.w = rd.body, 0, 0
	n, err := rd.c.Read(rd.body, until)
	rd.w = n
	rd.n += int64(n)
	return err
}

// next ends a message: strings of its head are no longer used. What was read beyond it is kept for the next one.
func (rd *reader) next() {
	left := rd.cur[rd.r:rd.w]
	if len(left) == 0 {
		rd.release()
		return
	}
	if len(rd.head) != headBuffer || len(left) > headBuffer {
		b := make([]byte, max(headBuffer, len(left)))
		copy(b, left)
		n := len(left)
		rd.release()
		rd.head, rd.cur, rd.r, rd.w = b, b, 0, n
		return
	}
	n := copy(rd.head, left) // works where the two overlap
	rd.cur, rd.r, rd.w, rd.seen = rd.head, 0, n, 0
	rd.releaseBody()
}

// release gives all buffers back.
func (rd *reader) release() {
	rd.giveBack()
	rd.releaseBody()
	rd.cur, rd.r, rd.w, rd.seen = nil, 0, 0, 0
}

func (rd *reader) releaseBody() {
	if rd.body != nil {
		bodyBuffers.Put((*[bodyBuffer]byte)(rd.body))
		rd.body = nil
	}
}

// body is the body of a message being read (RFC 9112 6.3).
type body struct {
	rd       *reader
	kind     bodyKind
	left     int64 // bodyLength: bytes still to come
	chunks   chunks
	trailer  []byte
	trailers []pipeline.Field
	done     bool
	err      error // found ahead of the next call of Next
}

type bodyKind uint8

const (
	bodyNone bodyKind = iota
	bodyLength
	bodyChunked
	bodyToClose
)

// errTruncated is a message whose sender left in its middle.
var errTruncated = errors.New("connection closed in the middle of a message")

// start prepares for a body.
func (b *body) start(rd *reader, kind bodyKind, length int64, lenient bool) {
	*b = body{rd: rd, kind: kind, left: length, trailer: b.trailer[:0], trailers: b.trailers[:0]}
	b.chunks.lenient = lenient
	b.done = kind == bodyNone || kind == bodyLength && length == 0
}

// Next implements pipeline.Body.
func (b *body) Next(until time.Time) ([]byte, error) {
	for {
		switch {
		case b.done:
			return nil, io.EOF
		case b.err != nil:
			return nil, b.err
		}
		if rd := b.rd; rd.r < rd.w {
			p, err := b.take(rd.cur[rd.r:rd.w])
			if err != nil || len(p) > 0 {
				return p, err
			}
			continue
		}
		if err := b.rd.fill(until); err != nil {
			if !errors.Is(err, io.EOF) {
				return nil, err
			}
			if b.kind != bodyToClose {
				return nil, errTruncated
			}
			b.done = true
		}
	}
}

// take consumes some of p, which is at hand, and returns the body bytes among them.
func (b *body) take(p []byte) ([]byte, error) {
	switch b.kind {
	case bodyLength:
		n := int(min(int64(len(p)), b.left))
		b.rd.r += n
		b.left -= int64(n)
		b.done = b.left == 0
		return p[:n], nil
	case bodyToClose:
		b.rd.r += len(p)
		return p, nil
	}
	if b.chunks.state == chunkTrailer {
		return nil, b.takeTrailer(p)
	}
	data, n, err := b.chunks.next(p)
	b.rd.r += n
	return data, err
}

// takeTrailer consumes what belongs to the trailer section, which may be nothing but its blank line.
func (b *body) takeTrailer(p []byte) error {
	old := len(b.trailer)
	room := maxTrailers + 2 - old
	if len(p) > room {
		p = p[:room]
	}
	b.trailer = append(b.trailer, p...)
	end := 0
	if len(b.trailer) >= 2 && b.trailer[0] == '\r' && b.trailer[1] == '\n' {
		end = 2
	} else if n, err := headEnd(b.trailer, old, maxTrailers+2); err != nil {
		if errors.Is(err, errHeadLong) {
			return errTrailersLong
		}
		return err
	} else if end = n; n == 0 {
		b.rd.r += len(p)
		return nil
	}
	b.rd.r += end - old
	b.trailer = b.trailer[:end]
	if end > 2 {
		var err error
		b.trailers, err = parseFields(b.trailers, b.trailer, maxTrailerNum)
		if errors.Is(err, errHeadCount) {
			return errTrailersLong
		}
		if err != nil {
			return err
		}
	}
	b.done = true
	return nil
}

// Buffered implements pipeline.Body. Framing alone does not count: whoever waits for the data behind it must know.
func (b *body) Buffered() bool {
	if b.kind == bodyChunked {
		b.settle()
	}
	return b.done || b.err != nil || b.rd.r < b.rd.w
}

// settle takes the framing that stands before the next data.
func (b *body) settle() {
	for rd := b.rd; !b.done && b.err == nil && rd.r < rd.w && b.chunks.state != chunkData; {
		if b.chunks.state == chunkTrailer {
			b.err = b.takeTrailer(rd.cur[rd.r:rd.w])
			continue
		}
		var n int
		_, n, b.err = b.chunks.next(rd.cur[rd.r : rd.r+1])
		rd.r += n
	}
}

// Whole implements pipeline.Body.
func (b *body) Whole() bool {
	return b.done || b.kind == bodyLength && int64(b.rd.buffered()) >= b.left
}

// Trailers implements pipeline.Body.
func (b *body) Trailers() []pipeline.Field { return b.trailers }

// Raw implements pipeline.Body.
func (b *body) Raw() (*netio.Conn, int64) {
	if b.kind != bodyLength || b.done || b.rd.r < b.rd.w {
		return nil, 0
	}
	return b.rd.c, b.left
}

// Advance implements pipeline.Body.
func (b *body) Advance(n int64) {
	b.left -= n
	b.rd.n += n
	b.done = b.left == 0
}
