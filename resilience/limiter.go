package resilience

import (
	"sync"
	"sync/atomic"
	"time"
)

// Limit names the bound that refused a call, as the configuration writes it.
type Limit uint8

// The limits.
const (
	NoLimit                 Limit = iota
	LimitConcurrency              // admit: so many calls run at once
	LimitQueue                    // admit: so many wait
	LimitQueueWait                // admit: for so long
	LimitInFlight                 // limit: so many calls to a service run at once
	LimitWaiting                  // limit: so many wait, until their deadline
	LimitConnections              // limit: so many connections to an endpoint
	LimitBulkhead                 // bulkhead: so many calls to several services run at once
	LimitBulkheadWaiting          // bulkhead: so many wait
	LimitBulkheadWait             // bulkhead: for so long
	LimitPriorities               // limit: a call that matters more took the place in a full queue
	LimitBulkheadPriorities       // bulkhead: the same
)

// String returns the path of l in the configuration.
func (l Limit) String() string {
	return [...]string{
		"", "admit.concurrency", "admit.queue.size", "admit.queue.wait", "limit.in_flight", "limit.waiting",
		"limit.connections", "bulkhead.in_flight", "bulkhead.waiting", "bulkhead.wait", "limit.priorities", "bulkhead.priorities",
	}[l]
}

// Reason returns what the local answer says: concurrency for admit, priority_shed for priorities, overloaded for limit.
func (l Limit) Reason() Reason {
	switch l {
	case NoLimit:
		return None
	case LimitConcurrency, LimitQueue, LimitQueueWait:
		return Concurrency
	case LimitPriorities, LimitBulkheadPriorities:
		return PriorityShed
	}
	return Overloaded
}

// LimiterConfig bounds what runs at once and what waits for it.
type LimiterConfig struct {
	Max     int           // running at once; 0: no bound
	Waiting int           // in the queue; 0: nobody waits
	Wait    time.Duration // of one entry; 0: until its deadline
	Ranked  bool          // waiters have ranks: in a full queue a better one takes the place of the worst
	Name    Limit         // LimitConcurrency, LimitInFlight, LimitConnections or LimitBulkhead: what Max is
}

// PassVerdict is the answer of a Limiter.
type PassVerdict uint8

// The verdicts.
const (
	Admitted PassVerdict = iota // go; Release when done
	Queue                       // Acquire: no room, Enqueue may help; Enqueue: wait until Pass.Until
	Turned                      // refused because of Pass.Limit
)

// String returns the name of v in logs and scripts.
func (v PassVerdict) String() string { return [...]string{"admitted", "queue", "refused"}[v] }

// Pass is the decision of a Limiter.
type Pass struct {
	Verdict PassVerdict
	Limit   Limit     // Turned: by which limit; Limit.Reason says what the caller is told
	Until   time.Time // Queue from Enqueue: when Leave must be called if nobody woke the waiter
	Shed    *Waiter   // Queue from Enqueue: who lost its place to this one; the caller calls its Wake
}

// Ranks is how many ranks there are: 0 is admitted first.
const Ranks = 9

// Waiter is one entry of a Limiter's queue. Its owner sets Wake once and may use it again after it was granted or left.
type Waiter struct {
	// Wake is called by whoever gets the waiter from Release or Grant, or as the one that was shed. It must not block. The
	// call may come late, after the owner left and waits again, so on waking the owner asks Waits and goes on waiting if so.
	Wake func()
	// Rank, 0 … Ranks-1, is set by the owner before it waits.
	Rank uint8

	until      time.Time
	prev, next *Waiter // prev of the first is the last
	state      waiterState
}

type waiterState uint8

const (
	waiterIdle waiterState = iota
	waiterQueued
	waiterGranted
	waiterExpired
	waiterShed
)

// Limiter lets at most Max calls run at once; later ones wait, by rank and of one rank in order of arrival. It parks nobody: the engine does, and
// wakes the waiters that Release returns. It is shared; a nil Limiter admits everything. Acquire with room and Release
// with an empty queue are one atomic operation each.
type Limiter struct {
	cfg LimiterConfig
	s   *limiterState // shared with the limiters that this one was adopted from and by
}

type limiterState struct {
	n atomic.Uint64 // low half: running; high half: waiting, changed only with mu held

	mu    sync.Mutex
	first [Ranks]*Waiter // of each rank; guarded by mu, as the queue's waiters
}

const oneWaiting = 1 << 32

func running(n uint64) uint64 { return n & (oneWaiting - 1) }

// NewLimiter returns a limiter where nothing runs.
func NewLimiter(cfg LimiterConfig) *Limiter {
	return &Limiter{cfg: cfg, s: new(limiterState)}
}

// Adopt returns a limiter with the configuration of l that goes on with what runs and waits in prev. After a rise of Max
// the engine calls Grant until it returns nil.
func (l *Limiter) Adopt(prev *Limiter) *Limiter {
	switch {
	case l == nil || prev == nil:
		return l
	case l.cfg == prev.cfg:
		return prev
	}
	return &Limiter{cfg: l.cfg, s: prev.s}
}

// room reports whether one more may run when n do, not regarding who waits.
func (l *Limiter) room(n uint64) bool { return l.cfg.Max <= 0 || running(n) < uint64(l.cfg.Max) }

// Acquire asks for a place. Newcomers never overtake waiters.
func (l *Limiter) Acquire() Pass {
	if l == nil {
		return Pass{}
	}
	for {
		n := l.s.n.Load()
		if n >= oneWaiting || !l.room(n) {
			break
		}
		if l.s.n.CompareAndSwap(n, n+1) {
			return Pass{}
		}
	}
	switch {
	case l.cfg.Waiting <= 0:
		return Pass{Verdict: Turned, Limit: l.cfg.Name}
	case !l.cfg.Ranked && l.s.n.Load()/oneWaiting >= uint64(l.cfg.Waiting): // a flood is refused without a lock
		return Pass{Verdict: Turned, Limit: l.queueLimit()}
	}
	return Pass{Verdict: Queue}
}

// Enqueue lets w wait, after Acquire said Queue, at most until the deadline of its call (zero: none). The verdict is
// Admitted if there is room by now, Turned if the queue is full of those who matter as much.
func (l *Limiter) Enqueue(now, deadline time.Time, w *Waiter) Pass {
	if l == nil {
		return Pass{}
	}
	until := deadline
	if l.cfg.Wait > 0 && (deadline.IsZero() || now.Add(l.cfg.Wait).Before(deadline)) {
		until = now.Add(l.cfg.Wait)
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.expireLocked(now)
	for {
		n := l.s.n.Load()
		switch {
		case n < oneWaiting && l.room(n):
			if l.s.n.CompareAndSwap(n, n+1) {
				return Pass{}
			}
		case !until.IsZero() && !now.Before(until):
			return Pass{Verdict: Turned, Limit: l.waitLimit()}
		case n/oneWaiting >= uint64(max(l.cfg.Waiting, 0)):
			shed := l.s.worstLocked(w.Rank)
			if shed == nil || !l.cfg.Ranked {
				return Pass{Verdict: Turned, Limit: l.queueLimit()}
			}
			l.s.unlinkLocked(shed, waiterShed)
			w.until = until
			l.s.pushLocked(w)
			return Pass{Verdict: Queue, Until: until, Shed: shed}
		default:
			if l.s.n.CompareAndSwap(n, n+oneWaiting) {
				w.until = until
				l.s.pushLocked(w)
				return Pass{Verdict: Queue, Until: until}
			}
		}
	}
}

// Release gives a place back. A waiter it returns has the place now: the caller calls its Wake.
func (l *Limiter) Release(now time.Time) *Waiter {
	if l == nil {
		return nil
	}
	n := l.s.n.Add(^uint64(0))
	if running(n) == oneWaiting-1 {
		panic("resilience: Limiter.Release without Acquire")
	}
	if n < oneWaiting {
		return nil
	}
	return l.Grant(now)
}

// Grant lets the first waiter run that is not over its time, if there is room, and returns it.
func (l *Limiter) Grant(now time.Time) *Waiter {
	if l == nil || l.s.n.Load() < oneWaiting {
		return nil
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.expireLocked(now)
	for {
		w, n := l.s.bestLocked(), l.s.n.Load()
		if w == nil || !l.room(n) {
			return nil
		}
		if l.s.n.CompareAndSwap(n, n+1-oneWaiting) {
			l.s.unlinkLocked(w, waiterGranted)
			return w
		}
	}
}

// Leave takes w out of the queue: its time is over or its caller left. If it was granted a place meanwhile, granted is
// true and the owner has it: to use, or to Release. Otherwise the pass says why it was refused.
func (l *Limiter) Leave(w *Waiter) (refused Pass, granted bool) {
	if l == nil {
		return Pass{}, true
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if w.state == waiterGranted {
		w.state = waiterIdle
		return Pass{}, true
	}
	limit := l.waitLimit()
	switch w.state {
	case waiterQueued:
		l.s.n.Add(^uint64(oneWaiting - 1))
		l.s.unlinkLocked(w, waiterIdle)
	case waiterShed:
		limit = l.shedLimit()
	}
	w.state = waiterIdle
	return Pass{Verdict: Turned, Limit: limit}, false
}

// Waits reports whether w, woken, is still in the queue. Otherwise Leave says what became of it.
func (l *Limiter) Waits(w *Waiter) bool {
	if l == nil {
		return false
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return w.state == waiterQueued
}

// InUse returns how many run and how many wait.
func (l *Limiter) InUse() (runs, waits int) {
	if l == nil {
		return 0, 0
	}
	n := l.s.n.Load()
	return int(running(n)), int(n / oneWaiting)
}

func (l *Limiter) queueLimit() Limit {
	switch l.cfg.Name {
	case LimitConcurrency:
		return LimitQueue
	case LimitBulkhead:
		return LimitBulkheadWaiting
	}
	return LimitWaiting
}

func (l *Limiter) waitLimit() Limit {
	switch l.cfg.Name {
	case LimitConcurrency:
		return LimitQueueWait
	case LimitBulkhead:
		return LimitBulkheadWait
	}
	return l.cfg.Name
}

func (l *Limiter) shedLimit() Limit {
	if l.cfg.Name == LimitBulkhead {
		return LimitBulkheadPriorities
	}
	return LimitPriorities
}
