package resilience

import (
	"sync"
	"sync/atomic"
	"time"
)

// BreakerConfig is the breaker of a policy. A zero field has the default written beside it.
type BreakerConfig struct {
	ErrorThreshold float64       // share of failed calls, 0 … 1, at or above which it trips (S-152); 0.5
	RequestVolume  int           // calls in the window below which it never trips; 20
	Window         time.Duration // 10 s
	Buckets        int           // of the window (S-153); 10
	SleepWindow    time.Duration // how long it stays open before it probes; 5 s
	HalfOpenProbes int           // calls let through when half-open; all must succeed; 1
	SlowOver       time.Duration // a call that takes longer is slow, whatever its answer (S-151); 0: none is
	SlowRatio      float64       // share of slow calls at or above which it trips; 0.8
}

func (c BreakerConfig) filled() BreakerConfig {
	fill(&c.ErrorThreshold, 0.5)
	fill(&c.RequestVolume, 20)
	fill(&c.Window, 10*time.Second)
	fill(&c.Buckets, 10)
	fill(&c.SleepWindow, 5*time.Second)
	fill(&c.HalfOpenProbes, 1)
	fill(&c.SlowRatio, 0.8)
	return c
}

// fill sets a field that is not set. A negative one counts as not set.
func fill[T int | float64 | time.Duration](field *T, byDefault T) {
	if *field <= 0 {
		*field = byDefault
	}
}

// BreakerState is where a breaker stands (S-150).
type BreakerState uint8

// The states.
const (
	Closed   BreakerState = iota // calls go through and are counted
	Open                         // calls are refused
	HalfOpen                     // some calls go through to see
)

// String returns the name that operators see.
func (s BreakerState) String() string { return [...]string{"closed", "open", "half_open"}[s] }

// BreakerChange is a change of state, for an event and a metric: the one who gets it from Admit or Record tells it.
type BreakerChange uint8

// The changes.
const (
	Unchanged   BreakerChange = iota
	Opened                    // closed → open: the share of failures reached the threshold
	HalfOpened                // open → half-open: the sleep window is over
	Reopened                  // half-open → open: a probe failed
	ClosedAgain               // half-open → closed: all probes succeeded
	OpenedSlow                // closed → open: the share of slow calls reached its ratio
)

// String returns the name that operators see.
func (c BreakerChange) String() string {
	return [...]string{"", "opened", "half_opened", "reopened", "closed", "opened"}[c]
}

// Why names the knob that changed the state.
func (c BreakerChange) Why() string {
	return [...]string{"", "error_threshold", "sleep_window", "half_open_probes", "half_open_probes", "slow.ratio"}[c]
}

// States says from which state to which a change goes.
func (c BreakerChange) States() (from, to BreakerState) {
	switch c {
	case Opened, OpenedSlow:
		return Closed, Open
	case HalfOpened:
		return Open, HalfOpen
	case Reopened:
		return HalfOpen, Open
	case ClosedAgain:
		return HalfOpen, Closed
	}
	return Closed, Closed
}

// CallResult is what a breaker counts of one call (S-152). A caller who left and a service without endpoints are no
// evidence: such a call is given back by Cancel.
type CallResult uint8

// The results.
const (
	CallOK       CallResult = iota
	CallFailed              // connect, reset, protocol error, 5xx
	CallTimedOut            // overall or per-try
	CallRejected            // by our own concurrency limit ("thread rejected")
	CallSlow                // it succeeded, after more than BreakerConfig.SlowOver
)

// String returns the name of the counter.
func (r CallResult) String() string {
	return [...]string{"success", "failure", "timeout", "rejected", "slow"}[r]
}

// ResultOf says how a breaker counts a call that ended with action a (Finish or Fail) after the outcome o of its last
// attempt; ok is false if it does not.
func ResultOf(a Action, o Outcome) (r CallResult, ok bool) {
	if a.Verb == Finish {
		if o.Failed() {
			return CallFailed, true
		}
		return CallOK, true
	}
	switch a.Reason {
	case Timeout, ConnectTimeout:
		return CallTimedOut, a.Attempt >= 0 // the caller's time was over before anything was tried
	case Overloaded, Concurrency, PriorityShed:
		return CallRejected, true
	case ConnectFailed, UpstreamReset, UpstreamProtocol:
		return CallFailed, true
	}
	return CallOK, false
}

// Ticket ties the report of a call to its admission, so that a call that began before a change of state does not count
// after it: calls that hung while a breaker was open must not trip it again when it has just closed. The zero Ticket is
// that of a call which was refused before the breaker was asked.
type Ticket uint32

// Admission is the verdict of a breaker about one call.
type Admission struct {
	OK     bool
	Probe  bool          // OK, and the breaker is half-open: this call decides (S-150)
	Ticket Ticket        // OK: for Record, Done or Cancel
	Until  time.Time     // not OK: when the verdict could change
	Change BreakerChange // that this admission caused
}

// Breaker refuses calls to a service that fails, so that it gets time to recover (S-149 … S-153). It is shared by the
// calls of a policy. A nil Breaker admits everything. Admit on a closed one is a single atomic load.
type Breaker struct {
	cfg       BreakerConfig
	threshold uint64 // millionths, as slow
	slow      uint64

	// A BreakerState in the low bits, above them the number of changes so far; written with mu held. Tickets are its
	// values.
	word atomic.Uint32

	mu    sync.Mutex // guards what follows
	win   window     // by CallResult; kept when it trips, as evidence, and clean when it closes
	until time.Time  // open: end of the sleep window; half-open: when probes that did not report are given up
	out   int        // probes on their way
	good  int        // probes of this half-open period that succeeded
}

const stateBits = 2

func stateOf(word uint32) BreakerState { return BreakerState(word & (1<<stateBits - 1)) }

// NewBreaker returns a closed breaker.
func NewBreaker(cfg BreakerConfig) *Breaker {
	cfg = cfg.filled()
	b := &Breaker{cfg: cfg, threshold: millionths(cfg.ErrorThreshold), slow: millionths(cfg.SlowRatio)}
	b.word.Store(1 << stateBits) // no ticket is 0
	return b
}

// Adopt returns prev where it has the same configuration, else b: a snapshot keeps the meters of the one before.
func (b *Breaker) Adopt(prev *Breaker) *Breaker {
	if b != nil && prev != nil && b.cfg == prev.cfg {
		return prev
	}
	return b
}

// As returns b where it has this configuration, else a new breaker.
func (b *Breaker) As(cfg BreakerConfig) *Breaker {
	if b != nil && b.cfg == cfg.filled() {
		return b
	}
	return NewBreaker(cfg)
}

// Admit asks whether a call may be made. A call that was admitted is reported by Done, Record or Cancel; a probe that
// never is stops counting as on its way after one more sleep window, so that it cannot keep the breaker half-open.
func (b *Breaker) Admit(now time.Time) Admission {
	if b == nil {
		return Admission{OK: true}
	}
	if w := b.word.Load(); stateOf(w) == Closed {
		return Admission{OK: true, Ticket: Ticket(w)}
	}
	return b.admitSlow(now)
}

func (b *Breaker) admitSlow(now time.Time) Admission {
	b.mu.Lock()
	defer b.mu.Unlock()
	var change BreakerChange
	switch stateOf(b.word.Load()) {
	case Closed:
		return Admission{OK: true, Ticket: Ticket(b.word.Load())}
	case Open:
		if now.Before(b.until) {
			return Admission{Until: b.until}
		}
		b.enterLocked(HalfOpen)
		b.out, b.good = 0, 0
		change = HalfOpened
	case HalfOpen:
		if b.out > 0 && !now.Before(b.until) {
			b.out = 0
		}
	}
	if b.out+b.good >= b.cfg.HalfOpenProbes {
		return Admission{Until: b.until}
	}
	b.out++
	b.until = now.Add(b.cfg.SleepWindow)
	return Admission{OK: true, Probe: true, Ticket: Ticket(b.word.Load()), Change: change}
}

// Done reports how an admitted call ended: with action a (Finish or Fail) after the outcome o of its last attempt, took
// after it began. It is Record or Cancel, as ResultOf says.
func (b *Breaker) Done(now time.Time, t Ticket, a Action, o Outcome, took time.Duration) BreakerChange {
	if r, ok := ResultOf(a, o); ok {
		return b.Record(now, t, b.paced(r, took))
	}
	b.Cancel(now, t)
	return Unchanged
}

// paced makes a success that took too long a slow one.
func (b *Breaker) paced(r CallResult, took time.Duration) CallResult {
	if b != nil && r == CallOK && b.cfg.SlowOver > 0 && took > b.cfg.SlowOver {
		return CallSlow
	}
	return r
}

// Record reports how an admitted call ended, with the ticket of its admission. A call that our own limit rejected
// before Admit was asked is reported as CallRejected with ticket 0. Calls that the breaker refused are not reported.
func (b *Breaker) Record(now time.Time, t Ticket, r CallResult) BreakerChange {
	if b == nil {
		return Unchanged
	}
	b.mu.Lock()
	change := b.recordLocked(now, t, r)
	b.mu.Unlock()
	return change
}

func (b *Breaker) recordLocked(now time.Time, t Ticket, r CallResult) BreakerChange {
	w := b.word.Load()
	if t != Ticket(w) && t != 0 {
		return Unchanged
	}
	switch stateOf(w) {
	case Closed:
		b.advanceLocked(now)
		b.win.add(int(r), 1)
		if change := b.tripsLocked(); change != Unchanged {
			b.openLocked(now)
			return change
		}
	case HalfOpen:
		if t != 0 {
			return b.probedLocked(now, r)
		}
	}
	return Unchanged
}

// Cancel gives back an admission that brought no evidence: the caller left, or the call was never made.
func (b *Breaker) Cancel(_ time.Time, t Ticket) {
	if b == nil || stateOf(uint32(t)) != HalfOpen {
		return
	}
	b.mu.Lock()
	if t == Ticket(b.word.Load()) {
		b.out = max(0, b.out-1)
	}
	b.mu.Unlock()
}

// State returns where b stands at now. An open breaker whose sleep window is over is half-open.
func (b *Breaker) State(now time.Time) BreakerState {
	if b == nil {
		return Closed
	}
	s := stateOf(b.word.Load())
	if s != Open {
		return s
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s = stateOf(b.word.Load())
	if s == Open && !now.Before(b.until) {
		return HalfOpen
	}
	return s
}

// BreakerCounts is the window of a breaker, for metrics and the admin page.
type BreakerCounts struct{ OK, Failed, TimedOut, Rejected, Slow uint32 }

// All is how many calls the window holds.
func (c BreakerCounts) All() uint32 { return c.OK + c.Failed + c.TimedOut + c.Rejected + c.Slow }

// Counts returns the sums of the window at now.
func (b *Breaker) Counts(now time.Time) BreakerCounts {
	if b == nil {
		return BreakerCounts{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advanceLocked(now)
	s := &b.win.sum
	return BreakerCounts{
		OK: s[CallOK], Failed: s[CallFailed], TimedOut: s[CallTimedOut], Rejected: s[CallRejected], Slow: s[CallSlow],
	}
}

func (b *Breaker) advanceLocked(now time.Time) {
	if b.win.ring == nil {
		b.win.start(now, b.cfg.Buckets, max(1, b.cfg.Window/time.Duration(b.cfg.Buckets)))
	}
	b.win.advance(now)
}

// tripsLocked: in a window with enough calls, (failed + timed out + rejected) / all ≥ threshold (S-153), or with slow calls
// counted, (slow + timed out) / all ≥ ratio (S-151).
func (b *Breaker) tripsLocked() BreakerChange {
	n := &b.win.sum
	all := n.total()
	if all < uint64(b.cfg.RequestVolume) {
		return Unchanged
	}
	bad := uint64(n[CallFailed]) + uint64(n[CallTimedOut]) + uint64(n[CallRejected])
	late := uint64(n[CallSlow]) + uint64(n[CallTimedOut])
	switch {
	case bad > 0 && bad*million >= b.threshold*all:
		return Opened
	case b.cfg.SlowOver > 0 && late > 0 && late*million >= b.slow*all:
		return OpenedSlow
	}
	return Unchanged
}

// enterLocked changes the state, which makes the tickets given so far void.
func (b *Breaker) enterLocked(s BreakerState) {
	b.word.Store((b.word.Load()>>stateBits+1)<<stateBits | uint32(s))
}

func (b *Breaker) openLocked(now time.Time) {
	b.enterLocked(Open)
	b.until = now.Add(b.cfg.SleepWindow)
}

func (b *Breaker) probedLocked(now time.Time, r CallResult) BreakerChange {
	b.out = max(0, b.out-1)
	switch r {
	case CallRejected: // our own limit: says nothing about the service
		return Unchanged
	case CallOK:
		if b.good++; b.good < b.cfg.HalfOpenProbes {
			return Unchanged
		}
		b.win.clear()
		b.enterLocked(Closed)
		return ClosedAgain
	}
	b.openLocked(now)
	return Reopened
}
