// Package loopback finds addresses of this machine for tests and tools that start servers.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
)

// Own returns a host of 127.0.0.0/8 that nobody else is likely to have drawn. The system gives none of its ports to an
// outgoing connection, as it does on 127.0.0.1.
func Own() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
}

// Free returns a TCP address of the host on which nobody listened a moment ago: at the port, or at any for "0". It fails
// when the port is taken.
//
// A process that is forked meanwhile would hold a copy of the listener until it has become another program, and whoever
// listens there in that time would be told that the address is in use. So nobody forks while the port is tried.
func Free(host, port string) (string, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return "", fmt.Errorf("look for a free address: %w", err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return "", fmt.Errorf("look for a free address: %w", err)
	}
	return address, nil
}
