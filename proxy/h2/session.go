// Package h2 is the HTTP/2 engine (RFC 9113): both sides of a connection on one session, whose one reader goroutine
// decodes and checks everything that comes in, and whose streams are straight-line blocking code on goroutines from a
// pool. Whoever has something to send appends whole frames to the session's one buffer under the lock that also guards
// the header encoder; one flush sends what everything that was ready has left there. Bytes enter that buffer only within
// the peer's windows, and the bytes of a stream that nobody takes are bounded by the window that we gave.
//
// The framing library stops at frame.go. Tests: tables and fuzz of heads, scripts of frames over in-memory connections,
// the wire cases and h2spec in e2e.
package h2

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// Limits bounds connections and what they carry. Those from MaxAge on may be left out.
type Limits struct {
	HeaderBytes int // of one head, as SETTINGS_MAX_HEADER_LIST_SIZE counts
	HeaderCount int
	IdleTimeout time.Duration    // of a connection without streams
	MaxAge      time.Duration    // of a connection, give or take a tenth; 0: no bound
	MaxRequests int              // of a connection; 0: no bound
	Windows     *WindowMemory    // what windows may grow by; nil: they do not
	Moderator   *netio.Moderator // of the reads of busy connections; nil: each is read at each arrival
}

const (
	maxStreams       = 100      // that a peer may have open
	streamWindow     = 64 << 10 // at first
	connWindow       = 1 << 20  // at first
	roomy            = 64 << 10 // bytes to be sent, from which on DATA waits
	unsent           = 64 << 10 // bytes that the kernel may hold before it can send them
	maxContinuations = 8        // frames of one header block
	maxBlock         = 4        // times the limits of a head: of one block, encoded or decoded, before the connection ends
	tickEvery        = 5 * time.Second
	ackTime          = 10 * time.Second // for the peer to acknowledge our settings
	writeStall       = 30 * time.Second
)

var (
	errGoneAway = errors.New("connection closed by the peer")
	errIdle     = errors.New("idle")
)

// session is one connection.
type session struct {
	nc     *netio.Conn
	client bool
	lim    *Limits
	owner  owner

	// Owned by the reader goroutine.
	in       *frames
	dec      *decoder
	head     *head  // being decoded; nil outside a block
	headID   uint32 // the stream it is for
	parts    int    // CONTINUATION frames of it
	raw      int    // encoded bytes of it
	spill    int    // decoded bytes beyond the limits
	glitch   bucket
	debt     *debt             // of the peer's address; nil: it is not counted
	leeway   int               // what it may have spent of glitch before it is slowed down where its address owes
	penance  time.Duration     // to be kept before the next frame is read
	paused   time.Duration     // the last time
	repented time.Duration     // so far
	windowed int               // WINDOW_UPDATE frames
	quiet    int               // ticks since the last frame
	later    []pipeline.Sender // what was passed on since the last read has to be sent by them

	answered atomic.Int64 // requests that were answered to their ends, and not counted in glitch yet

	asked atomic.Bool // a PING was sent, and no frame but PING has come since

	mu         sync.Mutex // guards all below, and the streams
	out        []byte     // frames to be sent; nil while there are none
	outBox     *[]byte    // what it came in from the pool
	flusher    func()     // flush, made once
	flushing   bool
	outSeq     uint64 // counts flushes: tells whether a frame is still in out
	dataSent   int    // DATA frames
	dataAtPing int    // of those, when the last PING came
	enc        *encoder
	streams    map[uint32]*stream
	sendWin    int64 // of the connection
	connWin    int64 // that the peer has: what it may send, and what was not credited
	recvWin    int64 // what the peer may still send
	recvOwed   int64 // received and not credited
	pace       pace
	company    company
	blocked    []*stream
	inLine     int // goroutines that wait for room or for the connection's window
	peer       peerSettings
	highest    uint32 // of the streams that the peer opened
	nextID     uint32 // of ours
	working    int    // streams whose work goes on, those that were reset included
	roomless   int    // of working: they wait for room before they begin
	over       int    // of working: answered to their ends
	lastAway   uint32 // of the GOAWAY that we sent
	away       awayState
	peerAway   bool      // the peer sent GOAWAY
	peerLast   uint32    // its last stream
	peerWhy    code      // of it
	settings   time.Time // when ours were sent; zero: acknowledged
	pinged     time.Time // a PING of ours is out since; zero: none
	lastPing   time.Time
	idleSince  time.Time
	err        error // why it is over

	recent   [recentStreams]closedStream // the last streams that are over
	recentAt int

	suspect atomic.Bool   // a stream waited in vain, and nothing has come since that shows life
	done    chan struct{} // closed when the reader has ended
}

// leavesAt is when a connection that begins now has reached its age; zero: never. Ages differ by a tenth, so that what began
// together does not end together.
func (l *Limits) leavesAt(now time.Time) time.Time {
	if l.MaxAge <= 0 {
		return time.Time{}
	}
	return now.Add(time.Duration(float64(l.MaxAge) * (0.9 + 0.2*jitter())))
}

// Why a connection is left for a new one.
const (
	WhyAge      = "age"
	WhyRequests = "requests"
)

// recentStreams is how many streams are remembered when they are over: what comes late for them is judged by how they
// ended.
const recentStreams = 64

type closedStream struct {
	id    uint32
	reset bool // by us: its peer may not have known yet
}

// forgetLocked remembers a stream that is over.
func (s *session) forgetLocked(id uint32, reset bool) {
	delete(s.streams, id)
	s.recent[s.recentAt%recentStreams] = closedStream{id, reset}
	s.recentAt++
	if len(s.streams) == 0 {
		s.idleSince = time.Now()
	}
}

// recallLocked tells how a stream ended, if that is remembered.
func (s *session) recallLocked(id uint32) (known, reset bool) {
	for _, c := range s.recent {
		if c.id == id {
			return true, c.reset
		}
	}
	return false, false
}

// agreedLocked notes that the peer, too, has given up a stream: what it sends on it from now on is not excused.
func (s *session) agreedLocked(id uint32) {
	for i := range s.recent {
		if s.recent[i].id == id {
			s.recent[i].reset = false
		}
	}
}

type awayState uint8

const (
	staying awayState = iota
	warned            // GOAWAY with the highest id was sent, and a PING
	leaving           // GOAWAY with the last id was sent
)

// peerSettings is what the peer told us (RFC 9113 6.5.2).
type peerSettings struct {
	window  int64
	frame   int
	streams uint32
	list    uint32
	connect bool
	known   bool // its first SETTINGS came
}

// owner is the side that a session belongs to.
type owner interface {
	// headers is told a complete head for a stream that is not known yet, with the session's lock held. It takes h over.
	headers(s *session, id uint32, h *head) error
	// tick is called every few seconds by the reader goroutine; an error ends the connection.
	tick(s *session, now time.Time) error
	// settled is called when settings of the peer came, changed when streams ended or a limit changed: without the lock.
	settled(s *session)
	// abused is told what was done about a peer that makes too much trouble.
	abused(what string)
	// ended is called once when the session is over.
	ended(s *session)
}

func newSession(nc *netio.Conn, client bool, lim *Limits, o owner, first []byte) *session {
	s := &session{
		nc: nc, client: client, lim: lim, owner: o, in: newFrames(nc, first), streams: make(map[uint32]*stream),
		sendWin: defaultWindow, connWin: connWindow, recvWin: connWindow, pace: pace{window: streamWindow}, enc: newEncoder(), nextID: 1, done: make(chan struct{}),
		peer: peerSettings{window: defaultWindow, frame: maxFrame, streams: 1 << 31, list: 1 << 31},
	}
	s.dec = newDecoder(maxBlock*lim.HeaderBytes, s.field)
	s.in.onWait, s.in.onRead, s.flusher = s.waiting, s.sendLater, s.flush
	s.in.pace.moderator, s.in.pace.streams = lim.Moderator, s.open
	s.idleSince = time.Now()
	_ = nc.LimitUnsent(unsent) // where that fails, what is small may wait for what is large
	return s
}

// greet sends what comes first: the preface of a client, our settings, and credit for the connection.
func (s *session) greet() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roomLocked()
	list := []setting{
		{ID: setInitialWindow, Val: streamWindow}, {ID: setMaxList, Val: uint32(s.lim.HeaderBytes)},
	}
	if s.client {
		s.out = append(s.out, Preface...)
		list = append(list, setting{ID: setEnablePush, Val: 0})
	} else {
		list = append(list, setting{ID: setMaxStreams, Val: maxStreams}, setting{ID: setConnect, Val: 1})
	}
	s.out = appendSettings(s.out, list...)
	s.out = appendWindow(s.out, 0, connWindow-defaultWindow)
	s.settings = time.Now()
	s.kickLocked()
}

// failLocked ends all streams because the session is over.
func (s *session) failLocked(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	for _, st := range s.streams {
		st.failLocked(err, s.peerAway && s.client && st.id > s.peerLast)
	}
	s.unblockLocked()
}

// open returns how many streams there are.
func (s *session) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// run reads until the connection ends, then closes it. It is the reader goroutine.
func (s *session) run() {
	err := s.read()
	s.sendLater()
	s.in.pace.leave()
	if errors.Is(err, io.EOF) {
		err = errGoneAway // io.EOF is the good end of a body
	}
	var ce *connError
	s.mu.Lock()
	owes := false
	if errors.As(err, &ce) && s.debt != nil && ce.code != settingsTimeout {
		owes = s.debt.charge(time.Now(), costEnded)
		s.owner.abused(telemetry.AbuseEnded)
	}
	if errors.As(err, &ce) && s.err == nil {
		s.tellLocked(ce, owes)
	}
	s.failLocked(err)
	flushing := s.flushing
	s.mu.Unlock()
	if s.head != nil {
		s.head.release()
		s.head = nil
	}
	s.in.release()
	switch {
	case owes: // it knows that it is thrown out; one that waits for the end is not back at once
		s.nc.Doze(spread(closeAfter))
	case flushing:
		s.linger()
	}
	_ = s.nc.Close()
	close(s.done)
	s.owner.ended(s)
}

// waiting is called every tickEvery.
func (s *session) waiting(now time.Time) error {
	s.quiet++
	s.mu.Lock()
	err := s.err
	late := !s.settings.IsZero() && now.Sub(s.settings) > ackTime
	s.mu.Unlock()
	switch {
	case err != nil:
		return err
	case late:
		return &connError{settingsTimeout, "our settings were not acknowledged"}
	}
	return s.owner.tick(s, now)
}

// pong is the answer to a PING of ours: of a measurement, of keep-alive, or of the first step of leaving.
func (s *session) pong(data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if [8]byte(data) == pingMeasure {
		s.measuredLocked()
		return nil
	}
	if s.pinged.IsZero() {
		return nil
	}
	s.suspect.Store(false)
	s.pinged = time.Time{}
	if s.away == warned {
		s.leaveLocked()
	}
	return nil
}

func (s *session) pingLocked(now time.Time) {
	s.asked.Store(true)
	s.pinged, s.lastPing = now, now
	s.roomLocked()
	s.out = appendPing(s.out, false, pingAlive[:])
	s.kickLocked()
}

// warnLocked is the first step of leaving: the peer is asked to open no more streams, but may have some on their way.
func (s *session) warnLocked(now time.Time) {
	if s.away != staying || s.err != nil {
		return
	}
	s.away = warned
	s.roomLocked()
	s.out = appendGoAway(s.out, maxWindow, noError, "")
	s.pingLocked(now)
}

// leaveLocked is the second step: later streams are not served.
func (s *session) leaveLocked() {
	if s.away == leaving || s.err != nil {
		return
	}
	s.away, s.lastAway = leaving, s.highest
	s.roomLocked()
	s.out = appendGoAway(s.out, s.highest, noError, "")
	s.kickLocked()
	s.closeIfIdleLocked()
}

// closeIfIdleLocked ends a session that leaves, or whose server does, and has nothing left to do.
func (s *session) closeIfIdleLocked() {
	if (s.away == leaving || s.client && s.peerAway) && len(s.streams) == 0 && s.working == 0 {
		s.failLocked(errIdle)
		if !s.flushing {
			s.nc.Interrupt()
		}
	}
}
