package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"
)

// patience is how long something that must happen may take: far more than it needs, for machines that are busy.
const patience = 20 * time.Second

// story is told line by line. What it claims is checked, and what did not happen is remembered.
type story struct {
	out    io.Writer
	colour bool
	start  time.Time
	claims int
	broken []string
	still  atomic.Int64 // longest time that the process was not let run, in nanoseconds
}

const indent = "        "

// act begins a chapter.
func (s *story) act(title string) {
	_, _ = fmt.Fprintf(s.out, "\n%s\n", s.paint("1", title))
}

// say tells what happens.
func (s *story) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, "%6.1fs %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

// quote shows a text as it is.
func (s *story) quote(text string) {
	for line := range strings.Lines(text) {
		_, _ = fmt.Fprintf(s.out, "%s  | %s\n", indent, strings.TrimRight(line, "\n"))
	}
}

// claim tells that something is so, and whether it is.
func (s *story) claim(is bool, format string, args ...any) {
	s.claims++
	text := fmt.Sprintf(format, args...)
	mark := s.paint("32", "ok  ")
	if !is {
		mark = s.paint("31", "FAIL")
		s.broken = append(s.broken, text)
	}
	_, _ = fmt.Fprintf(s.out, "%s%s %s\n", indent, mark, text)
}

func (s *story) paint(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// until waits until is says so, for some time at most, and returns what it said last.
func until(ctx context.Context, most time.Duration, is func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if is() {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return is()
		}
	}
}

// lasting lets traffic go on for a while.
func lasting(ctx context.Context, d time.Duration) {
	until(ctx, d, func() bool { return false })
}

// heartbeat notices when the machine gives this process no time at all, as a virtual machine that is paused does: what
// is measured meanwhile says nothing about the proxy.
func (s *story) heartbeat(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-tick.C:
			now := time.Now()
			s.still.Store(max(s.still.Load(), int64(now.Sub(last))))
			last = now
		case <-ctx.Done():
			return
		}
	}
}

// stood returns for how long the machine stood still, 0 when that is not worth a word.
func (s *story) stood() time.Duration {
	if d := time.Duration(s.still.Load()); d >= 500*time.Millisecond {
		return d
	}
	return 0
}

// short writes a duration for people.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < 100*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}
