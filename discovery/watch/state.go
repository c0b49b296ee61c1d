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
)

// maxBytes bounds what is read of one file; of a larger one the size and the time of the last change count as well.
const maxBytes = 64 << 20

// state is what the paths hold: comparable, and small.
type state struct {
	sum    [sha256.Size]byte
	broken bool // something was not there or could not be read
}

func read(paths []string) state {
	d := digest{Hash: sha256.New()}
	for _, p := range paths {
		d.path(p)
	}
	s := state{broken: d.broken}
	d.Sum(s.sum[:0])
	return s
}

type digest struct {
	hash.Hash
	broken bool
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
		if info, err := os.Stat(full); err == nil && !info.Mode().IsRegular() {
			continue
		}
		d.field(e.Name())
		d.file(full)
	}
}

func (d *digest) file(p string) {
	f, err := os.Open(p)
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
	}
	d.field(string(content.Sum(nil)))
}
