package telemetry

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const movedEvery = time.Second // how often a file's name is looked at

// sink is where lines end. All but reopen and abort belongs to the writing goroutine.
type sink struct {
	to     string // as configured
	path   string // of a file
	w      io.Writer
	file   atomic.Pointer[os.File] // what w is, when it is ours to close
	reopen atomic.Bool
	looked time.Time
	torn   bool // the last write ended inside a line
}

func (l *accessLog) open(to string) (*sink, error) {
	s := &sink{to: to}
	switch {
	case to == "stdout" && l.stdout != nil:
		s.w = l.stdout
	case to == "stderr" && l.stderr != nil:
		s.w = l.stderr
	case to == "stdout":
		return s, s.dup(1)
	case to == "stderr":
		return s, s.dup(2)
	default:
		s.path = strings.TrimPrefix(to, "file:")
		return s, s.openFile()
	}
	return s, nil
}

// dup writes to a copy of fd: a broken pipe at descriptor 1 or 2 would end the process, at any other it is an error.
func (s *sink) dup(fd int) error {
	syscall.ForkLock.RLock()
	own, err := syscall.Dup(fd)
	if err == nil {
		syscall.CloseOnExec(own)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return fmt.Errorf("access log: %s: %w", s.to, err)
	}
	s.use(os.NewFile(uintptr(own), s.to))
	return nil
}

func (s *sink) use(f *os.File) {
	s.w = f
	if old := s.file.Swap(f); old != nil {
		_ = old.Close()
	}
}

// openFile opens the file by its name. Without O_NONBLOCK a pipe that nobody reads would hold us.
func (s *sink) openFile() error {
	f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, 0o640)
	if err != nil {
		return fmt.Errorf("access log: %w", err)
	}
	s.use(f)
	s.torn = false
	return nil
}

// write writes all of data and returns how much of it was written.
func (s *sink) write(data []byte) (int, error) {
	openErr := s.follow(time.Now())
	if s.torn { // do not glue the next line to the rest of one
		if _, err := s.w.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
		s.torn = false
	}
	n, err := s.w.Write(data)
	if n > 0 {
		s.torn = data[n-1] != '\n'
	}
	if err != nil {
		return n, err
	}
	return n, openErr
}

// follow opens the file again when that was asked for or the name no longer leads to the open file. When it cannot be
// opened the old one stays in use.
func (s *sink) follow(now time.Time) error {
	if s.path == "" {
		return nil
	}
	if s.reopen.Swap(false) {
		return s.openFile()
	}
	if now.Sub(s.looked) < movedEvery && now.After(s.looked) {
		return nil
	}
	s.looked = now
	named, err := os.Stat(s.path)
	if err == nil {
		open, err := s.file.Load().Stat()
		if err == nil && os.SameFile(named, open) {
			return nil
		}
	}
	return s.openFile()
}

// abort ends a write under way where the system can.
func (s *sink) abort() {
	if f := s.file.Load(); f != nil {
		_ = f.SetWriteDeadline(time.Unix(1, 0))
	}
}

func (s *sink) close() {
	if f := s.file.Swap(nil); f != nil {
		_ = f.Close()
	}
}
