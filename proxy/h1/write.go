package h1

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

const (
	writeBuffer = 16 << 10
	// writeThrough is the size from which a piece is sent by itself rather than copied, once what is before it has left.
	writeThrough = 8 << 10
)

var writeBuffers = sync.Pool{New: func() any { return new([writeBuffer]byte) }}

// writer collects what is to be sent on a connection, so that a head and the first bytes behind it leave in one write.
type writer struct {
	c     *netio.Conn
	buf   []byte
	stall time.Duration // longest time the peer may take nothing
	n     atomic.Int64  // bytes that left; may be read by others
	err   error         // of the first write that failed
}

func (w *writer) ready() {
	if w.buf == nil {
		w.buf = writeBuffers.Get().(*[writeBuffer]byte)[:0]
	}
}

// flush sends what was collected.
func (w *writer) flush() error {
	if w.err != nil || len(w.buf) == 0 {
		return w.err
	}
	n, err := w.c.Write(w.buf, w.stall)
	w.n.Add(int64(n))
	w.err = err
	w.buf = w.buf[:0]
	return err
}

// write adds p, and sends when there is much.
func (w *writer) write(p []byte) error {
	if w.err != nil {
		return w.err
	}
	w.ready()
	if len(w.buf)+len(p) <= writeBuffer-8 { // some room is left for what frames a chunk
		w.buf = append(w.buf, p...)
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	if len(p) < writeThrough {
		w.buf = append(w.buf, p...)
		return nil
	}
	n, err := w.c.Write(p, w.stall)
	w.n.Add(int64(n))
	w.err = err
	return err
}

// writeChunk adds p as one chunk.
func (w *writer) writeChunk(p []byte) error {
	if len(p) == 0 {
		return w.err // an empty chunk would end the body
	}
	w.ready()
	if len(w.buf) > writeBuffer-20 {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.buf = strconv.AppendUint(w.buf, uint64(len(p)), 16)
	w.buf = append(w.buf, "\r\n"...)
	if err := w.write(p); err != nil {
		return err
	}
	w.buf = append(w.buf, "\r\n"...)
	return nil
}

// release gives the buffer back; what was not sent is lost.
func (w *writer) release() {
	if cap(w.buf) == writeBuffer {
		writeBuffers.Put((*[writeBuffer]byte)(w.buf[:writeBuffer]))
	}
	w.buf, w.err = nil, nil
}

// appendFields adds the fields that are sent on.
func appendFields(b []byte, fields []pipeline.Field) []byte {
	for i := range fields {
		if f := &fields[i]; !f.Drop {
			b = appendField(b, f.Name, f.Value)
		}
	}
	return b
}

func appendField(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// lastChunk adds the end of a chunked body.
func lastChunk(b []byte, trailers []pipeline.Field) []byte {
	b = append(b, "0\r\n"...)
	b = appendFields(b, trailers)
	return append(b, "\r\n"...)
}
