package h2

import (
	"io"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// appendLocked adds one DATA frame to what is to be sent, by its caller. It must fit the windows and the peer's frames.
func (st *stream) appendLocked(p []byte) {
	s := st.s
	s.roomLocked()
	st.lastSeq, st.lastAt = s.outSeq, len(s.out)
	s.out = appendHead(s.out, len(p), kindData, 0, st.id)
	s.out = append(s.out, p...)
	st.sendWin -= int64(len(p))
	s.sendWin -= int64(len(p))
	s.dataSent++
}

// minRate is how many octets a second must leave while a body waits for its peer. One octet now and then is no progress:
// it would hold what is to be sent for ever (CVE-2019-9511, CVE-2019-9517).
const minRate = 100

// sendLocked appends p as DATA frames, as far as windows and room allow, and waits for more of them. It gives up when less than
// minRate can be sent for as long as stall, and at a limit unless that is zero.
func (st *stream) sendLocked(p []byte, stall time.Duration, limit time.Time) error {
	s := st.s
	var until time.Time
	enough := int64(stall.Seconds() * minRate) // to leave until then
	left := enough
	for len(p) > 0 {
		if err := st.sendableLocked(); err != nil {
			return err
		}
		n := min(int64(len(p)), int64(s.peer.frame), st.sendWin, s.sendWin)
		if n > 0 && len(s.out) < roomy {
			st.appendLocked(p[:n])
			s.kickLocked()
			p = p[n:]
			if left -= n; left <= 0 {
				until, left = time.Time{}, enough
			}
			continue
		}
		hurried, inLine := false, st.sendWin > 0
		if inLine {
			s.blocked = append(s.blocked, st)
			s.inLine++
		}
		if until.IsZero() {
			until = time.Now().Add(stall)
		}
		if !limit.IsZero() && limit.Before(until) {
			until, hurried = limit, true
		}
		s.mu.Unlock()
		late := st.writer.wait(until)
		s.mu.Lock()
		if inLine {
			s.inLine--
		}
		if late && (left < enough && !hurried || st.sendWin <= 0 || s.sendWin <= 0 || len(s.out) >= roomy) {
			st.late = true
			return netio.ErrTimeout
		}
	}
	return nil
}

// readyLocked waits until a head may be added to what is to be sent: while the peer takes nothing they must not pile up.
func (st *stream) readyLocked(stall time.Duration) error {
	s := st.s
	var until time.Time
	for late := false; len(s.out) >= 4*roomy; {
		if err := st.sendableLocked(); err != nil {
			return err
		}
		if late {
			return netio.ErrTimeout
		}
		if until.IsZero() {
			until = time.Now().Add(stall)
		}
		s.blocked = append(s.blocked, st)
		s.inLine++
		s.mu.Unlock()
		late = st.writer.wait(until)
		s.mu.Lock()
		s.inLine--
	}
	return st.sendableLocked()
}

func (st *stream) sendableLocked() error {
	switch {
	case st.err != nil:
		return st.err
	case st.s.err != nil:
		return st.s.err
	case st.sentEnd || st.sentReset:
		return io.ErrClosedPipe
	}
	return nil
}

// endLocked marks the end of what we send: on the last DATA frame where that has not left yet, else by an empty one.
func (st *stream) endLocked() error {
	if err := st.sendableLocked(); err != nil {
		return err
	}
	s := st.s
	st.sentEnd = true
	if st.lastSeq == s.outSeq && st.lastAt >= 0 && st.lastAt < len(s.out) {
		s.out[st.lastAt+4] |= flagEndStream
		return nil
	}
	s.roomLocked()
	s.out = appendHead(s.out, 0, kindData, flagEndStream, st.id)
	s.kickLocked()
	return nil
}

// blockLocked sends the header block that the encoder holds. The stream must have been sendable before a field of it was
// encoded: what was encoded has to be sent, or the peer's compression state is lost.
func (st *stream) blockLocked(end bool) error {
	s := st.s
	s.roomLocked()
	s.out = appendBlock(s.out, s.enc.buf, s.peer.frame, st.id, end)
	s.enc.buf = s.enc.buf[:0]
	st.sentEnd = end
	s.kickLocked()
	return nil
}

// resetLocked gives the stream up.
func (st *stream) resetLocked(c code) {
	if st.sentReset || st.s.err != nil {
		return
	}
	st.sentReset = true
	st.s.resetLocked(st.id, c)
}
