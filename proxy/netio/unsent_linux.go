package netio

import (
	"errors"

	"golang.org/x/sys/unix"
)

// LimitUnsent bounds what the kernel takes of what is written before it can send it (TCP_NOTSENT_LOWAT), give or take one write of
// a packet. What it took goes first, whatever else there is to be said by then. Where the connection is not a socket there is
// nothing to bound.
func (c *Conn) LimitUnsent(octets int) error {
	if c.raw == nil {
		return nil
	}
	var err error
	return errors.Join(c.raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, octets)
	}), err)
}
