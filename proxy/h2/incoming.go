package h2

import (
	"errors"
	"time"

	"github.com/sidecar-mesh/sidecar/telemetry"
)

// read handles one frame after the other.
func (s *session) read() error {
	for {
		f, err := s.in.next()
		if err == nil {
			err = s.handle(f)
		}
		if err != nil {
			err = s.forgive(err)
		}
		if err == nil && s.penance > 0 {
			err = s.repent()
		}
		if err != nil {
			return err
		}
	}
}

// forgive lets a connection go on whose peer has broken but a stream.
func (s *session) forgive(err error) error {
	var se *streamError
	if errors.As(err, &se) {
		return s.resetFor(se)
	}
	return err
}

// repent keeps a client waiting whose address makes too much trouble, and throws it out when that does not help. What it sent
// is not read meanwhile, its end neither: so that cannot go on for long.
func (s *session) repent() error {
	pause := min(max(s.penance, 2*s.paused), mostPause)
	s.penance, s.paused, s.leeway = 0, pause, 0
	if s.repented += pause; s.repented > mostPenance {
		return &connError{enhanceYourCalm, "too many oddities on too many connections"}
	}
	s.owner.abused(telemetry.AbuseSlowed)
	s.sendLater()
	s.in.pace.leave() // both set the low water of the socket
	stays := s.nc.Doze(spread(pause))
	s.in.at = time.Time{}
	if !stays {
		return errGoneAway
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// resetFor ends a stream that the peer has broken. Enough of them end the connection.
func (s *session) resetFor(e *streamError) error {
	s.mu.Lock()
	s.resetLocked(e.id, e.code)
	if st := s.streams[e.id]; st != nil {
		st.sentReset = true
		st.failLocked(e, false)
	} else {
		s.forgetLocked(e.id, true)
	}
	s.mu.Unlock()
	if e.code == refusedStream {
		return s.charge(costRefused)
	}
	return s.charge(costReset)
}

func (s *session) resetLocked(id uint32, c code) {
	s.roomLocked()
	s.out = appendReset(s.out, id, c)
	s.kickLocked()
}

// charge takes from the budget of oddities that a peer has, after what answered requests give back.
func (s *session) charge(cost int) error { return s.chargeFor(cost, "too many oddities") }

func (s *session) chargeFor(cost int, why string) error {
	now := time.Now()
	given := worthAnswer * int(s.answered.Swap(0))
	if given > 0 {
		s.glitch.take(now, -given)
		s.leeway = min(ownTrouble, s.leeway+given)
	}
	within := s.glitch.take(now, cost)
	switch {
	case s.debt == nil:
	case !s.debt.charge(now, cost-given):
		s.paused, s.repented = 0, 0
	case s.glitch.used > float64(s.leeway):
		s.penance += time.Duration(cost) * pauseEach
	}
	if !within {
		return &connError{enhanceYourCalm, why}
	}
	return nil
}

// handle acts on one frame.
func (s *session) handle(f *frame) error {
	if !s.peer.known && (f.kind != kindSettings || f.has(flagAck)) {
		return &connError{protocolError, "the first frame is not SETTINGS"}
	}
	s.quiet = 0
	if f.kind != kindPing && s.asked.Load() {
		s.asked.Store(false)
	}
	switch f.kind {
	case kindData:
		return s.onData(f)
	case kindHeaders:
		return s.onHeaders(f)
	case kindContinuation:
		return s.onContinuation(f)
	case kindSettings:
		return s.onSettings(f)
	case kindWindow:
		return s.onWindow(f)
	case kindReset:
		return s.onReset(f)
	case kindPing:
		return s.onPing(f)
	case kindGoAway:
		return s.onGoAway(f)
	case kindPush:
		return &connError{protocolError, "PUSH_PROMISE"}
	case kindPriority:
		if f.value == f.id {
			return &streamError{f.id, protocolError, "stream depends on itself"}
		}
	}
	return s.charge(costOther) // PRIORITY and frames that nobody knows are passed over
}

func (s *session) onSettings(f *frame) error {
	if f.has(flagAck) {
		s.mu.Lock()
		s.settings = time.Time{}
		s.mu.Unlock()
		return nil
	}
	if s.peer.known {
		if err := s.charge(costSettings); err != nil {
			return err
		}
	}
	s.mu.Lock()
	for _, set := range f.settings[:f.count] {
		if err := s.settingLocked(set); err != nil {
			s.mu.Unlock()
			return err
		}
	}
	s.roomLocked()
	s.out = appendHead(s.out, 0, kindSettings, flagAck, 0)
	s.kickLocked()
	s.peer.known = true
	s.mu.Unlock()
	s.owner.settled(s)
	return nil
}

func (s *session) settingLocked(set setting) error {
	switch set.ID {
	case setTableSize:
		s.enc.limit(set.Val)
	case setEnablePush:
		if s.client && set.Val != 0 {
			return &connError{protocolError, "a server must not enable push"}
		}
	case setMaxStreams:
		s.peer.streams = set.Val
	case setInitialWindow:
		delta := int64(set.Val) - s.peer.window
		s.peer.window = int64(set.Val)
		for _, st := range s.streams {
			if st.sendWin += delta; st.sendWin > maxWindow {
				return &connError{flowControlError, "SETTINGS_INITIAL_WINDOW_SIZE overflows a window"}
			}
			st.writer.notify()
		}
	case setMaxFrame:
		s.peer.frame = min(int(set.Val), maxFrame)
	case setMaxList:
		s.peer.list = set.Val
	case setConnect:
		s.peer.connect = set.Val == 1
	}
	return nil
}

func (s *session) onWindow(f *frame) error {
	if s.windowed++; s.windowed > freeWindows {
		s.mu.Lock()
		allowed := freeWindows + windowsEach*(len(s.streams)+s.recentAt) + windowsData*s.dataSent
		s.mu.Unlock()
		if s.windowed > allowed {
			if err := s.charge(costWindow); err != nil {
				return err
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.id == 0 {
		if s.sendWin += int64(f.value); s.sendWin > maxWindow {
			return &connError{flowControlError, "the connection's window overflows"}
		}
		s.unblockLocked()
		return nil
	}
	st, err := s.findLocked(f)
	if st == nil {
		return err
	}
	if st.sendWin += int64(f.value); st.sendWin > maxWindow {
		return &streamError{f.id, flowControlError, "the stream's window overflows"}
	}
	st.writer.notify()
	return nil
}

// findLocked returns the stream of a frame; nil without an error when it is over, an error when it was never there.
func (s *session) findLocked(f *frame) (*stream, error) {
	if st := s.streams[f.id]; st != nil {
		return st, nil
	}
	if s.idleLocked(f.id) {
		return nil, &connError{protocolError, f.kind.String() + " on an idle stream"}
	}
	return nil, nil
}

// idleLocked reports whether a stream was never opened.
func (s *session) idleLocked(id uint32) bool {
	ours := id%2 == 1 == s.client
	if ours {
		return id >= s.nextID
	}
	return id > s.highest
}

func (s *session) onReset(f *frame) error {
	s.mu.Lock()
	st, err := s.findLocked(f)
	cost := costReset
	if st != nil {
		if !s.client && s.in.when().Sub(st.began) >= tiredAfter {
			cost = costOther
		}
		st.resetByPeerLocked(f.code)
	} else {
		s.agreedLocked(f.id)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if !s.client || st == nil {
		return s.charge(cost)
	}
	return nil
}

// tooManyPings is what clients of gRPC understand: they double the pause between their PINGs.
const tooManyPings = "too_many_pings"

func (s *session) onPing(f *frame) error {
	if f.has(flagAck) {
		return s.pong(f.payload)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// A peer that measures the link, as those of gRPC do all the time, sends one when DATA came.
	measures := s.dataSent > s.dataAtPing
	s.dataAtPing = s.dataSent
	if !measures {
		if err := s.chargeFor(costPing, tooManyPings); err != nil {
			return err
		}
	}
	s.roomLocked()
	s.out = appendPing(s.out, true, f.payload)
	s.kickLocked()
	return nil
}

func (s *session) onGoAway(f *frame) error {
	s.mu.Lock()
	if s.peerAway && f.value > s.peerLast && s.client {
		f.value = s.peerLast
	}
	s.peerAway, s.peerLast = true, f.value
	if f.code != noError {
		s.peerWhy = f.code
	}
	if s.client {
		for id, st := range s.streams {
			if id > f.value {
				st.failLocked(errGoneAway, true)
			}
		}
		s.closeIfIdleLocked()
	} else {
		s.leaveLocked()
	}
	s.mu.Unlock()
	s.owner.settled(s)
	return s.charge(costPing)
}

func (s *session) onData(f *frame) error {
	if len(f.payload) == 0 && !f.has(flagEndStream) {
		if err := s.charge(costEmpty); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int64(f.length)
	if s.recvWin -= n; s.recvWin < 0 {
		return &connError{flowControlError, "more DATA than the connection's window"}
	}
	// Credit for the connection is given on receipt: what a stream holds is bounded by its own window, and one that nobody
	// reads must not stop the others.
	if s.recvOwed += n; s.recvOwed >= s.connWin/2 {
		s.roomLocked()
		s.out = appendWindow(s.out, 0, uint32(s.recvOwed))
		s.recvWin += s.recvOwed
		s.recvOwed = 0
		s.kickLocked()
	}
	st, err := s.findLocked(f)
	if st == nil {
		if known, reset := s.recallLocked(f.id); err == nil && known && !reset {
			return &streamError{f.id, streamClosed, "DATA on a closed stream"}
		}
		return err
	}
	return st.dataLocked(f)
}
