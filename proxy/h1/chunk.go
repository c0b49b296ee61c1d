package h1

import "github.com/sidecar-mesh/sidecar/proxy/grammar"

// The errors of a chunked body.
var (
	errChunkSize    = bad("malformed chunk size")
	errChunkLong    = bad("chunk size line too long")
	errChunkEnd     = bad("chunk data not followed by CRLF")
	errChunkWaste   = bad("more chunk framing than the body justifies")
	errTrailersLong = refusal(431, "trailer section too large")
)

const (
	maxChunkLine  = 4 << 10  // of one size line, extensions included
	maxChunkWaste = 16 << 10 // of size lines beyond what the data pays for
	maxTrailers   = 8 << 10
	maxTrailerNum = 32
)

type chunkState uint8

const (
	chunkSize   chunkState = iota // in a size line, before ';'
	chunkExt                      // in a chunk extension
	chunkSizeLF                   // behind the CR of a size line
	chunkData
	chunkDataCR // behind the data
	chunkDataLF
	chunkTrailer // behind the last chunk
	chunkDone
)

// chunks decodes the chunked coding (RFC 9112 7.1) out of pieces of any size. It is strict: CRLF only, hexadecimal digits
// only, bounded size lines. Extensions are dropped, as a recipient must do that does not know them.
type chunks struct {
	state   chunkState
	lenient bool // spaces behind a size are passed over, as upstreams send them
	digits  uint8
	space   bool
	left    int64 // of the chunk's data
	line    int   // length of the size line so far
	waste   int64
}

// next takes bytes off the front of b. It returns how many it took and the data among them, which is always the tail of
// what was taken. No data and nothing taken means that more bytes are needed.
func (c *chunks) next(b []byte) (data []byte, taken int, err error) {
	i := 0
	for i < len(b) {
		ch := b[i]
		switch c.state {
		case chunkSize:
			if err := c.sizeByte(ch); err != nil {
				return nil, i, err
			}
		case chunkExt:
			switch {
			case ch == '\r':
				c.state = chunkSizeLF
			case ch < 0x20 && ch != '\t' || ch == 0x7f:
				return nil, i, errChunkSize
			}
		case chunkSizeLF:
			if ch != '\n' {
				return nil, i, errChunkSize
			}
			if err := c.sizeDone(); err != nil {
				return nil, i, err
			}
		case chunkData:
			n := int(min(int64(len(b)-i), c.left))
			c.left -= int64(n)
			if c.left == 0 {
				c.state = chunkDataCR
			}
			return b[i : i+n], i + n, nil
		case chunkDataCR:
			if ch != '\r' {
				return nil, i, errChunkEnd
			}
			c.state = chunkDataLF
		case chunkDataLF:
			if ch != '\n' {
				return nil, i, errChunkEnd
			}
			c.state = chunkSize
		default:
			return nil, i, nil
		}
		i++
		if c.state <= chunkSizeLF {
			if c.line++; c.line > maxChunkLine {
				return nil, i, errChunkLong
			}
		}
	}
	return nil, i, nil
}

func (c *chunks) sizeByte(ch byte) error {
	switch {
	case grammar.Is(ch, grammar.Hex) && !c.space:
		if c.digits == 15 {
			return errChunkSize
		}
		c.digits++
		c.left = c.left<<4 | int64(unhex(ch))
	case c.digits == 0:
		return errChunkSize
	case ch == '\r':
		c.state = chunkSizeLF
	case ch == ';':
		c.state = chunkExt
	case c.lenient && (ch == ' ' || ch == '\t'):
		c.space = true
	default:
		return errChunkSize
	}
	return nil
}

// sizeDone is called behind a size line. Each line may cost as much as its data and a little more; what goes beyond that
// is taken off a budget, so that a body of tiny chunks with long extensions ends.
func (c *chunks) sizeDone() error {
	c.waste = max(0, c.waste+int64(c.line)-16-c.left)
	if c.waste > maxChunkWaste {
		return errChunkWaste
	}
	c.state = chunkData
	if c.left == 0 {
		c.state = chunkTrailer
	}
	c.digits, c.line, c.space = 0, 0, false
	return nil
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c >= 'a':
		return c - 'a' + 10
	}
	return c - 'A' + 10
}
