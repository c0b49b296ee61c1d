//go:build linux

package load

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// drain is how long replies are awaited after the last request was due.
const drain = 2 * time.Second

// conn is one connection of the open loop.
type conn struct {
	fd  int
	due time.Duration // of the request in flight, since the start
	r   reply

	free bool // no request is in flight
}

// open is the state of an open loop: one thread, one epoll instance, one timer. Go's own timers are a millisecond off.
type open struct {
	address     string
	request     []byte
	epoll       int
	timer       int
	conns       map[int]*conn // by descriptor
	free        []*conn
	interval    time.Duration
	warmup, end time.Duration
	begin       time.Time
	next        time.Duration // the first request not yet taken up
	took        []time.Duration
	failed      int
}

// Open sends requests at a constant rate over at most so many connections. A request is due at its place in the schedule,
// whether or not a connection is free, and its latency counts from there. Those due during warmup are not counted.
func Open(address string, request []byte, rate float64, connections int, warmup, duration time.Duration) (Latency, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	o := &open{
		address: address, request: request, conns: map[int]*conn{},
		interval: time.Duration(float64(time.Second) / rate), warmup: warmup, end: warmup + duration,
	}
	defer o.close()
	if err := o.setup(connections); err != nil {
		return Latency{}, err
	}
	o.begin = time.Now()
	events := make([]unix.EpollEvent, 128)
	for {
		now := time.Since(o.begin)
		if err := o.send(now); err != nil {
			return Latency{}, err
		}
		idle := len(o.free) == len(o.conns)
		if o.next >= o.end && (idle || now > o.end+drain) {
			for _, c := range o.conns {
				if !c.free {
					o.failed++
				}
			}
			break
		}
		n, err := unix.EpollWait(o.epoll, events, 1000)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return Latency{}, fmt.Errorf("epoll: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			if c := o.conns[int(e.Fd)]; c != nil {
				if err := o.receive(c); err != nil {
					return Latency{}, err
				}
			}
		}
	}
	return summarize(o.took, o.failed), nil
}

func (o *open) setup(connections int) (err error) {
	o.timer = -1
	if o.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if o.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return err
	}
	if err := o.watch(o.timer, unix.EPOLLIN|unix.EPOLLET); err != nil {
		return err
	}
	for range connections {
		if err := o.connect(); err != nil {
			return err
		}
	}
	return nil
}

func (o *open) watch(fd int, events uint32) error {
	return unix.EpollCtl(o.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// connect adds a free connection.
func (o *open) connect() error {
	fd, err := dial(o.address)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.SetNonblock(fd, true), o.watch(fd, unix.EPOLLIN)); err != nil {
		_ = unix.Close(fd)
		return err
	}
	c := &conn{fd: fd}
	o.conns[fd] = c
	o.release(c)
	return nil
}

func (o *open) release(c *conn) {
	c.free = true
	o.free = append(o.free, c)
}

// send takes up all that is due while connections are free, and sets the timer for what is due next.
func (o *open) send(now time.Duration) error {
	for o.next <= now && o.next < o.end && len(o.free) > 0 {
		c := o.free[len(o.free)-1]
		o.free = o.free[:len(o.free)-1]
		c.due, c.free = o.next, false
		o.next += o.interval
		if n, err := unix.Write(c.fd, o.request); err != nil || n != len(o.request) {
			if err := o.fail(c); err != nil {
				return err
			}
		}
	}
	if o.next >= o.end || len(o.free) == 0 {
		return nil // a reply wakes us
	}
	wait := max(o.next-time.Since(o.begin), 1)
	return unix.TimerfdSettime(o.timer, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(wait))}, nil)
}

// receive takes in what has come on c.
func (o *open) receive(c *conn) error {
	n, err := unix.Read(c.fd, c.r.space())
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return nil
	}
	if err != nil || n == 0 || c.free {
		return o.fail(c)
	}
	done, err := c.r.add(n)
	if err != nil || (done && c.r.status/100 != 2) {
		return o.fail(c)
	}
	if done {
		if c.due >= o.warmup {
			o.took = append(o.took, time.Since(o.begin)-c.due)
		}
		c.r.reset()
		o.release(c)
	}
	return nil
}

// fail counts the request on c as failed and puts a new connection in its place. A proxy that closes an idle connection
// fails no request.
func (o *open) fail(c *conn) error {
	if c.free {
		o.free = slices.DeleteFunc(o.free, func(f *conn) bool { return f == c })
	} else {
		o.failed++
	}
	delete(o.conns, c.fd)
	_ = unix.Close(c.fd)
	return o.connect()
}

func (o *open) close() {
	for fd := range o.conns {
		_ = unix.Close(fd)
	}
	_ = unix.Close(o.timer)
	_ = unix.Close(o.epoll)
}
