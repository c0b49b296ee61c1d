package netio

import (
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Moderator lets busy connections be read at a steady pace instead of at each arrival: a reader that is woken for every
// packet costs more than what it reads. While a connection has a turn, the kernel tells of its data only when there is much
// (SO_RCVLOWAT), and one goroutine for all of them says when to look. It runs while there are turns.
type Moderator struct {
	every time.Duration

	mu      sync.Mutex // guards what follows
	turns   []*Turn
	running bool
}

// muchToRead is what makes the kernel tell of data before the next tick, in octets.
const muchToRead = 16 << 10

// NewModerator returns a moderator of that pace.
func NewModerator(every time.Duration) *Moderator { return &Moderator{every: every} }

// Turns returns how many connections have one.
func (m *Moderator) Turns() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.turns)
}

// Turn is the place of a connection at a Moderator. It belongs to the connection's reader, which must read by TryRead until
// it has left.
type Turn struct {
	m    *Moderator
	c    *Conn
	tick chan struct{}
	left int // ticks until it is told; guarded by m.mu
}

// Join gives c a turn; nil where c is not a socket.
func (m *Moderator) Join(c *Conn) *Turn {
	if c.raw == nil || c.lowWater(muchToRead) != nil {
		return nil
	}
	t := &Turn{m: m, c: c, tick: make(chan struct{}, 1)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turns = append(m.turns, t)
	if !m.running {
		m.running = true
		go m.run()
	}
	return t
}

// Next waits for so many ticks, at least one.
func (t *Turn) Next(ticks int) {
	t.m.mu.Lock()
	t.left = max(ticks, 1)
	t.m.mu.Unlock()
	<-t.tick
}

// Leave gives the turn up.
func (t *Turn) Leave() {
	t.m.mu.Lock()
	if i := slices.Index(t.m.turns, t); i >= 0 {
		t.m.turns = slices.Delete(t.m.turns, i, i+1)
	}
	t.m.mu.Unlock()
	_ = t.c.lowWater(1) // one that is closed has no use for it
}

func (c *Conn) lowWater(n int) error {
	var err error
	if e := c.raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n)
	}); e != nil {
		return e
	}
	return err
}

// run ticks while there are turns. Go's own timers are as coarse as a millisecond in an idle process.
func (m *Moderator) run() {
	wait := func() { time.Sleep(m.every) }
	if f := ticks(m.every); f != nil {
		defer func() { _ = f.Close() }()
		buf := make([]byte, 8)
		wait = func() {
			if _, err := f.Read(buf); err != nil {
				time.Sleep(m.every)
			}
		}
	}
	for {
		wait()
		m.mu.Lock()
		for _, t := range m.turns {
			if t.left > 0 {
				if t.left--; t.left == 0 {
					t.tick <- struct{}{} // has room: who waits has taken the last one
				}
			}
		}
		m.running = len(m.turns) > 0
		over := !m.running
		m.mu.Unlock()
		if over {
			return
		}
	}
}

// ticks returns a file that can be read once each so often; nil where there is none to be had.
func ticks(every time.Duration) *os.File {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil
	}
	t := unix.NsecToTimespec(int64(every))
	if unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: t, Value: t}, nil) != nil {
		_ = unix.Close(fd)
		return nil
	}
	return os.NewFile(uintptr(fd), "timerfd")
}

// TryRead reads what is at hand without waiting: 0 and nil when nothing is, io.EOF at the end. It is for sockets.
func (c *Conn) TryRead(p []byte) (int, error) {
	if c.interrupted.Load() {
		return 0, ErrInterrupted
	}
	if c.nowRaw == nil {
		c.nowRaw = c.readNow
	}
	c.got = p
	err := c.raw.Control(c.nowRaw)
	c.got = nil
	switch {
	case err != nil:
		return 0, err
	case c.errno == syscall.EAGAIN:
		return 0, nil
	case c.errno != 0:
		return 0, os.NewSyscallError("read", c.errno)
	case c.n == 0:
		return 0, io.EOF
	}
	return c.n, nil
}

func (c *Conn) readNow(fd uintptr) {
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(c.got))), uintptr(len(c.got)))
		if errno != syscall.EINTR {
			c.n, c.errno = int(n), errno
			return
		}
	}
}
