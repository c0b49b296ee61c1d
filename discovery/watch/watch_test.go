package watch_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sidecar-mesh/sidecar/discovery/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const deadline = time.Minute

// watching runs a Watcher with a short quiet time and gives its calls as a channel.
func watching(t *testing.T, paths ...string) <-chan struct{} {
	t.Helper()
	calls := make(chan struct{}, 100)
	w := watch.New(paths, 100*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, func() { calls <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return calls
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

// noticed waits for one call.
func noticed(t *testing.T, calls <-chan struct{}) {
	t.Helper()
	select {
	case <-calls:
	case <-time.After(deadline):
		t.Fatal("the change was not noticed")
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	put(t, file, "one")
	calls := watching(t, file)

	put(t, file, "two") // in place
	noticed(t, calls)

	put(t, filepath.Join(dir, ".a.swp"), "three") // renamed over
	must(t, os.Rename(filepath.Join(dir, ".a.swp"), file))
	noticed(t, calls)

	must(t, os.Remove(file)) // deleted and created
	put(t, file, "four")
	noticed(t, calls)

	must(t, os.Remove(file)) // deleted for good
	noticed(t, calls)
	put(t, file, "five") // and back
	noticed(t, calls)

	must(t, os.Rename(dir, dir+".old")) // the folder as a whole replaced
	must(t, os.Mkdir(dir, 0o700))
	t.Cleanup(func() { _ = os.RemoveAll(dir + ".old") })
	put(t, file, "six")
	noticed(t, calls)
	put(t, file, "seven") // the new folder is watched too
	noticed(t, calls)
}

// A pipe where a file was is a change, and its end another one: nobody waits for what might be written to it.
func TestPipe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	put(t, file, "one")
	calls := watching(t, file)
	must(t, syscall.Mkfifo(file+".new", 0o600))
	must(t, os.Rename(file+".new", file))
	noticed(t, calls)
	put(t, file+".new", "two")
	must(t, os.Rename(file+".new", file))
	noticed(t, calls)
}

func TestFileThatAppearsLater(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "later", "still", "a.yaml")
	calls := watching(t, file)
	must(t, os.MkdirAll(filepath.Dir(file), 0o700))
	put(t, file, "one")
	noticed(t, calls)
	put(t, file, "two")
	noticed(t, calls)
}

// mount lays a volume out as Kubernetes does: a.yaml → ..data/a.yaml, ..data → a folder of one version.
func mount(t *testing.T, dir, version, content string) {
	t.Helper()
	must(t, os.Mkdir(filepath.Join(dir, version), 0o700))
	put(t, filepath.Join(dir, version, "a.yaml"), content)
	must(t, os.Symlink(version, filepath.Join(dir, "..tmp")))
	must(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
}

func TestKubernetesVolume(t *testing.T) {
	for _, what := range []string{"file", "folder"} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			mount(t, dir, "..1", "one")
			must(t, os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")))
			path := dir
			if what == "file" {
				path = filepath.Join(dir, "a.yaml")
			}
			calls := watching(t, path)
			mount(t, dir, "..2", "two")
			must(t, os.RemoveAll(filepath.Join(dir, "..1")))
			noticed(t, calls)
			mount(t, dir, "..3", "three")
			must(t, os.RemoveAll(filepath.Join(dir, "..2")))
			noticed(t, calls)
		})
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	other := t.TempDir()
	put(t, filepath.Join(other, "real.yaml"), "one")
	calls := watching(t, dir)
	put(t, filepath.Join(dir, "a.yaml"), "one")
	noticed(t, calls)
	must(t, os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")))
	noticed(t, calls)
	must(t, os.Symlink(filepath.Join(other, "real.yaml"), filepath.Join(dir, "c.yaml")))
	noticed(t, calls)
	put(t, filepath.Join(other, "real.yaml"), "two") // behind the link
	noticed(t, calls)
	must(t, os.Remove(filepath.Join(dir, "b.yaml")))
	noticed(t, calls)
}

// What leaves the content as it was is no change; the change made last is the only one noticed.
func TestNoChange(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	put(t, file, "one")
	calls := watching(t, file)
	put(t, filepath.Join(dir, "unrelated"), "x")
	put(t, file, "one")
	must(t, os.Chtimes(file, time.Now(), time.Now()))
	put(t, file, "two")
	noticed(t, calls)
	select {
	case <-calls:
		t.Error("noticed more than the change")
	default:
	}
}

// Changed between New and Run: seen when Run begins.
func TestChangeBeforeRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	put(t, file, "one")
	w := watch.New([]string{file}, time.Millisecond)
	put(t, file, "two")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	called := false
	must(t, w.Run(ctx, func() { called = true; cancel() }))
	if !called {
		t.Error("not noticed")
	}
}

// A write through another hard link gives no event where the file is watched: the periodic comparison finds it.
func TestWithoutEvent(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	file, link := filepath.Join(dir, "a.yaml"), filepath.Join(other, "a.yaml")
	put(t, file, "one")
	must(t, os.Link(file, link))
	w := watch.NewChecking([]string{file}, time.Millisecond, 10*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	calls, done := make(chan struct{}, 1), make(chan error, 1)
	go func() { done <- w.Run(ctx, func() { calls <- struct{}{} }) }()
	put(t, link, "two")
	noticed(t, calls)
	cancel()
	must(t, <-done)
}
