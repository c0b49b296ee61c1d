package watch

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// maxLinks bounds how many links are followed on the way to a path.
const maxLinks = 40

// tree is the set of directories that are watched: all on the way to the paths, through links, by their real names.
type tree struct {
	fs      *fsnotify.Watcher // nil: no events to be had
	watched map[string]os.FileInfo
	names   map[string]map[string]bool // by directory, the entries that matter; a nil map: all of them
}

// update brings the watches in line with how the paths lead now.
func (t *tree) update(paths []string) {
	if t.fs == nil {
		return
	}
	t.names = make(map[string]map[string]bool)
	for _, p := range paths {
		t.follow(p, true)
	}
	now := make(map[string]os.FileInfo, len(t.names))
	for dir := range t.names {
		info, err := os.Stat(dir)
		if err != nil {
			continue
		}
		old := t.watched[dir]
		if old != nil && !os.SameFile(old, info) {
			_ = t.fs.Remove(dir) // of the directory that had this name before; it may be gone already
			old = nil
		}
		if old == nil && t.fs.Add(dir) != nil {
			continue // tried again at the next look
		}
		now[dir] = info
	}
	for dir := range t.watched {
		if now[dir] == nil {
			_ = t.fs.Remove(dir)
		}
	}
	t.watched = now
}

// concerns reports whether an event at a path may have to do with the content.
func (t *tree) concerns(path string) bool {
	if _, ok := t.names[path]; ok {
		return true
	}
	names, ok := t.names[filepath.Dir(path)]
	return ok && (names == nil || names[filepath.Base(path)])
}

// follow notes the directories on the way to a path; where it ends at a folder and deep is set, those behind its links too.
func (t *tree) follow(path string, deep bool) {
	path, err := filepath.Abs(path)
	if err != nil {
		return
	}
	at, rest := "/", split(path)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		t.note(at, name)
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if err != nil {
			return // it may appear here
		}
		if info.Mode()&os.ModeSymlink == 0 {
			at = next
			continue
		}
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(split(target), rest...)
	}
	if info, err := os.Stat(at); deep && err == nil && info.IsDir() {
		t.folder(at)
	}
}

// folder notes a folder whose files all count, and the directories behind links in it.
func (t *tree) folder(dir string) {
	t.names[dir] = nil
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.Type()&os.ModeSymlink != 0 {
			t.follow(filepath.Join(dir, e.Name()), false)
		}
	}
}

func (t *tree) note(dir, name string) {
	names, ok := t.names[dir]
	switch {
	case !ok:
		t.names[dir] = map[string]bool{name: true}
	case names != nil:
		names[name] = true
	}
}

func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}
