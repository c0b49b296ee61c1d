package h2

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// waiter lets one goroutine wait for a notice or a time. Its timer stays armed at or before the time wanted, so that
// most waits cost none.
type waiter struct {
	ch    chan struct{}
	timer *time.Timer
	armed int64 // Unix nanoseconds; 0: not
	fired atomic.Bool
}

// notify wakes the one that waits, or the next that will.
func (w *waiter) notify() {
	select {
	case w.ch <- struct{}{}:
	default:
	}
}

// wait waits for a notice. It reports whether until has passed; a notice may also be about something that is over.
func (w *waiter) wait(until time.Time) bool {
	if !until.IsZero() {
		want := until.UnixNano()
		switch {
		case w.timer == nil:
			w.timer = time.AfterFunc(time.Until(until), func() {
				w.fired.Store(true)
				w.notify()
			})
			w.armed = want
		case w.fired.Swap(false) || w.armed > want:
			w.timer.Reset(time.Until(until))
			w.armed = want
		}
	}
	<-w.ch
	return w.fired.Load() && !until.IsZero() && !time.Now().Before(until)
}

// stream is one stream of a session. Fields are guarded by the session's lock unless they say otherwise.
type stream struct {
	s  *session
	id uint32

	reader, writer waiter

	rx      chunks  // received and not taken
	rxEnd   bool    // END_STREAM came
	left    int64   // of the body by content-length; -1: unknown
	window  int64   // that the peer has: what it may send, and what came and was not taken
	recvWin int64   // what the peer may send
	owed    int64   // taken and not credited
	queue   []*head // client: heads that were not read yet
	final   bool    // client: the final head came
	behind  *head   // trailers

	sendWin   int64
	opened    bool // client: HEADERS were sent
	sentEnd   bool
	sentReset bool
	peerReset bool   // the peer has given it up
	underWay  bool   // server: what is asked for is being done
	tunnel    bool   // server: nothing but DATA belongs on it
	lastSeq   uint64 // where our last DATA frame is: in the buffer of that flush,
	lastAt    int    // at that place

	err         error // why nothing more comes or goes
	unprocessed bool  // the peer has surely not acted on it
	interrupted bool  // reads are to end
	late        bool  // client: the last wait for the peer was in vain

	pass    pipeline.Pass // takes what comes while its reader waits; nil: it does not
	passing bool          // pass is being called, without the lock
	passed  time.Time     // when it last took something

	guarded pipeline.Upstream // server: the attempt to interrupt when the client leaves
	began   time.Time         // server

	interims int    // client: owned by the reader goroutine of the session
	method   string // client: of the request
}

var streams = sync.Pool{New: func() any { return newStream() }}

func newStream() *stream {
	return &stream{reader: waiter{ch: make(chan struct{}, 1)}, writer: waiter{ch: make(chan struct{}, 1)}}
}

// getStream returns a fresh stream of a session, whose lock is held.
func getStreamLocked(s *session, id uint32) *stream {
	st := streams.Get().(*stream)
	st.s, st.id = s, id
	st.left, st.window, st.recvWin, st.sendWin, st.lastAt = -1, streamWindow, streamWindow, s.peer.window, -1
	return st
}

// release gives the stream back. It must not be in the session's map any more.
func (st *stream) release() {
	st.rx.release()
	st.s.lim.Windows.give(st.window - streamWindow)
	for _, h := range st.queue {
		h.release()
	}
	if st.behind != nil {
		st.behind.release()
	}
	st.queue, st.behind, st.guarded = st.queue[:0], nil, nil
	st.rxEnd, st.final, st.opened, st.sentEnd, st.sentReset, st.peerReset, st.unprocessed, st.interrupted, st.late = false, false, false, false, false, false, false, false, false
	st.underWay, st.tunnel, st.passed = false, false, time.Time{}
	st.err, st.s, st.owed, st.interims, st.method, st.lastSeq = nil, nil, 0, 0, "", 0
	streams.Put(st)
}

// failLocked ends the stream.
func (st *stream) failLocked(err error, unprocessed bool) {
	if st.err == nil {
		st.err, st.unprocessed = err, unprocessed
	}
	st.reader.notify()
	st.writer.notify()
	if l, ok := st.s.owner.(leaver); ok {
		l.left(st)
	}
}

// leaver is an owner that wants to know when a peer gave up a stream.
type leaver interface{ left(st *stream) }

func (st *stream) resetByPeerLocked(c code) {
	st.peerReset = true
	switch {
	case st.s.client && st.rxEnd && c == noError:
		// A complete answer is a success, whatever became of the request (RFC 9113 8.1).
		st.reader.notify()
		st.writer.notify()
		if st.err == nil {
			st.err = &streamError{st.id, noError, "the peer wants no more"}
		}
	default:
		st.failLocked(&peerReset{c}, c == refusedStream)
	}
}

// rxEndedWell reports whether the peer only wants no more of us, having said all it had to say.
func (st *stream) rxEndedWell() bool {
	var se *streamError
	return errors.As(st.err, &se) && se.code == noError
}

// peerReset is a RST_STREAM of the peer.
type peerReset struct{ code code }

// wasReset reports whether a stream's error is that its peer reset it.
func wasReset(err error) bool {
	if err == nil {
		return false
	}
	var pr *peerReset
	return errors.As(err, &pr)
}

// Error implements error.
func (e *peerReset) Error() string { return "stream reset by the peer: " + e.code.String() }

// Is says that what an endpoint means by ENHANCE_YOUR_CALM is pipeline.ErrTooBusy.
func (e *peerReset) Is(target error) bool {
	return e.code == enhanceYourCalm && target == pipeline.ErrTooBusy
}

// excused says whether what comes in may have been on its way when we gave the stream up.
func (st *stream) excused() bool { return st.sentReset && !st.peerReset }

// givenUp says whether what comes in is nobody's fault, and nobody's business: of an attempt that was interrupted, the reset is
// about to be sent.
func (st *stream) givenUp() bool {
	return st.excused() || st.s.client && !st.peerReset && errors.Is(st.err, netio.ErrInterrupted)
}

// dataLocked takes a DATA frame.
func (st *stream) dataLocked(f *frame) error {
	switch {
	case st.givenUp():
		return nil
	case st.err != nil || st.rxEnd:
		return &streamError{st.id, streamClosed, "DATA behind the end"}
	case st.s.client && !st.final:
		return &streamError{st.id, protocolError, "DATA before a final head"}
	}
	if st.recvWin -= int64(f.length); st.recvWin < 0 {
		return &streamError{st.id, flowControlError, "more DATA than the window"}
	}
	st.owed += int64(f.length - len(f.payload))
	n := int64(len(f.payload))
	if st.left >= 0 {
		if st.left -= n; st.left < 0 {
			return &streamError{st.id, protocolError, "more DATA than content-length"}
		}
	}
	switch {
	case n == 0:
	case f.has(flagEndStream) || !st.passLocked(f.payload): // with the end there is more to do than to pass it on
		st.rx.add(f.payload)
	default:
		return nil
	}
	if f.has(flagEndStream) {
		if st.left > 0 {
			return &streamError{st.id, protocolError, "less DATA than content-length"}
		}
		st.rxEnd = true
	}
	st.reader.notify()
	return nil
}

const maxInterims = 16

// headersLocked takes a header block behind the one that opened the stream.
func (st *stream) headersLocked(h *head) error {
	switch {
	case st.givenUp():
		h.release()
		return nil
	case st.rxEnd && st.sentEnd:
		h.release()
		return &connError{streamClosed, "HEADERS on a closed stream"}
	case st.err != nil || st.rxEnd:
		h.release()
		return &streamError{st.id, streamClosed, "HEADERS behind the end"}
	case st.s.client && !st.final:
		if h.tooMuch {
			h.bad = "response head larger than limits.header_bytes or limits.header_count"
		}
		interim := len(h.status) == 3 && h.status[0] == '1' && h.bad == ""
		if interim {
			st.interims++
		}
		if st.interims > maxInterims {
			h.bad = "too many interim responses"
		}
		st.final = !interim || h.bad != ""
		st.rxEnd = h.end
		switch {
		case st.method == "HEAD", h.status == "304", h.status == "204":
			st.left = 0
		case st.final:
			st.left = h.length
		}
		st.queue = append(st.queue, h)
		st.reader.notify()
		return nil
	}
	problem := h.trailers()
	if h.tooMuch {
		problem = "trailers larger than limits.header_bytes or limits.header_count"
	}
	if st.left > 0 {
		problem = "less DATA than content-length"
	}
	if st.tunnel {
		problem = "HEADERS in a tunnel" // RFC 9113 8.5
	}
	if problem != "" {
		h.release()
		return &streamError{st.id, protocolError, problem}
	}
	st.behind, st.rxEnd = h, true
	st.reader.notify()
	return nil
}
