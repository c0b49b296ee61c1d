package h2

import (
	"io"
	"runtime"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// next returns the next piece of what came in, valid until the following call, waiting for it until a time; zero: for ever.
// While it waits, what comes is offered to pass, if that is given, by the goroutine that reads the connection: two changes
// of goroutine and a copy are saved for each piece. The wait ends idle after the last piece that pass took, if idle is given.
func (st *stream) next(pass pipeline.Pass, idle time.Duration, until time.Time) ([]byte, error) {
	s := st.s
	s.mu.Lock()
	defer s.mu.Unlock()
	st.creditLocked(int64(st.rx.drop()))
	var limit time.Time // of this wait
	for {
		switch {
		case st.rx.some():
			st.late = false
			return st.rx.take(), nil
		case st.rxEnd:
			return nil, io.EOF
		case st.interrupted:
			return nil, netio.ErrInterrupted
		case st.err != nil:
			return nil, st.err
		}
		if limit.IsZero() {
			st.passed = time.Time{}
			if limit = until; idle > 0 {
				limit = earlier(time.Now().Add(idle), until)
			}
		}
		late := st.waitLocked(pass, limit)
		if !late || st.rx.some() || st.rxEnd || st.err != nil {
			continue
		}
		if idle > 0 && !st.passed.IsZero() {
			if later := earlier(st.passed.Add(idle), until); later.After(limit) && later.After(time.Now()) {
				limit = later
				continue
			}
		}
		st.late = true
		return nil, netio.ErrTimeout
	}
}

// earlier returns the earlier of two times, the second of which may be zero: never.
func earlier(t, u time.Time) time.Time {
	if !u.IsZero() && u.Before(t) {
		return u
	}
	return t
}

// waitLocked waits for a notice or a time, and then for what is being passed: its caller must not go on with the exchange
// while that is being used. It reports whether the time is over.
func (st *stream) waitLocked(pass pipeline.Pass, until time.Time) bool {
	s := st.s
	st.pass = pass
	s.mu.Unlock()
	late := st.reader.wait(until)
	s.mu.Lock()
	st.pass = nil
	for st.passing {
		s.mu.Unlock()
		<-st.reader.ch
		s.mu.Lock()
	}
	return late
}

// passMost is the largest piece that is passed on where it comes in, in octets. Larger ones are worth a change of goroutine:
// meanwhile more of them come, and leave in one write.
const passMost = 4 << 10

// passLocked offers what came to whom the stream's reader waits for it, and reports whether it was taken. Only the goroutine
// that reads the connection calls it. The lock is released meanwhile, since the other connection's is taken: never both.
func (st *stream) passLocked(p []byte) bool {
	pass := st.pass
	if pass == nil || st.interrupted || st.rx.some() || len(p) > passMost {
		return false
	}
	s := st.s
	st.passing = true
	s.mu.Unlock()
	ok, later := pass(p)
	if later != nil {
		s.later = append(s.later, later)
	}
	s.mu.Lock()
	st.passing = false
	if st.pass == nil { // the reader has stopped waiting
		st.reader.notify()
	}
	if ok {
		st.passed = s.in.when()
		st.creditLocked(int64(len(p)))
	}
	return ok
}

// sendLater sends what was passed on since the last read, after all that is ready to run has added to it. So no goroutine
// has to be made for it, and some of what the peers answer is there for the next read.
func (s *session) sendLater() {
	if len(s.later) == 0 {
		return
	}
	runtime.Gosched()
	for i, other := range s.later {
		other.Send()
		s.later[i] = nil
	}
	s.later = s.later[:0]
}

// offer takes a piece of a body to be sent if nothing has to be waited for: neither windows nor room nor others who wait for
// those. Unless others send already, the session is returned to be told to.
func (st *stream) offer(p []byte) (bool, pipeline.Sender) {
	s := st.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := int64(len(p)); n > st.sendWin || n > s.sendWin || len(s.out) >= roomy || s.inLine > 0 || st.sendableLocked() != nil {
		return false, nil
	}
	for len(p) > 0 {
		n := min(len(p), s.peer.frame)
		st.appendLocked(p[:n])
		p = p[n:]
	}
	if s.flushing {
		return true, nil
	}
	s.flushing = true
	return true, s
}
