package watch

import "time"

// NewChecking is New with another period of the comparison without events.
func NewChecking(paths []string, quiet, check time.Duration) *Watcher {
	w := New(paths, quiet)
	w.check = check
	return w
}
