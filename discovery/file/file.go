// Package file is a discovery source that reads endpoints from a file or a folder of files, in the configuration's own
// form (service: list of endpoints) or in Prometheus' file_sd form, as YAML or JSON.
//
// It owns what the files last said, per file: a bad one keeps what it said when it was good, and disturbs no service of
// another. It does not watch: the function that does is handed in. Tests: tables of good and bad files, a scripted watch,
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

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
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
	path  string
	watch Watch

	// Owned by Run.
	files     map[string]*content
	err       error            // the path as a whole cannot be read
	conflicts map[string]error // services that two files give
}

// content is one file.
type content struct {
	sum      [sha256.Size]byte
	services map[string][]*config.Endpoint // what it said when it was last good
	lines    map[string]int                // where a service stands; empty for file_sd, whose groups add up
	err      error                         // nil: services is what it says now
}

// New makes the source of a registry, without touching the files.
func New(reg *config.Registry, watch Watch) (*Source, error) {
	if reg.File == nil || reg.File.Path == "" {
		return nil, errors.New("not a file registry")
	}
	return &Source{path: reg.File.Path, watch: watch, files: make(map[string]*content)}, nil
}

// Run implements discovery.Source. Every wanted service gets an answer when the files were read, and again whenever they
// change: empty when no file names it, an error when the file that names it (or might) is bad.
func (s *Source) Run(ctx context.Context, want <-chan []string, report func(discovery.Update)) error {
	ctx, cancel := context.WithCancel(ctx)
	changed := make(chan struct{}, 1)
	ended := make(chan error, 1)
	if s.watch != nil {
		run := s.watch(s.path) // before the files are read: no change goes unseen
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
	s.read()
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
		case <-changed:
			s.read()
			for _, name := range wanted {
				report(s.answer(name))
			}
		}
	}
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
	found := false
	var bad error
	for _, path := range slices.Sorted(maps.Keys(s.files)) {
		c := s.files[path]
		list, ok := c.services[service]
		if ok && c.err != nil {
			u.Err = c.err
			return u
		}
		if c.err != nil && bad == nil {
			bad = c.err
		}
		found = found || ok
		u.Endpoints = append(u.Endpoints, list...)
	}
	if !found {
		u.Err = bad // it may stand in the file that cannot be understood
	}
	return u
}

// read looks at all files again.
func (s *Source) read() {
	var paths []string
	paths, s.err = list(s.path)
	if s.err != nil {
		return
	}
	files := make(map[string]*content, len(paths))
	for _, p := range paths {
		files[p] = s.readFile(p)
	}
	s.files = files
	s.conflicts = make(map[string]error)
	first := make(map[string]string)
	for _, p := range paths {
		for service, line := range files[p].lines {
			if at, dup := first[service]; dup {
				s.conflicts[service] = fmt.Errorf("%s:%d: %s stands already at %s", p, line, service, at)
			} else {
				first[service] = fmt.Sprintf("%s:%d", p, line)
			}
		}
	}
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

// readFile reads one file, falling back to what it said before.
func (s *Source) readFile(path string) *content {
	old := s.files[path]
	data, err := slurp(path)
	if err != nil {
		return old.failed(err)
	}
	sum := sha256.Sum256(data)
	if old != nil && old.err == nil && old.sum == sum {
		return old
	}
	p, err := parse(path, data)
	if err != nil {
		return old.failed(err)
	}
	return &content{sum: sum, services: p.services, lines: p.lines}
}

// failed is the file with what it said before (nothing, for a nil one) and why that is not news.
func (c *content) failed(err error) *content {
	if c == nil {
		return &content{err: err}
	}
	return &content{services: c.services, lines: c.lines, err: err}
}

func slurp(path string) ([]byte, error) {
	f, err := os.Open(path)
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
