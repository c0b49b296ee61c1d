//go:build linux

package load

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Source serves octets without end on loopback to everyone who connects and sends one. Close it.
func Source() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go pour(nc)
		}
	}()
	return l, nil
}

// pour writes to nc until it is closed.
func pour(nc net.Conn) {
	defer func() { _ = nc.Close() }()
	if _, err := io.ReadFull(nc, make([]byte, 1)); err != nil {
		return
	}
	for chunk := make([]byte, 256<<10); ; {
		if _, err := nc.Write(chunk); err != nil {
			return
		}
	}
}

// Sink takes in from a source over so many connections for the given time and counts the octets.
func Sink(address string, connections int, duration time.Duration) (octets int64, err error) {
	var total atomic.Int64
	var all sync.WaitGroup
	defer all.Wait()
	end := time.Now().Add(duration)
	for range connections {
		nc, err := net.DialTimeout("tcp", address, 5*time.Second)
		if err != nil {
			return 0, err
		}
		if err := nc.SetDeadline(end); err != nil {
			return 0, err
		}
		if _, err := nc.Write([]byte{0}); err != nil {
			return 0, err
		}
		all.Go(func() {
			defer func() { _ = nc.Close() }()
			for chunk := make([]byte, 256<<10); ; {
				n, err := nc.Read(chunk)
				total.Add(int64(n))
				if err != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return total.Load(), nil
}
