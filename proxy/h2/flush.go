package h2

import (
	"errors"
	"runtime"
	"sync"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

var outBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 16<<10); return &b }}

// roomLocked sees to it that out is there to append to.
func (s *session) roomLocked() {
	if s.out == nil {
		s.outBox = outBuffers.Get().(*[]byte)
		s.out = *s.outBox
	}
}

// kickLocked has out sent soon: when all that is ready to run has run, so that their frames leave together.
func (s *session) kickLocked() {
	if !s.flushing && s.err == nil {
		s.flushing = true
		go s.flusher()
	}
}

func (s *session) flush() {
	runtime.Gosched()
	s.flushOn(batch{}, 0)
}

// flushOn writes what is left of a batch of which some was written, and then whatever there is to be sent.
func (s *session) flushOn(b batch, written int) {
	for {
		var err error
		if written < len(b.octets) {
			_, err = s.nc.Write(b.octets[written:], writeStall)
		}
		b.giveBack()
		s.mu.Lock()
		b, written = batch{}, 0
		if err == nil {
			b = s.takeLocked()
		}
		if len(b.octets) == 0 {
			s.flushedLocked(err)
			return
		}
		s.mu.Unlock()
	}
}

// Send implements pipeline.Sender, for whoever was given the session by offer. What the peer does not take at once is left to
// a goroutine that waits.
func (s *session) Send() {
	s.mu.Lock()
	b := s.takeLocked()
	s.mu.Unlock()
	n, err := s.nc.TryWrite(b.octets)
	if err == nil && n < len(b.octets) {
		go s.flushOn(b, n)
		return
	}
	b.giveBack()
	s.mu.Lock()
	if err == nil && len(s.out) > 0 {
		go s.flusher()
		s.mu.Unlock()
		return
	}
	s.flushedLocked(err)
}

// batch is what leaves in one write.
type batch struct {
	octets []byte
	box    *[]byte // what they came in from the pool
}

func (b batch) giveBack() {
	if b.box != nil && cap(b.octets) <= 4*roomy {
		*b.box = b.octets[:0]
		outBuffers.Put(b.box)
	}
}

// takeLocked takes what is to be sent out of the buffer: nothing where the session was cut off.
func (s *session) takeLocked() batch {
	if len(s.out) == 0 || errors.Is(s.err, netio.ErrInterrupted) {
		return batch{}
	}
	b := batch{s.out, s.outBox}
	s.out, s.outBox = nil, nil
	s.outSeq++
	s.unblockLocked()
	return b
}

// flushedLocked ends a flush, and gives back the lock.
func (s *session) flushedLocked(err error) {
	s.flushing = false
	if err != nil {
		s.failLocked(err)
		s.mu.Unlock()
		s.nc.Abort()
		return
	}
	over := s.err != nil
	s.mu.Unlock()
	if over {
		s.nc.Interrupt() // the reader closes
	}
}

// unblockLocked wakes the streams that wait for room or for the connection's window.
func (s *session) unblockLocked() {
	for i, st := range s.blocked {
		st.writer.notify()
		s.blocked[i] = nil
	}
	s.blocked = s.blocked[:0]
}
