package resilience

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// The shape of a Latency: log-linear, 32 steps per doubling from 2^14 ns (16 µs) to 2^39 ns (9 min), so that a quantile is
// too long by at most 3.2 %.
const (
	latencyLow     = 14
	latencyDoubles = 25
	latencyStep    = 5
	latencySteps   = 1 << latencyStep
	latencyCells   = latencyDoubles * latencySteps

	latencyPage  = 30 * time.Second // what is known is between one and two pages old
	latencyStale = time.Second      // how old what Quantile returns may be
)

// Quantiles of a Latency.
const (
	P90 = iota
	P95
	P99
	P999
	P9999
	quantiles
)

// ParseQuantile reads p90, p95, p99, p999 or p9999.
func ParseQuantile(s string) (int, bool) {
	for i, name := range [...]string{"p90", "p95", "p99", "p999", "p9999"} {
		if name == s {
			return i, true
		}
	}
	return 0, false
}

// Latency is a live digest of how long first attempts take until their answer, of the last 30 to 60 s (S-145). It is shared
// by the calls of a route. Observe is one atomic operation and Quantile one atomic load, but for one call in each second,
// which works the quantiles out. One that was cut short counts as having taken as long as it had: which quantiles are
// below that is known all the same. A nil Latency knows nothing.
type Latency struct {
	pages [2]latencyPageOf
	open  atomic.Uint32 // which page is written to
	known [quantiles]atomic.Int64
	count atomic.Int64 // samples behind known
	next  atomic.Int64 // Unix nanoseconds: when known is to be worked out again

	mu    sync.Mutex
	begun time.Time // guarded by mu: when the open page was opened
}

type latencyPageOf [latencyCells]atomic.Uint32

// NewLatency returns an empty digest.
func NewLatency() *Latency { return new(Latency) }

// Adopt returns prev where there is one: a snapshot keeps the meters of the one before.
func (l *Latency) Adopt(prev *Latency) *Latency {
	if l != nil && prev != nil {
		return prev
	}
	return l
}

// Observe counts an attempt that took d.
func (l *Latency) Observe(d time.Duration) {
	if l != nil {
		l.pages[l.open.Load()&1][latencyCell(d)].Add(1)
	}
}

func latencyCell(d time.Duration) int {
	v := uint64(min(max(d, 1<<latencyLow), 1<<(latencyLow+latencyDoubles)-1))
	top := bits.Len64(v) - 1
	return (top-latencyLow)<<latencyStep | int(v>>(top-latencyStep))&(latencySteps-1)
}

// latencyTop is what the values of a cell do not reach: where all calls take about the same, none of them is beyond the
// quantile.
func latencyTop(cell int) time.Duration {
	double, step := cell>>latencyStep, cell&(latencySteps-1)
	width := int64(1) << (double + latencyLow - latencyStep)
	return time.Duration(width * int64(latencySteps+step+1))
}

// Quantile returns one of the quantiles P90 … P9999 and how many samples it is made of; 0 samples: it means nothing.
func (l *Latency) Quantile(now time.Time, q int) (time.Duration, int) {
	if l == nil {
		return 0, 0
	}
	if at := l.next.Load(); now.UnixNano() >= at && l.mu.TryLock() {
		l.workOutLocked(now)
		l.mu.Unlock()
	}
	return time.Duration(l.known[q].Load()), int(l.count.Load())
}

// workOutLocked turns the page when it is full and works the quantiles out of both.
func (l *Latency) workOutLocked(now time.Time) {
	l.next.Store(now.Add(latencyStale).UnixNano())
	switch age := now.Sub(l.begun); {
	case l.begun.IsZero():
		l.begun = now
	case age >= 2*latencyPage: // what both pages hold is old
		l.clear(0)
		l.clear(1)
		l.begun = now
	case age >= latencyPage:
		other := (l.open.Load() + 1) & 1
		l.clear(int(other))
		l.open.Store(other)
		l.begun = now
	}
	total := uint64(0)
	for i := range latencyCells {
		total += l.at(i)
	}
	sum, q := uint64(0), 0
	for i := 0; i < latencyCells && q < quantiles; i++ {
		sum += l.at(i)
		for q < quantiles && sum > 0 && sum >= rank(total, q) {
			l.known[q].Store(int64(latencyTop(i)))
			q++
		}
	}
	l.count.Store(int64(total))
}

// rank is which of total samples in order is quantile q.
func rank(total uint64, q int) uint64 {
	over := [...]uint64{1000, 500, 100, 10, 1}[q] // of 10 000
	return total - total*over/10000
}

func (l *Latency) at(cell int) uint64 {
	return uint64(l.pages[0][cell].Load()) + uint64(l.pages[1][cell].Load())
}

func (l *Latency) clear(page int) {
	for i := range l.pages[page] {
		l.pages[page][i].Store(0)
	}
}

const (
	// backupSamples is how many calls must be known before a quantile of them says when a backup is due.
	backupSamples = 100
	// autoSamples is how many must be known before P999 says how long one attempt may take: some must lie beyond it.
	autoSamples = 1000
)

// BackupConfig says when a second attempt begins beside the first.
type BackupConfig struct {
	After    time.Duration // fixed; 0: Quantile says
	Quantile int
}

// BackupAfter returns how long an attempt may take before its backup; 0: there is none, for want of samples.
func (l *Latency) BackupAfter(now time.Time, cfg BackupConfig) time.Duration {
	if cfg.After > 0 {
		return cfg.After
	}
	d, n := l.Quantile(now, cfg.Quantile)
	if n < backupSamples {
		return 0
	}
	return d
}

// PerTryConfig derives the time limit of one attempt from what was observed (S-141).
type PerTryConfig struct {
	Quantile       int           // P999 or P9999
	Floor, Ceiling time.Duration // the limit stays between them
}

// PerTry returns how long one attempt may take: the quantile and half of it again, so that what takes a little longer than
// ever before is seen, and moves the quantile, instead of being cut for good. Too few samples: the ceiling.
func (l *Latency) PerTry(now time.Time, cfg PerTryConfig) time.Duration {
	d, n := l.Quantile(now, cfg.Quantile)
	if n < autoSamples {
		return cfg.Ceiling
	}
	return min(max(d+d/2, cfg.Floor), cfg.Ceiling)
}
