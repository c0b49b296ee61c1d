// Package disk keeps the endpoints of services and the documents of the config centre on disk, so that a restart has them
// before any registry answers (S-21, S-22). It owns one file for each service of each registry, and one for each prefix of
// documents, in one folder: written beside, synced and renamed, so that a reader sees the old content or the new one; with a
// version and a checksum; and not more often than MinGap, however often it changes. Tests: round trips, damaged and foreign files, folders that cannot be written, and a fuzz test of the decoder.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

const (
	// MinGap is the least time between two writes of one file.
	MinGap = 5 * time.Second
	// maxFile is the largest file that is read: 200 000 endpoints of some 300 bytes.
	maxFile = 64 << 20
)

// Options is what a Store needs.
type Options struct {
	// Dir is made when the first list is kept. Empty: nothing is kept.
	Dir string
	// Scope is what must be equal for lists to be of use to a later run: the environment and tenant of the node.
	Scope string
	// Failed is told of each failure to write; Well of the first write after one. They may be called from any goroutine.
	Failed func(error)
	Well   func()
	// MinGap is MinGap if 0.
	MinGap time.Duration
}

// Store is a discovery.Memory. Make it with New, run it with Run, once.
type Store struct {
	o    Options
	wake chan struct{}

	mu      sync.Mutex
	pending map[string]file // by path; what is not written yet
	written map[string]time.Time
	failing bool
}

// file is what one file is to say.
type file interface {
	// named is what it is of, for people.
	named() string
	// empty says that there is nothing to keep: the file goes.
	empty() bool
	encode(now time.Time) []byte
}

// content is a list of endpoints.
type content struct {
	registry, service, scope string
	list                     []*config.Endpoint // immutable
}

// New returns a store that reads and takes notes; Run writes them.
func New(o Options) *Store {
	if o.MinGap <= 0 {
		o.MinGap = MinGap
	}
	return &Store{o: o, wake: make(chan struct{}, 1), pending: make(map[string]file), written: make(map[string]time.Time)}
}

// Load implements discovery.Memory.
func (s *Store) Load(registry *config.Registry, service string) ([]*config.Endpoint, time.Time, error) {
	if s.o.Dir == "" {
		return nil, time.Time{}, nil
	}
	c := s.content(registry, service, nil)
	path := s.path(&c)
	data, err := read(path)
	if err != nil || data == nil {
		return nil, time.Time{}, err
	}
	list, saved, err := decode(data, &c)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("%s: %w: ignored", path, err)
	}
	return list, saved, nil
}

// read returns a whole file; nil without an error where there is none.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s: larger than %d bytes: ignored", path, maxFile)
	}
	return data, err
}

// Save implements discovery.Memory.
func (s *Store) Save(registry *config.Registry, service string, list []*config.Endpoint) {
	if s.o.Dir == "" {
		return
	}
	c := s.content(registry, service, list)
	s.note(s.path(&c), &c)
}

// note has a file written when its time has come.
func (s *Store) note(path string, f file) {
	s.mu.Lock()
	s.pending[path] = f
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Flush writes what is left, at the end.
func (s *Store) Flush() { s.write(time.Now(), true) }

// Run writes until ctx is done.
func (s *Store) Run(ctx context.Context) error {
	s.sweep(time.Now())
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-timer.C:
		}
		timer.Reset(s.write(time.Now(), false))
	}
}

// unfinished is the pattern of names that files have until they are whole.
const unfinished = ".*" + suffix

// abandoned is the age from which on an unfinished file is nobody's: a process was killed that wrote it.
const abandoned = time.Minute

// sweep removes abandoned files.
func (s *Store) sweep(now time.Time) {
	if s.o.Dir == "" {
		return
	}
	names, _ := filepath.Glob(filepath.Join(s.o.Dir, unfinished)) // the pattern is well formed, unless the folder's name is not
	for _, name := range names {
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() && now.Sub(info.ModTime()) > abandoned {
			_ = os.Remove(name) // no harm is done where it stays
		}
	}
}

// write writes what is due, or all, and returns in how long something is.
func (s *Store) write(now time.Time, all bool) time.Duration {
	next := time.Hour
	for path, c := range s.due(now, all, &next) {
		if err := save(path, c, now); err != nil {
			s.told(fmt.Errorf("keeping the %s: %w", c.named(), err))
			s.mu.Lock()
			if _, newer := s.pending[path]; !newer {
				s.pending[path] = c // tried again with the next gap
			}
			s.mu.Unlock()
			next = min(next, s.o.MinGap)
		} else {
			s.told(nil)
		}
	}
	return next
}

// due takes what may be written now, and says in how long the rest may.
func (s *Store) due(now time.Time, all bool, next *time.Duration) map[string]file {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := make(map[string]file)
	for path, c := range s.pending {
		if wait := s.o.MinGap - now.Sub(s.written[path]); wait > 0 && !all {
			*next = min(*next, wait)
			continue
		}
		due[path] = c
		s.written[path] = now
		delete(s.pending, path)
	}
	return due
}

// told tells of failures, and of the first success after one.
func (s *Store) told(err error) {
	s.mu.Lock()
	was := s.failing
	s.failing = err != nil
	s.mu.Unlock()
	switch {
	case err != nil && s.o.Failed != nil:
		s.o.Failed(err)
	case err == nil && was && s.o.Well != nil:
		s.o.Well()
	}
}

// save puts a file in place, whole or not at all; one of nothing is removed.
func save(path string, c file, now time.Time) (err error) {
	dir := filepath.Dir(path)
	if c.empty() {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, unfinished)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(c.encode(now))
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(dir)
}

// syncFolder makes a rename last.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
