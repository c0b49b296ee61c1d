package h2

import (
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

const (
	// ModerateTick is the finest pace of moderated reads.
	ModerateTick = 250 * time.Microsecond
	mostTicks    = 4 // between two looks
	// A connection gets a turn when it has woken its reader oftener than the slowest pace so many times running, with so many
	// streams open; it gives it up behind so many looks running that found few frames, or all streams busy at the finest pace.
	wakesToJoin   = 8
	streamsToJoin = 8
	looksToLeave  = 2
	fewFrames     = 4
)

// readPace decides when a connection is read at each arrival, and when at a steady pace. It belongs to the reader goroutine.
type readPace struct {
	moderator *netio.Moderator // nil: at each arrival
	streams   func() int       // that are open
	turn      *netio.Turn      // nil: at each arrival
	last      time.Time        // when the reader was woken
	wakes     int              // running, at less than the slowest pace
	ticks     int              // between two looks
	found     int              // frames, at the last look
	vain      int              // looks running that found few
	more      bool             // the last look left something
}

// judge notes that the reader was woken, and reports whether to read at a steady pace from now on: many wakes in which few
// streams had something are a waste.
func (p *readPace) judge() (join bool) {
	now := time.Now()
	soon, found := now.Sub(p.last) < mostTicks*ModerateTick, p.found
	p.last, p.found = now, 0
	streams := 0
	if soon {
		streams = p.streams()
	}
	if streams < streamsToJoin || 2*found >= streams {
		p.wakes = 0
		return false
	}
	if p.wakes++; p.wakes < wakesToJoin {
		return false
	}
	p.wakes = 0
	return true
}

// woken notes that the reader was woken.
func (p *readPace) woken(c *netio.Conn) {
	if p.moderator != nil && p.judge() {
		p.turn, p.ticks, p.vain = p.moderator.Join(c), mostTicks, 0
		p.found = streamsToJoin // as if that had been found
	}
}

// moderated reports whether the connection is to be read at a steady pace.
func (p *readPace) moderated() bool {
	if p.turn != nil && !p.more && !p.adapt() {
		p.leave()
	}
	return p.turn != nil
}

// adapt changes the pace by what the last look found: where less than half of the streams have something the next one comes
// later, and where all have, sooner. It reports whether to go on.
func (p *readPace) adapt() bool {
	streams, found := p.streams(), p.found
	p.found = 0
	switch {
	case found >= streams && p.ticks == 1, found < fewFrames && p.ticks == mostTicks:
		p.vain++
		return p.vain < looksToLeave
	case found >= streams:
		p.ticks /= 2
	case 2*found < streams:
		p.ticks = min(2*p.ticks, mostTicks)
	}
	p.vain = 0
	return true
}

// read waits until it is time to look, and reads what has come; netio.ErrTimeout: nothing.
func (p *readPace) read(c *netio.Conn, b []byte) (int, error) {
	if !p.more {
		p.turn.Next(p.ticks)
	}
	n, err := c.TryRead(b)
	if p.more = n == len(b); n == 0 && err == nil {
		err = netio.ErrTimeout
	}
	return n, err
}

// leave goes back to reading at each arrival.
func (p *readPace) leave() {
	if p.turn != nil {
		p.turn.Leave()
		p.turn = nil
	}
}
