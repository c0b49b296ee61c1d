package netio

import "time"

// deaf is how much must come for a connection that dozes to be woken by it.
const deaf = 64 << 10

// wakeEvery is how often a connection that dozes looks whether it was aborted.
const wakeEvery = 250 * time.Millisecond

// Doze lets a time pass, or less where the connection is aborted meanwhile. Little that comes meanwhile costs nothing: a socket
// that is watched wakes somebody for each packet otherwise, whether it is read or not.
func (c *Conn) Doze(d time.Duration) {
	if c.raw != nil {
		_ = c.lowWater(deaf) // where that fails it costs more
		defer func() { _ = c.lowWater(1) }()
	}
	for ; d > 0 && !c.aborted.Load(); d -= wakeEvery {
		time.Sleep(min(d, wakeEvery))
	}
}
