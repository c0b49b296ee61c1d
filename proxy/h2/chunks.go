package h2

import "sync"

// chunkSize is what one chunk holds. A body that is taken as it comes needs one or two.
const chunkSize = maxFrame

var chunkBuffers = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// chunks are the bytes of a body that came and were not taken, in pieces whose memory is used again. Taking one is not
// copying it. The lock of the session guards them, but for the bytes that take has returned.
type chunks struct {
	list  [][]byte
	first int    // of list, that was not taken
	cur   []byte // taken, and still being used
	spare []byte // was dropped, and will serve again
}

// some reports whether there is anything to take.
func (c *chunks) some() bool { return c.first < len(c.list) }

// add takes a copy of p.
func (c *chunks) add(p []byte) {
	for len(p) > 0 {
		if n := len(c.list); n == c.first || len(c.list[n-1]) == chunkSize {
			c.grow()
		}
		last := &c.list[len(c.list)-1]
		n := min(len(p), chunkSize-len(*last))
		*last = append(*last, p[:n]...)
		p = p[n:]
	}
}

// grow adds an empty chunk.
func (c *chunks) grow() {
	if c.first > 0 && c.first >= len(c.list)/2 {
		n := copy(c.list, c.list[c.first:])
		clear(c.list[n:])
		c.list, c.first = c.list[:n], 0
	}
	b := c.spare
	if c.spare = nil; b == nil {
		b = chunkBuffers.Get().(*[chunkSize]byte)[:0]
	}
	c.list = append(c.list, b)
}

// take returns the next piece, valid until drop.
func (c *chunks) take() []byte {
	c.cur = c.list[c.first]
	c.list[c.first] = nil
	c.first++
	return c.cur
}

// drop gives back the piece that was taken, and returns how long it was.
func (c *chunks) drop() int {
	n := len(c.cur)
	if c.cur == nil {
		return 0
	}
	if c.spare == nil {
		c.spare = c.cur[:0]
	} else {
		giveChunk(c.cur)
	}
	c.cur = nil
	return n
}

// release gives everything back.
func (c *chunks) release() {
	giveChunk(c.cur)
	giveChunk(c.spare)
	for _, b := range c.list[c.first:] {
		giveChunk(b)
	}
	clear(c.list)
	list := c.list[:0]
	if cap(list) > 64 {
		list = nil
	}
	*c = chunks{list: list}
}

func giveChunk(b []byte) {
	if b != nil {
		chunkBuffers.Put((*[chunkSize]byte)(b[:chunkSize]))
	}
}
