package watch

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// touch gives a file a time of its own: the clock of a file system may stand still meanwhile.
func touch(t *testing.T, path string) {
	t.Helper()
	at := time.Now().Add(time.Second)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// What was read is read again when its stamp differs, and only then; a fresh file has none.
func TestRemembered(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no stamps here")
	}
	dir := t.TempDir()
	put := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "one")
	put("b", "one")
	paths, now := []string{dir}, time.Now()
	if _, known := read(paths, nil, now); known[filepath.Join(dir, "a")].stamp != (Stamp{}) {
		t.Error("a file that changed just now has a stamp")
	}
	later := now.Add(time.Hour)
	first, known := read(paths, nil, later)
	if again, _ := read(paths, known, later); again != first {
		t.Error("what was remembered is another content")
	}
	e := known[filepath.Join(dir, "b")]
	e.sum[0]++
	known[filepath.Join(dir, "b")] = e
	if again, _ := read(paths, known, later); again == first {
		t.Error("an unchanged file was read again")
	}
	known = nil
	first, known = read(paths, known, later)
	put("a", "two") // in place, as long as before
	touch(t, filepath.Join(dir, "a"))
	second, _ := read(paths, known, later)
	if second == first {
		t.Error("a change went unseen")
	}
}
