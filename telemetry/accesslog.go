package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// AccessLog says where lines go and how they look.
type AccessLog struct {
	To     string // stdout, stderr, file:PATH; "" or none: nowhere
	Format string // json, text, none; "": json
	Buffer int    // bytes that may wait for a slow sink; 0: 1 MiB
}

const (
	defaultBuffer = 1 << 20
	flushBytes    = 64 << 10
	flushEvery    = 100 * time.Millisecond
	keepBuffer    = 128 << 10 // capacity that a buffer may keep without need
	burstOver     = 20        // writes that would have fitted in less until a large buffer is given up
	idleAfter     = 10 * time.Second
	lineRoom      = 1 << 10 // first capacity of a line
)

// accessLog takes lines from any goroutine into a buffer that one goroutine writes. The buffer is bounded: what a slow
// sink leaves no room for is dropped and counted.
type accessLog struct {
	stdout, stderr io.Writer       // nil: those of the process
	failed         func(err error) // told of each failure, by run

	lines, dropped, errors atomic.Uint64

	target atomic.Pointer[target] // nil: no log
	pool   sync.Pool              // of *[]byte: lines being formatted

	wake chan struct{} // something waits
	full chan struct{} // enough waits that it should not wait longer
	quit chan struct{} // closed by close
	done chan struct{} // closed by run; nil: run was never started

	roomy int // of run: writes in a row that left most of a large buffer empty

	writing atomic.Pointer[sink] // what run wrote to last
	givenUp atomic.Bool          // close did not want to wait longer: drop the rest

	change sync.Mutex // held while the target changes

	mu      sync.Mutex
	pending []byte  // of the current target
	count   uint64  // lines in pending
	queue   []chunk // what earlier targets still have to write
	queued  int     // bytes in queue
	closed  bool
}

// target is one destination with one format.
type target struct {
	sink   *sink
	text   bool
	buffer int
}

// chunk is what waits for one sink.
type chunk struct {
	sink  *sink
	data  []byte
	count uint64
	last  bool // the sink gets nothing after it
}

func (c AccessLog) on() bool {
	return c.To != "" && c.To != "none" && c.Format != "none"
}

func (c AccessLog) check() error {
	switch {
	case !strings.Contains(" json text none ", " "+c.Format+" ") && c.Format != "":
		return fmt.Errorf("access log: format %q: expected json, text or none", c.Format)
	case c.on() && c.To != "stdout" && c.To != "stderr" && (!strings.HasPrefix(c.To, "file:") || c.To == "file:"):
		return fmt.Errorf("access log: to %q: expected stdout, stderr, file:PATH or none", c.To)
	}
	return nil
}

// SetAccessLog changes destination and format of the access log. Lines that wait are still written where they were
// meant to go. On an error nothing changes.
func (r *Recorder) SetAccessLog(c AccessLog) error {
	if err := c.check(); err != nil {
		return err
	}
	return r.log.set(c)
}

// Reopen opens the file of the access log again before the next line, as after a rotation.
func (r *Recorder) Reopen() {
	if t := r.log.target.Load(); t != nil {
		t.sink.reopen.Store(true)
	}
}

func (l *accessLog) set(c AccessLog) error {
	l.change.Lock()
	defer l.change.Unlock()
	old := l.target.Load()
	var next *target
	if c.on() {
		next = &target{text: c.Format == "text", buffer: c.Buffer}
		if next.buffer <= 0 {
			next.buffer = defaultBuffer
		}
		if old != nil && old.sink.to == c.To {
			next.sink = old.sink
		} else {
			s, err := l.open(c.To)
			if err != nil {
				return err
			}
			next.sink = s
		}
	}
	if !l.swap(old, next) {
		if next != nil {
			next.sink.close()
		}
		return errors.New("access log: closed")
	}
	return nil
}

// swap puts next into force and queues what waits for old. It reports false after close.
func (l *accessLog) swap(old, next *target) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if next != nil && l.done == nil {
		l.start()
	}
	l.target.Store(next)
	if old != nil && (next == nil || next.sink != old.sink) {
		l.queue = append(l.queue, chunk{sink: old.sink, data: l.pending, count: l.count, last: true})
		l.queued += len(l.pending)
		l.pending, l.count = nil, 0
		signal(l.wake)
	}
	return true
}

func (l *accessLog) start() {
	l.wake, l.full = make(chan struct{}, 1), make(chan struct{}, 1)
	l.quit, l.done = make(chan struct{}), make(chan struct{})
	go l.run()
}

// signal wakes who waits for c; one pending signal is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// record formats o and puts the line into the buffer.
func (l *accessLog) record(o *Outcome) {
	t := l.target.Load()
	if t == nil {
		return
	}
	p, _ := l.pool.Get().(*[]byte)
	if p == nil {
		p = new(make([]byte, 0, lineRoom))
	}
	for t != nil {
		line := appendLine((*p)[:0], o, t.text)
		*p = line
		if l.put(t, line) {
			break
		}
		t = l.target.Load() // the format or the destination changed meanwhile
	}
	l.pool.Put(p)
}

// put adds a line that was formatted for t. It reports false when t is no longer in force.
func (l *accessLog) put(t *target, line []byte) bool {
	l.mu.Lock()
	if l.target.Load() != t {
		l.mu.Unlock()
		return false
	}
	before := len(l.pending)
	if l.queued+before+len(line) > t.buffer {
		l.mu.Unlock()
		l.dropped.Add(1)
		return true
	}
	l.pending = append(l.pending, line...)
	l.count++
	after := len(l.pending)
	l.mu.Unlock()
	if before == 0 {
		signal(l.wake)
	}
	if before < flushBytes && after >= flushBytes {
		signal(l.full)
	}
	return true
}

// run writes what waits: a moment after the first line, at once when there is much. It sleeps while nothing comes, and
// after a while gives up the buffers.
func (l *accessLog) run() {
	defer close(l.done)
	pause := time.NewTimer(idleAfter)
	defer pause.Stop()
	var spare []byte
	for {
		select {
		case <-l.wake:
		case <-pause.C:
			spare = nil
			l.trim()
			continue
		case <-l.quit:
			l.flush(spare)
			return
		}
		pause.Reset(flushEvery)
		select {
		case <-pause.C:
		case <-l.full:
		case <-l.quit:
		}
		spare = l.flush(spare)
		pause.Reset(idleAfter)
	}
}

// trim frees the buffer when nothing waits in it.
func (l *accessLog) trim() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		l.pending = nil
	}
}

// flush writes all that waits and leaves spare as the new buffer; it returns what may be the next spare one.
func (l *accessLog) flush(spare []byte) []byte {
	l.mu.Lock()
	queue, data, count := l.queue, l.pending, l.count
	l.queue, l.pending, l.count = nil, spare[:0], 0
	t := l.target.Load()  // set while anything is pending
	l.queued += len(data) // it still takes memory
	l.mu.Unlock()
	for _, c := range queue {
		l.write(c)
	}
	if len(data) > 0 {
		l.write(chunk{sink: t.sink, data: data, count: count})
	}
	if cap(data) <= keepBuffer || len(data) > cap(data)/4 {
		l.roomy = 0
	} else if l.roomy++; l.roomy > burstOver {
		return nil
	}
	return data
}

// write gives one chunk to its sink and counts.
func (l *accessLog) write(c chunk) {
	if len(c.data) > 0 {
		var n int
		err := errGivenUp
		if !l.givenUp.Load() {
			l.writing.Store(c.sink)
			n, err = c.sink.write(c.data)
		}
		whole := c.count
		if n < len(c.data) {
			whole = uint64(bytes.Count(c.data[:n], []byte{'\n'}))
		}
		l.lines.Add(whole)
		l.dropped.Add(c.count - whole)
		if err != nil {
			l.errors.Add(1)
		}
		if err != nil && !errors.Is(err, errGivenUp) {
			l.failed(err)
		}
	}
	l.mu.Lock()
	l.queued -= len(c.data)
	l.mu.Unlock()
	if c.last {
		c.sink.close()
	}
}

var errGivenUp = errors.New("access log: closed before all was written")

// close stops taking lines and waits until all are written or ctx is over.
func (l *accessLog) close(ctx context.Context) error {
	l.change.Lock()
	defer l.change.Unlock()
	l.swap(l.target.Load(), nil)
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	if l.done == nil {
		return nil
	}
	if first {
		close(l.quit)
	}
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		l.givenUp.Store(true)
		if s := l.writing.Load(); s != nil {
			s.abort()
		}
		return fmt.Errorf("access log: not all was written: %w", context.Cause(ctx))
	}
}
