// Package file is a discovery source that reads endpoints from a file or a folder of files, in the configuration's own
// form (service: list of endpoints) or in Prometheus' file_sd form, as YAML or JSON.
//
// It owns what the files last said, per file: a bad one keeps what it said when it was good, and disturbs no service of
// another. It reads files whose stamp is new, and answers anew for the services that they name. It does not watch: the function that does is handed in. Tests: tables of good and bad files, a scripted watch,
// and a fuzz test of the parser.
package file

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
	"github.com/sidecar-mesh/sidecar/discovery/watch"
)

// Bounds of what is read.
const (
	maxFile      = 16 << 20 // bytes of one file
	maxFiles     = 1000     // files of a folder
	maxEndpoints = 200_000  // endpoints of one file
	maxLabels    = 64       // labels of one endpoint
	maxText      = 1024     // bytes of one name or value
	maxErrors    = 20       // mistakes told of one file
)

// Watch takes note of the content of a path and returns what runs until ctx is done, calling changed each time the
// content differs from before. A nil Watch reads the files once.
type Watch func(path string) (run func(ctx context.Context, changed func()) error)

// Source is the discovery.Source of a file registry.
type Source struct {
	// Set by New, then read-only.
	path    string
	watcher Watch

	// Owned by Run.
	files map[string]*content
	said
	aside error // told of what concerns no service that is wanted
}

// said is what the files say together.
type said struct {
	err       error                 // the path as a whole cannot be read
	bad       error                 // of the first file that cannot be understood
	where     map[string][]*content // the files that name a service, in their order
	conflicts map[string]error      // services that two files give
}

// same reports whether there is nothing new about a service.
func (s *said) same(before *said, service string) bool {
	at := s.where[service]
	if s.err != nil || before.err != nil || s.conflicts[service] != nil || before.conflicts[service] != nil ||
		len(at) == 0 && (s.bad != nil || before.bad != nil) {
		return false
	}
	return slices.Equal(at, before.where[service])
}

// content is one file.
type content struct {
	stamp    watch.Stamp
	sum      [sha256.Size]byte
	services map[string][]*config.Endpoint // what it said when it was last good
	lines    map[string]int                // where a service stands; empty for file_sd, whose groups add up
	err      error                         // nil: services is what it says now
}

// New makes the source of a registry, without touching the files.
func New(reg *config.Registry, watcher Watch) (*Source, error) {
	if reg.File == nil || reg.File.Path == "" {
		return nil, errors.New("not a file registry")
	}
	return &Source{path: reg.File.Path, watcher: watcher, files: make(map[string]*content)}, nil
}

// Run implements discovery.Source. Every wanted service gets an answer when the files were read, and again whenever they
// change: empty when no file names it, an error when the file that names it (or might) is bad.
func (s *Source) Run(ctx context.Context, want <-chan []string, report func(discovery.Update)) error {
	ctx, cancel := context.WithCancel(ctx)
	changed := make(chan struct{}, 1)
	ended := make(chan error, 1)
	if s.watcher != nil {
		run := s.watcher(s.path) // before the files are read: no change goes unseen
		go func() {
			ended <- run(ctx, func() {
				select {
				case changed <- struct{}{}:
				default:
				}
			})
		}()
		defer func() { cancel(); <-ended }()
	}
	defer cancel()
	s.read(time.Now(), true)
	var wanted []string
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			ended <- err
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watching %s: %w", s.path, err)
		case names := <-want:
			for _, name := range names {
				if _, old := slices.BinarySearch(wanted, name); !old {
					report(s.answer(name))
				}
			}
			wanted = names
			s.besides(wanted, report)
		case <-changed:
			before := s.said
			if !s.read(time.Now(), false) {
				s.read(time.Now(), true) // something has changed, and no stamp tells what
			}
			for _, name := range wanted {
				if !s.same(&before, name) {
					report(s.answer(name))
				}
			}
			s.besides(wanted, report)
		}
	}
}

// besides tells of a file that cannot be understood, where no service that is wanted has it in its answer.
func (s *Source) besides(wanted []string, report func(discovery.Update)) {
	err := s.bad
	for i := 0; err != nil && i < len(wanted); i++ {
		if s.answer(wanted[i]).Err == s.bad { //nolint:errorlint // the very same is meant
			err = nil
		}
	}
	if (err == nil) != (s.aside == nil) || err != nil && err.Error() != s.aside.Error() {
		report(discovery.Update{Err: err})
	}
	s.aside = err
}

// answer says what the files have about a service.
func (s *Source) answer(service string) discovery.Update {
	u := discovery.Update{Service: service, Endpoints: []*config.Endpoint{}}
	if u.Err = s.err; u.Err == nil {
		u.Err = s.conflicts[service]
	}
	if u.Err != nil {
		return u
	}
	for _, c := range s.where[service] {
		if c.err != nil {
			u.Err = c.err
			return u
		}
		u.Endpoints = append(u.Endpoints, c.services[service]...)
	}
	if len(s.where[service]) == 0 {
		u.Err = s.bad // it may stand in the file that cannot be understood
	}
	return u
}

// read looks at all files again, reads those that may have changed (whole: all), and reports whether anything has.
func (s *Source) read(now time.Time, whole bool) (changed bool) {
	paths, err := list(s.path)
	if err != nil {
		s.err = err
		return true
	}
	files := make(map[string]*content, len(paths))
	next := said{where: make(map[string][]*content, len(s.where)), conflicts: make(map[string]error)}
	type place struct {
		path string
		line int
	}
	first := make(map[string]place, len(s.where))
	for _, p := range paths {
		c := s.readFile(p, now, whole)
		files[p] = c
		if c.err != nil && next.bad == nil {
			next.bad = c.err
		}
		for service := range c.services {
			next.where[service] = append(next.where[service], c)
		}
		for service, line := range c.lines {
			if at, dup := first[service]; dup {
				next.conflicts[service] = fmt.Errorf("%s:%d: %s stands already at %s:%d", p, line, service, at.path, at.line)
			} else {
				first[service] = place{p, line}
			}
		}
	}
	changed = s.err != nil || !maps.Equal(files, s.files)
	s.files, s.said = files, next
	return changed
}

// list gives the files of a path, sorted: itself, or those of the folder that are named like YAML or JSON and not hidden.
func list(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		switch filepath.Ext(name) {
		case ".yaml", ".yml", ".json":
			paths = append(paths, filepath.Join(path, name))
		}
	}
	if len(paths) > maxFiles {
		return nil, fmt.Errorf("%s: %d files, at most %d are read", path, len(paths), maxFiles)
	}
	return paths, nil
}

// readFile reads one file if it may have changed (whole: in any case), falling back to what it said before.
func (s *Source) readFile(path string, now time.Time, whole bool) *content {
	old := s.files[path]
	var stamp watch.Stamp
	if info, err := os.Stat(path); err == nil {
		stamp = watch.StampOf(info, now)
	}
	if !whole && old != nil && old.err == nil && old.stamp.Same(stamp) {
		return old
	}
	data, err := slurp(path)
	if err != nil {
		return old.failed(err)
	}
	sum := sha256.Sum256(data)
	if old != nil && old.err == nil && old.sum == sum {
		old.stamp = stamp
		return old
	}
	p, err := parse(path, data)
	if err != nil {
		return old.failed(err)
	}
	return &content{stamp: stamp, sum: sum, services: p.services, lines: p.lines}
}

// failed is the file with what it said before (nothing, for a nil one) and why that is not news.
func (c *content) failed(err error) *content {
	if c == nil {
		return &content{err: err}
	}
	return &content{services: c.services, lines: c.lines, err: err}
}

func slurp(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not be waited for
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: more than %d MiB", path, maxFile>>20)
	}
	return data, nil
}
