package watch

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// maxBytes bounds what is read of one file; of a larger one the size and the time of the last change count as well.
const maxBytes = 64 << 20

// state is what the paths hold: comparable, and small.
type state struct {
	sum    [sha256.Size]byte
	broken bool // something was not there or could not be read
}

// memory is what files held when they were last read.
type memory map[string]seen

type seen struct {
	stamp Stamp
	sum   [sha256.Size]byte
}

// read looks at the paths, and reads the files that may have changed since known.
func read(paths []string, known memory, now time.Time) (state, memory) {
	d := digest{Hash: sha256.New(), known: known, read: make(memory, len(known)), now: now}
	for _, p := range paths {
		d.path(p)
	}
	s := state{broken: d.broken}
	d.Sum(s.sum[:0])
	return s, d.read
}

type digest struct {
	hash.Hash
	broken      bool
	known, read memory
	now         time.Time
}

func (d *digest) field(s string) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
	_, _ = d.Write(n[:]) // a hash never fails
	_, _ = io.WriteString(d, s)
}

func (d *digest) fail(err error) {
	d.broken = true
	if errors.Is(err, fs.ErrNotExist) {
		d.field("absent")
	} else {
		d.field("unreadable")
	}
}

func (d *digest) path(p string) {
	d.field(p)
	info, err := os.Stat(p)
	if err != nil {
		d.fail(err)
		return
	}
	if !info.IsDir() {
		d.file(p)
		return
	}
	entries, err := os.ReadDir(p) // sorted by name
	if err != nil {
		d.fail(err)
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue // hidden: an editor's, or the folders behind Kubernetes' links
		}
		full := filepath.Join(p, e.Name())
		info, err := os.Stat(full)
		if err == nil && !info.Mode().IsRegular() {
			continue
		}
		d.field(e.Name())
		if old := d.known[full]; err == nil && old.stamp.Same(StampOf(info, d.now)) {
			d.read[full] = old
			d.field(string(old.sum[:]))
			continue
		}
		d.file(full)
	}
}

func (d *digest) file(p string) {
	f, err := os.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not be waited for
	if err != nil {
		d.fail(err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		d.fail(err)
		return
	}
	content := sha256.New()
	n, err := io.Copy(content, io.LimitReader(f, maxBytes))
	if err != nil {
		d.fail(err)
		return
	}
	if n == maxBytes {
		d.field(info.ModTime().String())
		d.field(string(content.Sum(nil)))
		return
	}
	s := seen{stamp: StampOf(info, d.now)}
	content.Sum(s.sum[:0])
	d.field(string(s.sum[:]))
	d.read[p] = s
}
