//go:build linux

package load

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Loop is a closed loop over several connections: each sends its next request when its reply is there. Connections stay open
// between runs, so that what is measured in slices is measured warm.
type Loop struct {
	request []byte
	epoll   int
	conns   map[int]*reply
}

// NewLoop opens so many connections.
func NewLoop(address string, request []byte, connections int) (*Loop, error) {
	l := &Loop{request: request, conns: map[int]*reply{}}
	var err error
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	for range connections {
		fd, err := dial(address)
		if err == nil {
			l.conns[fd] = &reply{}
			err = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
		}
		if err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// Run sends for as long as duration, takes in what is still on its way, and returns how many requests were answered. Every
// answer must be a good one.
func (l *Loop) Run(duration time.Duration) (int, error) {
	for fd := range l.conns {
		if err := l.ask(fd); err != nil {
			return 0, err
		}
	}
	end, late := time.Now().Add(duration), time.Now().Add(duration+drain)
	events := make([]unix.EpollEvent, 128)
	for done, flying := 0, len(l.conns); ; {
		n, err := unix.EpollWait(l.epoll, events, int(drain/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return done, fmt.Errorf("epoll: %w", err)
		}
		now := time.Now()
		for _, e := range events[:max(n, 0)] {
			whole, err := l.receive(int(e.Fd))
			if err != nil {
				return done, err
			}
			if !whole {
				continue
			}
			if done++; now.Before(end) {
				if err := l.ask(int(e.Fd)); err != nil {
					return done, err
				}
			} else if flying--; flying == 0 {
				return done, nil
			}
		}
		if now.After(late) {
			return done, fmt.Errorf("%d requests were not answered", flying)
		}
	}
}

func (l *Loop) ask(fd int) error {
	n, err := unix.Write(fd, l.request)
	if err == nil && n != len(l.request) {
		err = errors.New("short write")
	}
	return err
}

// receive takes in what has come, and tells whether that makes a reply whole.
func (l *Loop) receive(fd int) (bool, error) {
	r := l.conns[fd]
	n, err := unix.Read(fd, r.space())
	if err == nil && n == 0 {
		err = errors.New("connection closed")
	}
	if err != nil {
		return false, err
	}
	done, err := r.add(n)
	if done {
		if r.status/100 != 2 {
			err = fmt.Errorf("status %d", r.status)
		}
		r.reset()
	}
	return done, err
}

// Close closes the connections.
func (l *Loop) Close() {
	for fd := range l.conns {
		_ = unix.Close(fd)
	}
	_ = unix.Close(l.epoll)
}
