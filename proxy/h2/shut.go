package h2

import "time"

// A request whose answer has no room to come back may wait for the client without end, and with it the work that was done for
// it. So of those only a few of a connection are begun; the others wait until there is room for their answers, or until one
// of the few is over: a client may want to see one answer's head before it makes room.
const (
	shutWindow = 512 // of a stream, below which an answer has no room
	mostShut   = 4   // requests of a connection that are begun without room for their answers
)

// begin waits until a request may be begun, and reports whether it is still wanted.
func (st *stream) begin() bool {
	s := st.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.sendWin < shutWindow {
		st.awaitRoomLocked(time.Now().Add(s.lim.IdleTimeout))
	}
	st.underWay = true
	return st.err == nil
}

func (st *stream) awaitRoomLocked(until time.Time) {
	s := st.s
	s.roomless++
	for late := false; !late && st.err == nil && st.sendWin < shutWindow && s.shutLocked() >= mostShut; {
		s.mu.Unlock()
		late = st.writer.wait(until)
		s.mu.Lock()
	}
	s.roomless--
}

// shutLocked counts the streams that were begun and have no room for their answers.
func (s *session) shutLocked() int {
	n := 0
	for _, st := range s.streams {
		if st.underWay && st.sendWin < shutWindow && st.err == nil {
			n++
		}
	}
	return n
}

// nextShutLocked wakes those who wait to be begun: a stream is over.
func (s *session) nextShutLocked() {
	if s.roomless == 0 {
		return
	}
	for _, st := range s.streams {
		if !st.underWay {
			st.writer.notify()
		}
	}
}
