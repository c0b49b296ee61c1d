package netio

import (
	"time"

	"golang.org/x/sys/unix"
)

// deaf is how much must come for a connection that dozes to be woken by it.
const deaf = 64 << 10

// lookEvery is how often a connection that dozes looks whether it is still wanted.
const lookEvery = 250 * time.Millisecond

// Doze lets a time pass, or less where the connection is aborted meanwhile or the peer leaves. It reports whether neither has
// happened. Little that comes meanwhile costs nothing: a socket that is watched wakes somebody for each packet otherwise, whether
// it is read or not.
func (c *Conn) Doze(d time.Duration) bool {
	if c.raw != nil {
		_ = c.lowWater(deaf) // where that fails it costs more
		defer func() { _ = c.lowWater(1) }()
	}
	for ; d > 0; d -= lookEvery {
		time.Sleep(min(d, lookEvery))
		if c.aborted.Load() || c.left() {
			return false
		}
	}
	return true
}

// left reports whether the peer has closed, at least its direction, however much of what it said is not read yet.
func (c *Conn) left() bool {
	if c.raw == nil {
		return false
	}
	gone := false
	if err := c.raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		gone = err == nil && n > 0
	}); err != nil {
		return true
	}
	return gone
}
