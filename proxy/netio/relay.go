package netio

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	copyBuffer = 32 << 10
	// spliceWait is how long a kernel copy may sit without a byte before its pipe is given back.
	spliceWait = 200 * time.Millisecond
	// spliceFrom is how much must be left, at least, for the kernel's copy to be worth its pipe.
	spliceFrom = 64 << 10
)

// The pool holds pointers to arrays so that putting one back allocates nothing.
var copyBuffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// Activity is shared by the two directions of a stream: when the last byte moved in either, and how long it may be idle. It goes by
// the monotonic clock: that of the wall may be set while a stream is idle, and must not end it.
type Activity struct {
	began time.Time    // set by Start
	last  atomic.Int64 // nanoseconds since began
	bound atomic.Int64 // nanoseconds

	// Report, where it is set, is called about every Every while bytes are copied or waited for, by one goroutine at a time.
	Report   func()
	Every    time.Duration
	reported atomic.Int64 // nanoseconds since began
}

// Start begins a stream that may be idle for as long as bound.
func (a *Activity) Start(now time.Time, bound time.Duration) {
	a.began = now
	a.last.Store(0)
	a.bound.Store(int64(bound))
	a.reported.Store(0)
}

// Touch says that a byte moved at now.
func (a *Activity) Touch(now time.Time) {
	a.last.Store(int64(now.Sub(a.began)))
	a.tick(now)
}

// tick reports where that is due.
func (a *Activity) tick(now time.Time) {
	if a.Report == nil {
		return
	}
	was, at := a.reported.Load(), int64(now.Sub(a.began))
	if at-was >= int64(a.Every) && a.reported.CompareAndSwap(was, at) {
		a.Report()
	}
}

// Bound is how long the stream may be idle.
func (a *Activity) Bound() time.Duration { return time.Duration(a.bound.Load()) }

// Lower lowers the bound to d.
func (a *Activity) Lower(d time.Duration) { a.bound.Store(min(a.bound.Load(), int64(d))) }

// Over is when the stream will have been idle for too long.
func (a *Activity) Over() time.Time {
	return a.began.Add(time.Duration(a.last.Load() + a.bound.Load()))
}

// Copy moves up to limit bytes from src to dst: through a buffer while little comes, by the kernel (splice) while much
// does and both ends are plain sockets. It returns io.EOF when src ended before the limit and ErrTimeout when no byte
// moved in either direction of the stream for as long as act's bound. count grows while it goes on. The error of a write is a *WriteError.
func Copy(dst, src *Conn, limit int64, act *Activity, count *atomic.Int64) (int64, error) {
	var moved int64
	for moved < limit {
		n, err := copySome(dst, src, limit-moved, act)
		moved += n
		count.Add(n)
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// copySome is one step of a copy.
func copySome(dst, src *Conn, limit int64, act *Activity) (int64, error) {
	n, err := copyOnce(dst, src, limit, act)
	moved := int64(n)
	if err == nil && n == copyBuffer && limit-moved >= spliceFrom {
		var more int64
		more, err = spliceSome(dst, src, limit-moved, act)
		moved += more
	}
	return moved, err
}

// WriteError is an error of the writing side of a copy.
type WriteError struct{ Err error }

// Error returns the text of the cause.
func (e *WriteError) Error() string { return "write: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *WriteError) Unwrap() error { return e.Err }

// copyOnce waits for bytes and passes them on.
func copyOnce(dst, src *Conn, limit int64, act *Activity) (int, error) {
	src.most = int(min(limit, copyBuffer)) // what follows is the next message's
	p, n, err := readIdle(src, act)
	src.most = 0
	if err != nil {
		return 0, err
	}
	defer copyBuffers.Put((*[copyBuffer]byte)(p[:copyBuffer]))
	done, err := dst.Write(p[:n], act.Bound())
	act.Touch(time.Now())
	if err != nil {
		return done, &WriteError{err}
	}
	return n, nil
}

// reassess is how often a waiting read looks again at its bound, which the other direction may have moved or lowered.
const reassess = 10 * time.Second

func readIdle(src *Conn, act *Activity) ([]byte, int, error) {
	for {
		now, over := time.Now(), act.Over()
		if !now.Before(over) {
			return nil, 0, ErrTimeout
		}
		act.tick(now)
		if next := now.Add(reassess); next.Before(over) {
			over = next
		}
		p, n, err := src.ReadLent(lendCopyBuffer, returnCopyBuffer, over)
		if !errors.Is(err, ErrTimeout) {
			return p, n, err
		}
	}
}

func lendCopyBuffer() []byte    { return copyBuffers.Get().(*[copyBuffer]byte)[:] }
func returnCopyBuffer(p []byte) { copyBuffers.Put((*[copyBuffer]byte)(p[:copyBuffer])) }

// spliceSome lets the kernel move bytes until src pauses. It moves nothing where the two ends are not plain sockets.
func spliceSome(dst, src *Conn, limit int64, act *Activity) (int64, error) {
	to, ok := dst.nc.(*net.TCPConn)
	if !ok {
		return 0, nil
	}
	switch src.nc.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return 0, nil
	}
	now, idle := time.Now(), act.Bound()
	src.readArmed = instant(now.Add(spliceWait))
	dst.writeArmed = instant(now.Add(idle))
	if err := errors.Join(src.nc.SetReadDeadline(now.Add(spliceWait)), to.SetWriteDeadline(now.Add(idle))); err != nil {
		return 0, err
	}
	if src.interrupted.Load() {
		return 0, ErrInterrupted
	}
	n, err := to.ReadFrom(&io.LimitedReader{R: src.nc, N: min(limit, 64<<20)})
	if n > 0 {
		act.Touch(time.Now())
	}
	src.readArmed, dst.writeArmed = 1, 0
	switch {
	case err == nil && n == 0:
		return 0, io.EOF
	case err == nil:
		return n, nil
	case !errors.Is(err, os.ErrDeadlineExceeded):
		if dst.dead() { // ReadFrom does not say which end failed
			err = &WriteError{err}
		}
		return n, err
	case src.interrupted.Load():
		return n, ErrInterrupted
	case time.Since(now) >= idle:
		return n, ErrTimeout
	}
	return n, nil // src pauses
}

// Ended says how a relay ended.
type Ended struct {
	AToB, BToA int64 // bytes
	Err        error // nil: both sides ended in order; ErrTimeout: idle; else the first failure
	AtB        bool  // it is b that failed
}

// halfClosedIdle bounds the silence of a stream whose one side has ended: below the 60 s after which common firewalls
// and connection tracking forget such a stream.
const halfClosedIdle = 50 * time.Second

// Flow counts the bytes of a relay while it runs.
type Flow struct{ AToB, BToA atomic.Int64 }

// Relay moves bytes both ways between a and b until both have ended, one has failed, or no byte has moved for as long as
// act's bound. An end of one side is passed on to the other as a FIN, a failure as a reset. Both are closed on return.
func Relay(a, b *Conn, act *Activity, flow *Flow) Ended {
	var e Ended
	var once sync.Once
	oneWay := func(dst, src *Conn, moved *atomic.Int64) int64 {
		n, err := Copy(dst, src, 1<<62, act, moved)
		if errors.Is(err, io.EOF) {
			act.Lower(halfClosedIdle)
			_ = dst.CloseWrite() // the other direction finds out if it cannot be told
			return n
		}
		once.Do(func() {
			at := src
			if w := (*WriteError)(nil); errors.As(err, &w) {
				at = dst
			}
			e.Err, e.AtB = err, at == b
		})
		a.Abort()
		b.Abort()
		return n
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.BToA = oneWay(a, b, &flow.BToA)
	}()
	e.AToB = oneWay(b, a, &flow.AToB)
	<-done
	if e.Err != nil && !errors.Is(e.Err, ErrTimeout) {
		a.Reset()
		b.Reset()
		return e
	}
	_ = a.Close()
	_ = b.Close()
	return e
}
