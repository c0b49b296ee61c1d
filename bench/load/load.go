//go:build linux

// Package load makes traffic on loopback for the benchmark: an open-loop HTTP/1.1 generator whose latencies count from the
// scheduled time (so a stalled proxy cannot hide requests that were due), a closed loop over one connection, idle
// connections of HTTP/1.1 and HTTP/2, and a TCP source and sink. It owns its sockets and ends by itself. Tests: real
// loopback servers, one of which stalls.
package load

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Latency is a distribution of latencies.
type Latency struct {
	Count, Errors      int
	P50, P90, P99, Max time.Duration
}

// summarize sorts took.
func summarize(took []time.Duration, failed int) Latency {
	l := Latency{Count: len(took), Errors: failed}
	if len(took) == 0 {
		return l
	}
	slices.Sort(took)
	at := func(q float64) time.Duration { return took[min(len(took)-1, int(q*float64(len(took))))] }
	l.P50, l.P90, l.P99, l.Max = at(0.5), at(0.9), at(0.99), took[len(took)-1]
	return l
}

// Request is the octets of a GET.
func Request(host, path string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: load\r\nAccept: */*\r\n\r\n", path, host)
}

// Post is the octets of a POST with a body of some size.
func Post(host, path string, octets int) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", path, host, octets, strings.Repeat("x", octets))
}

// Once sends one request on a connection of its own and returns the status and the body.
func Once(address string, request []byte, patience time.Duration) (status int, body []byte, err error) {
	nc, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = nc.Close() }()
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, nil, err
	}
	if _, err := nc.Write(request); err != nil {
		return 0, nil, err
	}
	var r reply
	for {
		n, err := nc.Read(r.space())
		if n == 0 && err != nil {
			return 0, nil, err
		}
		done, err := r.add(n)
		if err != nil {
			return 0, nil, err
		}
		if done {
			return r.status, r.buf[r.head:r.size], nil
		}
	}
}

// One sends a request after the other on one connection for the given time.
func One(address string, request []byte, duration time.Duration) (Latency, error) {
	fd, err := dial(address)
	if err != nil {
		return Latency{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return Latency{}, err
	}
	var took []time.Duration
	var r reply
	for begin := time.Now(); time.Since(begin) < duration; {
		sent := time.Now()
		if _, err := unix.Write(fd, request); err != nil {
			return Latency{}, err
		}
		for done := false; !done; {
			n, err := unix.Read(fd, r.space())
			if errors.Is(err, unix.EINTR) { // our own runtime interrupts whoever runs for long
				continue
			}
			if err == nil && n == 0 {
				err = errors.New("connection closed")
			}
			if err == nil {
				done, err = r.add(n)
			}
			if err != nil {
				return Latency{}, err
			}
		}
		if r.status/100 != 2 {
			return Latency{}, fmt.Errorf("status %d", r.status)
		}
		took = append(took, time.Since(sent))
		r.reset()
	}
	return summarize(took, 0), nil
}

// Idle opens n connections, sends one request on each and returns them open; close them all.
func Idle(address string, request []byte, n int) (conns []net.Conn, err error) {
	for range n {
		nc, err := net.DialTimeout("tcp", address, 5*time.Second)
		if err != nil {
			return conns, err
		}
		conns = append(conns, nc)
		if err := nc.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return conns, err
		}
		if _, err := nc.Write(request); err != nil {
			return conns, err
		}
		var r reply
		for done := false; !done; {
			got, err := nc.Read(r.space())
			if got == 0 && err != nil {
				return conns, err
			}
			if done, err = r.add(got); err != nil {
				return conns, err
			}
		}
	}
	return conns, nil
}

// dial opens a blocking TCP socket without delay.
func dial(address string) (int, error) {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()})
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// reply takes in one response with a Content-Length.
type reply struct {
	buf        []byte
	n          int // octets in buf
	head, size int // octets of the head, of the whole; 0: not known yet
	status     int
}

func (r *reply) reset() { r.n, r.head, r.size, r.status = 0, 0, 0, 0 }

// space is where to read the next octets into.
func (r *reply) space() []byte {
	if len(r.buf)-r.n < 512 {
		r.buf = append(r.buf, make([]byte, 4096)...)
	}
	return r.buf[r.n:]
}

var (
	blankLine     = []byte("\r\n\r\n")
	contentLength = []byte("\r\ncontent-length:")
)

// add says that n octets were read and tells whether the response is whole.
func (r *reply) add(n int) (done bool, err error) {
	r.n += n
	if r.size == 0 {
		end := bytes.Index(r.buf[:r.n], blankLine)
		if end < 0 {
			return false, nil
		}
		if r.status, err = strconv.Atoi(string(r.buf[9:12])); err != nil {
			return false, fmt.Errorf("not a response: %.20q", r.buf[:r.n])
		}
		length, err := lengthOf(r.buf[:end])
		if err != nil {
			return false, err
		}
		r.head = end + len(blankLine)
		r.size = r.head + length
	}
	if r.n > r.size {
		return false, errors.New("more than one response")
	}
	return r.n == r.size, nil
}

// lengthOf finds the Content-Length of a head.
func lengthOf(head []byte) (int, error) {
	for at := 0; ; at += 2 {
		next := bytes.Index(head[at:], contentLength[:2])
		if next < 0 {
			return 0, errors.New("no content-length")
		}
		at += next
		line := head[at:]
		if len(line) < len(contentLength) || !bytes.EqualFold(line[:len(contentLength)], contentLength) {
			continue
		}
		line = line[len(contentLength):]
		if end := bytes.IndexByte(line, '\r'); end >= 0 {
			line = line[:end]
		}
		return strconv.Atoi(string(bytes.TrimSpace(line)))
	}
}
