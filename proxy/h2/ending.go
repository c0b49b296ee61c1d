package h2

import (
	"errors"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// tellLocked tells the peer of an error that ends the connection. Where that is not closed at once its streams are reset: who
// waits for an answer does not learn from GOAWAY that none will come.
func (s *session) tellLocked(e *connError, later bool) {
	s.roomLocked()
	if later {
		for id, st := range s.streams {
			if !st.sentEnd && !st.sentReset && !st.peerReset {
				s.out = appendReset(s.out, id, e.code)
			}
		}
	}
	last, text := s.highest, ""
	if s.away == leaving {
		last = s.lastAway
	}
	if e.text == tooManyPings {
		text = tooManyPings
	}
	s.out = appendGoAway(s.out, last, e.code, text)
	s.kickLocked()
}

// linger lets what is being sent leave, and reads on for a moment, since closing with unread bytes would make the kernel
// send a reset that may overtake the GOAWAY.
func (s *session) linger() {
	until := time.Now().Add(time.Second)
	buf := lendSome()
	defer returnRead(buf)
	for over := false; time.Now().Before(until) && !s.nc.Aborted(); {
		s.mu.Lock()
		flushing := s.flushing
		s.mu.Unlock()
		switch {
		case over && !flushing:
			return
		case over: // the peer has said its last, but may still read
			<-time.After(time.Millisecond)
			continue
		case !flushing:
			_ = s.nc.CloseWrite()
		}
		s.nc.Resume()
		_, err := s.nc.Read(buf, time.Now().Add(20*time.Millisecond))
		over = err != nil && !errors.Is(err, netio.ErrTimeout) && !errors.Is(err, netio.ErrInterrupted)
	}
}
