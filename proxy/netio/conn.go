// Package netio moves bytes between stream sockets at little cost: lazily armed deadlines, reads that hold no buffer
// while they wait, interruption from another goroutine, a watch for peers that leave, and a two-way relay. It owns no
// protocol and decides nothing. It imports nothing of the project. Tests: in-memory connections under testing/synctest
// and real loopback sockets.
package netio

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// ErrInterrupted is returned by a read that Interrupt ended.
var ErrInterrupted = errors.New("interrupted")

// ErrTimeout is returned by a read or write that was not over in time.
var ErrTimeout = errors.New("timed out")

// past is a deadline that is over.
var past = time.Unix(1, 0)

// Conn is a stream socket with lazily armed deadlines: arming a timer for each operation costs more than the operation
// is worth, so a deadline stays armed at or before the one wanted and is moved only when it fires too early.
//
// Reads belong to one goroutine at a time, writes to another; Interrupt and Close may come from anywhere.
type Conn struct {
	nc  net.Conn
	raw syscall.RawConn // nil where nc is not a socket

	readArmed   int64 // deadline in force, an instant; 0: none
	writeArmed  int64
	interrupted atomic.Bool
	aborted     atomic.Bool
	watch       watched

	// The arguments and results of readRaw, kept here so that a read needs no closure of its own.
	lend    func() []byte
	giveUp  func([]byte)
	got     []byte
	most    int // that one read may take; 0: what the buffer holds
	n       int
	errno   syscall.Errno
	send    []byte // to be written before the read
	sent    int
	short   bool // not all of it was written
	readRaw func(fd uintptr) bool
	peekRaw func(fd uintptr)
	nowRaw  func(fd uintptr)

	// Those of writeRaw, which belong to the writer.
	rest     []byte // not written yet
	patient  bool   // waits until the peer takes it
	writeErr syscall.Errno
	writeRaw func(fd uintptr) bool
}

// New wraps nc.
func New(nc net.Conn) *Conn {
	c := &Conn{nc: nc}
	if sc, ok := nc.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			c.raw = raw
		}
	}
	return c
}

// NetConn returns the connection underneath. Deadlines must not be set on it while c is in use.
func (c *Conn) NetConn() net.Conn { return c.nc }

// RemoteAddr is the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// LocalAddr is our own address.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// Read reads into p and gives up at until (the zero time: never).
func (c *Conn) Read(p []byte, until time.Time) (int, error) {
	for {
		if err := c.armRead(until); err != nil {
			return 0, err
		}
		n, err := c.nc.Read(p)
		if n > 0 || err == nil {
			return n, nil
		}
		if err = c.readFailed(err, until); err != nil {
			return 0, err
		}
	}
}

// ReadLent waits until the peer has sent something and only then borrows a buffer with lend to read it into; a buffer
// that stayed empty goes back through giveUp. It returns the buffer and how much of it was filled. Where the connection
// is not a socket, the buffer is held while waiting.
func (c *Conn) ReadLent(lend func() []byte, giveUp func([]byte), until time.Time) ([]byte, int, error) {
	if c.raw == nil {
		p := lend()
		n, err := c.Read(c.upTo(p), until)
		if n == 0 {
			giveUp(p)
			p = nil
		}
		return p, n, err
	}
	if c.readRaw == nil {
		c.readRaw = c.tryRead
	}
	c.lend, c.giveUp = lend, giveUp
	for {
		if err := c.armRead(until); err != nil {
			return nil, 0, err
		}
		c.n, c.errno = 0, 0
		err := c.raw.Read(c.readRaw)
		p := c.got
		c.got = nil
		switch {
		case err == nil && c.short:
			return nil, 0, nil // Ask goes on
		case err == nil && c.errno == 0 && c.n > 0:
			return p, c.n, nil
		case err == nil && c.errno == 0:
			err = io.EOF
		case err == nil:
			err = os.NewSyscallError("read", c.errno)
		}
		if err = c.readFailed(err, until); err != nil {
			return nil, 0, err
		}
	}
}

// Ask writes p and reads what comes back, like Write followed by ReadLent. It is for connections on which nothing can come
// before p was sent, and saves the read that would find that out. sent is how much of p was written.
func (c *Conn) Ask(
	p []byte, stall time.Duration, lend func() []byte, giveUp func([]byte), until time.Time,
) (sent int, b []byte, n int, err error) {
	if c.raw != nil {
		c.send, c.sent, c.short = p, 0, false
		b, n, err = c.ReadLent(lend, giveUp, until)
		sent, c.send = c.sent, nil
		if !c.short {
			return sent, b, n, err
		}
		c.short = false
	}
	rest, err := c.Write(p[sent:], stall)
	sent += rest
	if err != nil {
		return sent, nil, 0, err
	}
	b, n, err = c.ReadLent(lend, giveUp, until)
	return sent, b, n, err
}

// tryRead is one non-blocking read; false means that the socket has nothing yet. With something to send it writes first,
// and waits without a try: the poller was told to watch before the write, so an answer cannot be missed.
//
// Sockets do not block, so that their system calls need not tell the scheduler.
func (c *Conn) tryRead(fd uintptr) bool {
	if p := c.send; len(p) > 0 {
		c.send = nil
		if n, errno := writeNow(fd, p); errno == 0 {
			c.sent = n
		}
		c.short = c.sent < len(p)
		return c.short
	}
	p := c.lend()
	room := len(c.upTo(p))
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(room))
		switch {
		case errno == syscall.EINTR:
			continue
		case errno == syscall.EAGAIN:
			c.giveUp(p)
			return false
		case errno != 0:
			c.giveUp(p)
			c.errno = errno
		case n == 0:
			c.giveUp(p)
		default:
			c.got, c.n = p, int(n)
		}
		return true
	}
}

// upTo cuts a buffer down to what one read may take.
func (c *Conn) upTo(p []byte) []byte {
	if c.most > 0 && c.most < len(p) {
		return p[:c.most]
	}
	return p
}

// epoch is where instants are counted from: before any of them, to tell them from 0 and 1.
var epoch = time.Now().Add(-time.Hour)

// instant makes a time a number, by the monotonic clock: a deadline that is armed must not look earlier than another because the clock
// of the wall was set in between.
func instant(t time.Time) int64 { return int64(t.Sub(epoch)) }

// armRead sees to it that a deadline at or before until is in force.
func (c *Conn) armRead(until time.Time) error {
	if until.IsZero() {
		if c.readArmed != 0 {
			c.readArmed = 0
			if err := c.nc.SetReadDeadline(time.Time{}); err != nil {
				return err
			}
		}
	} else if want := instant(until); c.readArmed == 0 || c.readArmed > want {
		c.readArmed = want
		if err := c.nc.SetReadDeadline(until); err != nil {
			return err
		}
	}
	if c.interrupted.Load() {
		return ErrInterrupted
	}
	return nil
}

// readFailed tells a deadline that fired too early (nil: read again) from what ends the read.
func (c *Conn) readFailed(err error, until time.Time) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	c.readArmed = 0
	if c.interrupted.Load() {
		return ErrInterrupted
	}
	if !until.IsZero() && !time.Now().Before(until) {
		return ErrTimeout
	}
	if until.IsZero() {
		c.readArmed = 1 // so that armRead clears what is left of the deadline
	}
	return nil
}

// Write writes all of p and gives up when the peer takes nothing for as long as stall (0: never gives up).
func (c *Conn) Write(p []byte, stall time.Duration) (int, error) {
	done := 0
	for {
		var now time.Time
		if stall > 0 && c.writeArmed == 0 {
			now = time.Now()
			until := now.Add(stall)
			c.writeArmed = instant(until)
			if err := c.nc.SetWriteDeadline(until); err != nil {
				return done, err
			}
		}
		if c.aborted.Load() {
			return done, ErrInterrupted
		}
		n, err := c.write(p[done:], true)
		done += n
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return done, err
		}
		if c.aborted.Load() {
			return done, ErrInterrupted
		}
		armedFresh := !now.IsZero()
		c.writeArmed = 0
		if stall <= 0 { // the deadline of an earlier write
			if err := c.nc.SetWriteDeadline(time.Time{}); err != nil {
				return done, err
			}
		}
		if armedFresh && n == 0 {
			return done, ErrTimeout
		}
	}
}

// TryWrite writes what the peer takes at once, and reports how much that was: less than all is no error. On what is not a
// socket it writes nothing.
func (c *Conn) TryWrite(p []byte) (int, error) {
	switch {
	case c.raw == nil:
		return 0, nil
	case c.aborted.Load():
		return 0, ErrInterrupted
	}
	n, err := c.write(p, false)
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.aborted.Load() {
		err = nil // the deadline of an earlier write; the next Write sees to it
	}
	return n, err
}

// write writes p, all of it if patient. Like a read it does not tell the scheduler: a thread that takes over meanwhile
// costs more than the call, which does not block.
func (c *Conn) write(p []byte, patient bool) (int, error) {
	if c.raw == nil {
		return c.nc.Write(p)
	}
	if c.writeRaw == nil {
		c.writeRaw = c.tryWrite
	}
	c.rest, c.patient, c.writeErr = p, patient, 0
	err := c.raw.Write(c.writeRaw)
	n := len(p) - len(c.rest)
	c.rest = nil
	if err == nil && c.writeErr != 0 {
		err = os.NewSyscallError("write", c.writeErr)
	}
	return n, err
}

// tryWrite writes what the socket takes; false means that there is more, to be written when the socket has room.
func (c *Conn) tryWrite(fd uintptr) bool {
	for len(c.rest) > 0 {
		n, errno := writeNow(fd, c.rest)
		switch errno {
		case 0:
			c.rest = c.rest[n:]
		case syscall.EINTR:
		case syscall.EAGAIN:
			return !c.patient
		default:
			c.writeErr = errno
			return true
		}
	}
	return true
}

// writeNow is one system call.
func writeNow(fd uintptr, p []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return int(n), errno
}

// Interrupt ends a read in progress, and every later one until Resume, with ErrInterrupted.
func (c *Conn) Interrupt() {
	c.interrupted.Store(true)
	_ = c.nc.SetReadDeadline(past) // a connection that cannot take a deadline is closed already
}

// Abort ends reads and writes in progress and all later ones with ErrInterrupted. What is left is to close.
func (c *Conn) Abort() {
	c.aborted.Store(true)
	c.interrupted.Store(true)
	_ = c.nc.SetDeadline(past) // as above
}

// Aborted reports whether Abort was called.
func (c *Conn) Aborted() bool { return c.aborted.Load() }

// Resume allows reads again after Interrupt, but not after Abort. The caller must know that no Interrupt is on its way.
func (c *Conn) Resume() {
	if c.interrupted.Swap(false) {
		c.readArmed = 0
		_ = c.nc.SetReadDeadline(time.Time{})
	}
	if c.aborted.Load() {
		c.Interrupt()
	}
}

// Buffered reports what waits in the socket of an idle connection without taking it: false and nil when nothing does,
// true when bytes do, and io.EOF or another error when the peer has left. On other connections it knows nothing.
func (c *Conn) Buffered() (bool, error) {
	if c.raw == nil {
		return false, nil
	}
	if c.peekRaw == nil {
		c.peekRaw = c.peek
	}
	if err := c.raw.Control(c.peekRaw); err != nil {
		return false, err
	}
	switch {
	case c.errno == syscall.EAGAIN:
		return false, nil
	case c.errno != 0:
		return false, c.errno
	case c.n == 0:
		return false, io.EOF
	}
	return true, nil
}

// peek looks at one byte; the raw call needs no buffer on the heap and no conversion of the peer's address.
func (c *Conn) peek(fd uintptr) {
	var b [1]byte
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b)), 1,
			syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
		if errno != syscall.EINTR {
			c.n, c.errno = int(n), errno
			return
		}
	}
}

// CloseWrite sends FIN where the connection can, else closes.
func (c *Conn) CloseWrite() error {
	if hc, ok := c.nc.(interface{ CloseWrite() error }); ok {
		return hc.CloseWrite()
	}
	return c.nc.Close()
}

// Reset closes so that the peer sees a reset, not an orderly end.
func (c *Conn) Reset() {
	if tc, ok := c.nc.(*net.TCPConn); ok {
		_ = tc.SetLinger(0) // closing is what matters
	}
	_ = c.Close()
}

// Close closes the connection and ends its watch.
func (c *Conn) Close() error {
	c.watch.forget()
	return c.nc.Close()
}
