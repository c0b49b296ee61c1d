package h2

import "time"

// What a peer has sent lies in the order in which it was sent: on its side, in the sockets, and in what we read. An answer of
// one octet has to wait for all that a large body was allowed before it. So the window of a stream, which may be large since
// its reader may be slow and its peer far away, is not given to the peer all at once.
const (
	// wayAlone is what a stream that is alone may have on its way to us, in octets. More makes a body cost more, not less: it
	// does not stay in a core's cache from one read to the next.
	wayAlone = 512 << 10
	// wayShared is that of a stream that is not: three frames, below which a body next door costs much more.
	wayShared = 48 << 10
	// farAway is the least round trip of a peer whose distance makes it need more than that: below it is a peer on the same
	// machine, and what is measured is how busy that is.
	farAway = 200 * time.Microsecond
	// sharedFor is how long a stream counts as not alone after another was there: small calls come and go.
	sharedFor = time.Second
)

// company is who shared a connection of late. The session's lock guards it.
type company struct {
	last uint32    // the stream that was opened last, when somebody looked
	seen time.Time // others, for the last time; zero: never
}

// shared reports whether a stream shares its connection, or did a moment ago: with as many open, and the last that was opened.
func (c *company) shared(id uint32, open int, last uint32, now time.Time) bool {
	if open > 1 || last > id && last != c.last {
		c.last, c.seen = last, now
		return true
	}
	return !c.seen.IsZero() && now.Sub(c.seen) < sharedFor
}

// wayLocked is how many octets a stream may have on their way to us.
func (s *session) wayLocked(st *stream) int64 {
	last := s.highest
	if s.client {
		last = s.nextID - 2
	}
	if s.company.shared(st.id, len(s.streams), last, time.Now()) {
		return max(wayShared, s.pace.way)
	}
	return max(wayAlone, s.pace.way)
}
