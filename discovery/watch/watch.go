// Package watch tells when the content of files or folders has changed, however that came about: an edit in place, a
// rename over, a deletion and a new file, the swap of a `..data` link by Kubernetes, a file that appears later.
//
// It watches every directory on the way to a path, through all links, as a hint that something may have happened, and
// then compares content: only a changed content is a change. In a folder it reads the files whose stamp (inode, size,
// times) is new. A periodic comparison of everything finds what no event told of. It owns one inotify instance per running
// Watcher.
//
// Tests: real files in a temporary folder, each way of changing them, with channels and deadlines.
package watch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/fsnotify/fsnotify"
)

// The periods of a Watcher.
const (
	// Quiet is the default of New's quiet: an editor writes in pieces, a ConfigMap swaps a link.
	Quiet = 100 * time.Millisecond

	settleMax  = 20               // a change is looked at after so many quiet periods though events go on
	retries    = 5                // quiet periods a path that cannot be read is given before that counts as a change
	checkEvery = 30 * time.Second // comparison without an event
	pollEvery  = 2 * time.Second  // comparison where the system gives no events
)

// Watcher compares the content of some paths with what it was when the Watcher was made.
type Watcher struct {
	// Set by New, then read-only.
	paths []string
	quiet time.Duration
	check time.Duration

	last  state  // owned by Run
	known memory // as last
}

// New takes note of the content of paths: make the Watcher first, then read the files, then Run it, and no change goes
// unseen. A path may be a file, a folder (its files count, not those of folders below it) or nothing yet. quiet is how
// long the files must be left alone before a change counts; 0 means Quiet.
func New(paths []string, quiet time.Duration) *Watcher {
	if quiet <= 0 {
		quiet = Quiet
	}
	w := &Watcher{paths: paths, quiet: quiet, check: checkEvery}
	w.last, w.known = read(paths, nil, time.Now())
	return w
}

// Run calls changed, on its own goroutine, each time the content has changed and been left alone for the quiet time, until
// ctx is done; then it returns nil. It is called once. Where the system refuses to give events it compares every 2 s.
func (w *Watcher) Run(ctx context.Context, changed func()) error {
	var events <-chan fsnotify.Event
	var failures <-chan error
	period := w.check
	t := &tree{}
	if fs, err := fsnotify.NewWatcher(); err == nil {
		defer fs.Close()
		events, failures, t.fs = fs.Events, fs.Errors, fs
	} else {
		slog.WarnContext(ctx, "no file events, comparing files instead", "every", pollEvery, "error", err)
		period = pollEvery
	}
	t.update(w.paths)

	timer := time.NewTimer(0) // compare once: something may have changed since New
	defer timer.Stop()
	tick := time.NewTicker(period)
	defer tick.Stop()
	var first time.Time // the first event of a burst
	missed := 0         // comparisons in a row with something unreadable
	whole := false      // all files are to be read, whatever their stamps say
	poke := func() {
		if first.IsZero() {
			first = time.Now()
		}
		timer.Reset(min(w.quiet, max(0, settleMax*w.quiet-time.Since(first))))
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-events:
			if t.concerns(e.Name) {
				poke()
			}
		case err := <-failures:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				poke()
			}
		case <-tick.C:
			whole = true
			poke()
		case <-timer.C:
			first = time.Time{}
			t.update(w.paths)
			if whole {
				w.known = nil
			}
			var now state
			now, w.known = read(w.paths, w.known, time.Now())
			if now.broken && now != w.last && missed < retries {
				missed++
				timer.Reset(w.quiet)
				continue
			}
			missed, whole = 0, false
			if now != w.last {
				w.last = now
				changed()
			}
		}
	}
}
