package h2

import (
	"sync/atomic"
	"time"
)

const (
	maxStreamWindow = 8 << 20
	// A measurement follows a growth soon, and one that showed nothing later and later.
	measureSoon = 10 * time.Millisecond
	measureLate = 30 * time.Second
)

// WindowMemory is what the streams of a process may have been promised beyond their first windows, all together. A promise
// is memory: a peer may use all of it, and the other side of the exchange may stop taking.
type WindowMemory struct{ limit, used atomic.Int64 }

// NewWindowMemory returns a budget of so many octets.
func NewWindowMemory(limit int64) *WindowMemory {
	m := new(WindowMemory)
	m.Set(limit)
	return m
}

// Set changes the budget. What is promised already is given back as streams go on or end.
func (m *WindowMemory) Set(limit int64) { m.limit.Store(limit) }

// Used returns how much is promised.
func (m *WindowMemory) Used() int64 { return m.used.Load() }

// take reserves up to n octets and returns how many.
func (m *WindowMemory) take(n int64) int64 {
	if m == nil {
		return 0
	}
	for {
		used := m.used.Load()
		got := min(n, m.limit.Load()-used)
		if got <= 0 {
			return 0
		}
		if m.used.CompareAndSwap(used, used+got) {
			return got
		}
	}
}

func (m *WindowMemory) give(n int64) {
	if m != nil && n > 0 {
		m.used.Add(-n)
	}
}

// over reports whether more is promised than may be.
func (m *WindowMemory) over() bool { return m != nil && m.used.Load() > m.limit.Load() }

// pace is how fast a connection's streams are taken, measured over the round trip of a PING: a window that is used up in
// one round trip is what slows its stream down. It counts octets that were taken, not those that came, so that a slow
// reader gets no larger window. The session's lock guards it.
type pace struct {
	window int64         // that a stream may have
	way    int64         // what of it the way to the peer needs
	least  time.Duration // of the round trips: the one that waited least behind what the peer was sending; 0: none yet
	since  time.Time     // when the PING left; zero: none is out
	taken  int64         // since then
	next   time.Time     // no measurement before that
	pause  time.Duration
}

// begin reports whether a measurement begins now: the caller sends its PING.
func (p *pace) begin(now time.Time) bool {
	if !p.since.IsZero() || now.Before(p.next) {
		return false
	}
	p.since, p.taken = now, 0
	return true
}

// end takes the answer to the PING, and reports whether windows may grow.
func (p *pace) end(now time.Time) bool {
	if p.since.IsZero() {
		return false
	}
	further := p.weigh(max(1, now.Sub(p.since)))
	grows := p.taken >= p.window/2 && p.window < maxStreamWindow
	if grows {
		p.window = min(maxStreamWindow, 2*p.window)
	}
	if grows || further {
		p.pause = measureSoon
	} else {
		p.pause = min(measureLate, 2*max(p.pause, measureSoon))
	}
	p.since, p.next = time.Time{}, now.Add(p.pause)
	return grows
}

// weigh finds what the way needs: twice what is taken within the least round trip, so that it can be found to need more. Less
// than before counts only where the PING had to wait behind what the peer was sending. It reports whether it is much more.
func (p *pace) weigh(trip time.Duration) bool {
	shorter := p.least == 0 || trip < p.least
	if shorter {
		p.least = trip
	}
	if p.least < farAway {
		p.way = 0
		return false
	}
	need := min(maxStreamWindow, int64(2*float64(p.taken)*float64(p.least)/float64(trip)))
	if need <= p.way && !shorter && trip <= 2*p.least {
		return false
	}
	more := need >= 3*max(p.way, wayShared)/2
	p.way = need
	return more
}

// Data of our PINGs: they are told apart by their answers.
var (
	pingAlive   = [8]byte{'s', 'i', 'd', 'e', 'c', 'a', 'r', '!'}
	pingMeasure = [8]byte{'s', 'i', 'd', 'e', 'c', 'a', 'r', '?'}
)

// measureLocked begins a measurement where one is due.
func (s *session) measureLocked() {
	if s.lim.Windows == nil || !s.pace.begin(time.Now()) {
		return
	}
	s.roomLocked()
	s.out = appendPing(s.out, false, pingMeasure[:])
	s.kickLocked()
}

// measuredLocked ends one. The window of the connection follows those of its streams.
func (s *session) measuredLocked() {
	if s.pace.end(time.Now()) {
		if more := 2*s.pace.window - s.connWin; more > 0 {
			s.connWin += more
			s.recvOwed += more
		}
	}
}

// creditLocked lets the peer send as much again as was taken, once it is worth a frame, and more where that is what it
// waits for, but never more at a time than may be on its way. Of a budget that became smaller, half of what is beyond the
// first window is withheld each time.
func (st *stream) creditLocked(n int64) {
	s := st.s
	st.owed += n
	s.pace.taken += n
	if st.owed < min(st.window, wayShared)/4 || st.rxEnd || st.err != nil || st.sentReset {
		return
	}
	way := s.wayLocked(st)
	most := min(st.window, way)
	if worth := most / 4; st.owed < worth || most-st.recvWin < worth {
		return
	}
	switch more := s.pace.window - st.window; {
	case s.lim.Windows.over():
		cut := min(st.owed, (st.window-streamWindow+1)/2)
		st.window -= cut
		st.owed -= cut
		s.lim.Windows.give(cut)
	case st.recvWin < st.window/2:
		s.measureLocked()
		if more > 0 {
			more = s.lim.Windows.take(more)
			st.window += more
			st.owed += more
		}
	}
	give := min(st.owed, min(st.window, way)-st.recvWin)
	if give == 0 {
		return
	}
	s.roomLocked()
	s.out = appendWindow(s.out, st.id, uint32(give))
	st.recvWin += give
	st.owed -= give
	s.kickLocked()
}
