package netio

import "time"

// deaf is how much must come for a connection that dozes to be woken by it.
const deaf = 64 << 10

// Doze lets a time pass. Little that comes meanwhile costs nothing: a socket that is watched wakes somebody for each packet
// otherwise, whether it is read or not.
func (c *Conn) Doze(d time.Duration) {
	if c.raw == nil { // no socket
		time.Sleep(d)
		return
	}
	_ = c.lowWater(deaf) // where that fails it costs more
	time.Sleep(d)
	_ = c.lowWater(1)
}
