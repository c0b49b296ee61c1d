package h2

import (
	"errors"
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// serverConn is a downstream connection: the owner of its session.
type serverConn struct {
	srv     *Server
	session *session
	peer    pipeline.Peer
	leaves  time.Time      // zero: never
	served  int            // streams; guarded by the session's lock
	jobs    sync.WaitGroup // streams being served
}

func (c *serverConn) serve() {
	if err := c.session.in.preface(); err != nil {
		_ = c.session.nc.Close()
		c.session.mu.Lock()
		c.session.failLocked(err)
		c.session.mu.Unlock()
		c.session.in.release()
		return
	}
	c.session.run()
	c.jobs.Wait()
}

// headers implements owner: it opens a stream.
func (c *serverConn) headers(s *session, id uint32, h *head) error {
	switch {
	case id <= s.highest:
		h.release()
		if known, reset := s.recallLocked(id); known && reset {
			return nil
		} else if known {
			return &connError{streamClosed, "HEADERS on a closed stream"}
		}
		return &connError{protocolError, "stream identifiers must grow"}
	case s.err != nil: // all streams were ended: this one would not be
		h.release()
		return s.err
	case s.away == leaving:
		s.highest = id // what follows is passed over as well
		h.release()
		return nil
	}
	s.highest = id
	// A stream is over for the client with the last octet of its answer: what is left of its work must not cost the next
	// one its place.
	if s.working-s.over >= maxStreams || s.working >= 4*maxStreams {
		h.release()
		return &streamError{id, refusedStream, "too many streams"}
	}
	if s.peer.window < shutWindow {
		if err := s.charge(costShut); err != nil {
			h.release()
			return err
		}
	}
	x := pipeline.Begin(c.peer)
	x.Start = s.in.when()
	st := getStreamLocked(s, id)
	st.rxEnd, st.left, st.began = h.end, h.length, x.Start
	problem := h.bad
	switch {
	case problem != "":
	case h.tooMuch:
		h.refused(&x.Req)
	default:
		problem = h.request(&x.Req)
		if problem == "" && h.end && h.length > 0 {
			problem = "less DATA than content-length"
		}
	}
	if problem != "" {
		h.release()
		x.Release()
		st.release()
		return &streamError{id, protocolError, problem}
	}
	s.streams[id] = st
	s.working++
	c.jobs.Add(1)
	if c.served++; c.served == s.lim.MaxRequests {
		c.retireLocked(x.Start, WhyRequests)
	}
	c.srv.workers.run(job{c, st, x, h.tooMuch})
	h.release()
	return nil
}

// tick implements owner.
func (c *serverConn) tick(s *session, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.working == 0 && now.Sub(s.idleSince) >= s.lim.IdleTimeout,
		s.away == warned && now.Sub(s.lastPing) >= tickEvery: // it does not answer
		s.leaveLocked()
	case !c.leaves.IsZero() && !now.Before(c.leaves):
		c.retireLocked(now, WhyAge)
	}
	return s.err
}

// retireLocked asks the client to use another connection from now on; what it has begun goes on.
func (c *serverConn) retireLocked(now time.Time, why string) {
	if c.session.away == staying {
		c.session.warnLocked(now)
		c.srv.Pipeline.Recorder.Retired("downstream", why)
	}
}

// settled implements owner.
func (c *serverConn) settled(*session) {}

// abused implements owner.
func (c *serverConn) abused(what string) { c.srv.abuse(what, c.peer.Text) }

// ended implements owner.
func (c *serverConn) ended(*session) {}

// left implements leaver: the client gave the stream up, and what runs for it ends.
func (c *serverConn) left(st *stream) {
	if st.guarded != nil {
		st.guarded.Interrupt()
	}
}

var errPreface = errors.New("malformed client preface")
