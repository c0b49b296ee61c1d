package h2

import (
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

const (
	// ModerateEvery is the pace of moderated reads.
	ModerateEvery = 100 * time.Microsecond
	// A connection gets a turn when it has woken its reader oftener than that so many times running, with so many streams
	// open; it gives it up behind so many looks that found less than a little.
	wakesToJoin   = 8
	streamsToJoin = 8
	looksToLeave  = 2
	little        = 512 // octets
)

// readPace decides when a connection is read at each arrival, and when at a steady pace. It belongs to the reader goroutine.
type readPace struct {
	moderator *netio.Moderator // nil: at each arrival
	busy      func() bool      // whether there are enough streams
	turn      *netio.Turn      // nil: at each arrival
	last      time.Time        // when the reader was woken
	wakes     int              // running, at less than the pace
	vain      int              // looks running that found little
}

// judge notes that the reader was woken.
func (p *readPace) judge(c *netio.Conn) {
	if p.moderator == nil {
		return
	}
	now := time.Now()
	soon := now.Sub(p.last) < ModerateEvery
	p.last = now
	if !soon {
		p.wakes = 0
		return
	}
	if p.wakes++; p.wakes >= wakesToJoin {
		p.wakes = 0
		if p.busy() {
			p.turn, p.vain = p.moderator.Join(c), 0
		}
	}
}

// read waits for the next tick and reads what has come; netio.ErrTimeout: nothing.
func (p *readPace) read(c *netio.Conn, lend func() []byte) ([]byte, int, error) {
	p.turn.Next()
	b := lend()
	n, err := c.TryRead(b)
	if n >= little {
		p.vain = 0
	} else if p.vain++; p.vain >= looksToLeave {
		p.leave()
	}
	if n > 0 {
		return b, n, nil
	}
	returnRead(b)
	if err == nil {
		err = netio.ErrTimeout
	}
	return nil, 0, err
}

// leave goes back to reading at each arrival.
func (p *readPace) leave() {
	if p.turn != nil {
		p.turn.Leave()
		p.turn = nil
	}
}
