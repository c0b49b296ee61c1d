package resilience

import "time"

// tally counts the events of one bucket by kind. What the kinds mean is the owner's affair.
type tally [5]uint32

func (t *tally) total() uint64 {
	return uint64(t[0]) + uint64(t[1]) + uint64(t[2]) + uint64(t[3]) + uint64(t[4])
}

// window is a sliding window of buckets (S-153): the bucket in progress and those before it. Each new bucket drops the
// oldest whole. Buckets begin on whole multiples of their width. Its owner guards it. The zero window is empty.
type window struct {
	ring  []tally
	sum   tally // of all buckets
	at    int   // ring[at] is in progress
	begin time.Time
	width time.Duration
}

// advance makes now's bucket the one in progress. A now before it counts as in it: time never runs back.
func (w *window) advance(now time.Time) {
	if d := now.Sub(w.begin); d >= w.width {
		w.turn(d)
	}
}

func (w *window) turn(d time.Duration) {
	steps := d / w.width
	w.begin = w.begin.Add(steps * w.width)
	for range min(int(steps), len(w.ring)) {
		if w.at++; w.at == len(w.ring) {
			w.at = 0
		}
		for i, n := range w.ring[w.at] {
			w.sum[i] -= n
		}
		w.ring[w.at] = tally{}
	}
}

// start makes w ready with n buckets of the width, empty, the first of them holding now.
func (w *window) start(now time.Time, n int, width time.Duration) {
	if w.ring == nil {
		w.ring = make([]tally, n)
	}
	w.width = width
	// Truncate drops the monotonic reading; taking the difference off now keeps it, so that a step of the wall clock
	// does not stop the window.
	w.begin = now.Add(-now.Sub(now.Truncate(width)))
}

// add counts n events of kind i in the bucket in progress.
func (w *window) add(i int, n uint32) {
	w.ring[w.at][i] += n
	w.sum[i] += n
}

// clear forgets all events.
func (w *window) clear() {
	clear(w.ring)
	w.sum = tally{}
}

// millionths turns a ratio into an integer, so that 7 of 100 is exactly 7 %.
func millionths(ratio float64) uint64 {
	switch {
	case !(ratio > 0):
		return 0
	case ratio > 1e6:
		return 1e12
	}
	return uint64(ratio*million + 0.5)
}

const million = 1_000_000
