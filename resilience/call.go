package resilience

import (
	"math/bits"
	"time"
)

// defaultTimeout bounds a call whose policy has no timeout: there is no endless call (S-140).
const defaultTimeout = 15 * time.Second

// longest bounds a call so that sums of durations do not overflow.
const longest = time.Duration(1) << 60

// Facts is what a Call must know of its request.
type Facts struct {
	Idempotent bool      // by the policy or the HTTP verb: may be repeated though it was sent (S-143)
	HasBody    bool      // without one a request is always replayable
	Deadline   time.Time // of the caller, zero if none; it only ever lowers the policy's timeout
	// BackupAfter is how long a first attempt may take before a second one begins beside it (S-145); 0: there is no backup.
	// Backups bounds them (S-147); nil: nothing does.
	BackupAfter time.Duration
	Backups     *Budget
	// Alone says that the request cannot be made twice at one time.
	Alone bool
	// PerTry, where it is not 0, stands for the policy's: it follows from what was observed (S-141).
	PerTry time.Duration
	Rand   uint64 // random bits for the jitter of the backoff
}

// Call is the plan of one request: which attempts are made, until when, and how it ends. It is a value that one
// goroutine owns; Start makes it ready, again too, and nothing here allocates.
//
// The engine tells it events and does what the Action says. Every attempt that a Try started is reported exactly once
// by Result, unless a Cancel bit or the end of the call abandoned it. An engine that runs attempts inline gives each
// attempt the deadline Action.Until and reports Result with TimedOut when that has passed. Where BackupAt says that a
// second attempt may begin beside the one in flight, it asks Backup when that time has come, and reports the results of
// both as they end: the first success wins, and Finish says what to cancel. Until a time in the past means: call Tick
// now. After Finish or Fail every event returns the zero Action.
//
// Whether a failed attempt is retried is decided in Result. If the Action is not Finish, the answer of that attempt
// will not be relayed and the engine discards it then; a later failure does not bring it back. So a 503 whose retry
// is refused a connection ends as connect_failed.
type Call struct {
	p        *Policy
	budget   *Budget
	backups  *Budget
	start    time.Time
	perTry   time.Duration // of one attempt; 0: no bound
	after    time.Duration // of an attempt until its backup
	backupAt time.Duration // this and all below count from start
	deadline time.Duration
	retryAt  time.Duration           // of the pending retry
	ends     [MaxSlots]time.Duration // of the attempts in flight
	numbers  [MaxSlots]int           // of the attempts in flight
	rnd      uint64
	attempts int    // started, of any sort
	retries  int    // promised by the policy
	backoffs int    // retries that waited
	last     Reason // of the attempt that ended last; None: it had an answer
	live     uint8  // bit i: an attempt is in flight in slot i

	idempotent, hasBody bool
	pending             bool // a retry waits for retryAt
	stale               bool // the replay on a fresh connection was used
	committed           bool
	broken              bool // a breaker is open or half-open
	halted              bool // an endpoint wants no further attempt
	overlaps            bool // a second attempt may still begin beside the first
	done                bool
}

// Start begins a call at now and counts it in b, which may be nil. The action is the first Try, or Fail if the deadline
// has passed already.
func (c *Call) Start(p *Policy, b *Budget, now time.Time, f Facts) Action {
	*c = Call{
		p: p, budget: b, start: now, rnd: f.Rand, idempotent: f.Idempotent, hasBody: f.HasBody, perTry: p.PerTry,
		backups: f.Backups, after: f.BackupAfter, overlaps: f.Idempotent && !f.Alone && (p.DualSend || f.BackupAfter > 0),
	}
	if f.PerTry > 0 {
		c.perTry = f.PerTry
	}
	if p.DualSend {
		c.after = 0
	}
	c.deadline = p.Timeout
	if c.deadline <= 0 {
		c.deadline = defaultTimeout
	}
	c.deadline = min(c.deadline, longest)
	if !f.Deadline.IsZero() {
		c.deadline = min(c.deadline, f.Deadline.Sub(now))
	}
	b.Call(now)
	c.backups.Call(now)
	if c.deadline <= 0 {
		return c.fail(Timeout, WhyDeadline)
	}
	return c.try(0, WhyFirst, 0)
}

// Done reports whether the call is over: Finish or Fail was given.
func (c *Call) Done() bool { return c.done }

// Attempts returns how many attempts were started, the stale replay included.
func (c *Call) Attempts() int { return c.attempts }

// Result reports that the attempt in slot ended with o. Where o is TimedOut, the action's Cancel bit of slot asks to
// abandon what may still run there (S-142: the first result is not waited for), and a retry gets another slot.
func (c *Call) Result(now time.Time, slot int, o Outcome) Action {
	if c.done {
		return Action{}
	}
	if !c.running(slot) {
		return c.wait(WhyNone)
	}
	bit := uint8(1) << slot
	c.live &^= bit
	c.halted = c.halted || o.Pushback < 0
	c.last = o.reason()
	if o.Broken { // also for what another attempt, still in flight, comes to
		c.broken, c.overlaps = true, false
	}
	if o.Kind != TimedOut {
		bit = 0
	}
	a := c.decide(now, slot, bit, o)
	a.Cancel |= bit
	return a
}

// decide says what follows the end of an attempt. A retry does not go to the slots of avoid.
func (c *Call) decide(now time.Time, slot int, avoid uint8, o Outcome) Action {
	at := now.Sub(c.start)
	switch {
	case o.Kind == Gone:
		return c.fail(CallerGone, WhyCaller)
	case c.live != 0 && (o.Kind != Answered || o.Failed() || c.p.On.Match(o)):
		return c.wait(WhyNone) // the first success wins, and another attempt may still have it
	case o.Kind == Answered && !c.p.On.Match(o):
		if o.Failed() {
			return c.finish(slot, WhyNotRetryable)
		}
		return c.finish(slot, WhyNone)
	case at >= c.deadline || o.Kind == TimedOut && c.ends[slot] == c.deadline:
		if o.Kind == Answered {
			return c.finish(slot, WhyDeadline)
		}
		return c.fail(Timeout, WhyDeadline)
	case c.replays(o):
		c.stale = true
		a := c.try(at, WhyStale, avoid)
		a.Fresh = true
		return a
	}
	why := c.refuse(o)
	var delay time.Duration
	if why == WhyNone {
		if delay = c.delay(o.Untried); o.Pushback > 0 {
			delay = o.Pushback // gRPC A6: instead of the backoff
		}
		if delay >= c.deadline-at {
			if why = WhyDeadline; o.Pushback > 0 {
				why = WhyPushback
			}
		} else if !c.budget.Take(now) {
			why = WhyBudget
		}
	}
	switch {
	case why != WhyNone && o.Kind == Answered:
		return c.finish(slot, why)
	case why != WhyNone:
		return c.fail(c.last, why)
	}
	c.retries++
	if delay == 0 {
		return c.try(at, WhyRetry, avoid)
	}
	c.pending, c.retryAt = true, at+delay
	return c.wait(WhyRetry)
}

// replays reports whether o is the death of a pooled connection before it was of use, which costs neither a retry nor
// budget: the endpoint closed it while our request was on its way. Once per call; a fresh connection cannot be stale.
func (c *Call) replays(o Outcome) bool {
	return o.Kind == Reset && o.Reused && !c.stale && !c.committed && (!o.Sent || c.idempotent) && c.atHand(o)
}

// refuse says why the policy does not retry o, or WhyNone.
func (c *Call) refuse(o Outcome) Why {
	switch {
	case c.committed, c.p.Retries <= 0, !c.p.On.Match(o), !c.idempotent && (o.Sent || o.Kind == Answered):
		return WhyNotRetryable
	case c.halted:
		return WhyPushback
	case !c.atHand(o):
		return WhyBody
	case c.broken:
		return WhyBreaker
	case c.retries >= c.p.Retries:
		return WhyExhausted
	}
	return WhyNone
}

func (c *Call) atHand(o Outcome) bool { return o.Replayable || !c.hasBody }

// delay draws the wait before the next retry: none before the first one if it goes to an endpoint not yet tried, else
// evenly spread over 0 … ceiling ("full jitter"), where the ceiling doubles with each wait.
func (c *Call) delay(untried bool) time.Duration {
	if c.retries == 0 && untried || c.p.BackoffBase <= 0 {
		return 0
	}
	ceiling := c.p.BackoffBase
	for range c.backoffs {
		if ceiling >= c.deadline || c.p.BackoffMax > 0 && ceiling >= c.p.BackoffMax {
			break
		}
		ceiling *= 2
	}
	if c.p.BackoffMax > 0 {
		ceiling = min(ceiling, c.p.BackoffMax)
	}
	c.backoffs++
	hi, _ := bits.Mul64(c.random(), uint64(ceiling)+1) // scales 2⁶⁴ values down to 0 … ceiling
	return time.Duration(hi)
}

// random draws from the stream that Facts.Rand seeds (splitmix64).
func (c *Call) random() uint64 {
	c.rnd += 0x9e3779b97f4a7c15
	z := c.rnd
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Tick reports that time passed. It starts the retry whose wait is over, abandons an attempt that is over its time, and
// ends the call at its deadline. Of an attempt that it abandons it must assume the worst: sent, the body lost, no untried
// endpoint left. An engine that knows better reports Result with TimedOut first.
func (c *Call) Tick(now time.Time) Action {
	at := now.Sub(c.start)
	switch {
	case c.done:
		return Action{}
	case at >= c.deadline:
		return c.fail(Timeout, WhyDeadline)
	case c.pending && at >= c.retryAt:
		c.pending = false
		return c.try(at, WhyRetry, 0)
	}
	for slot := range MaxSlots {
		if c.running(slot) && at >= c.ends[slot] {
			return c.Result(now, slot, Outcome{Kind: TimedOut, Sent: true})
		}
	}
	return c.wait(WhyNone)
}

// Commit reports that the attempt in slot can no longer be taken back, since something of its answer reached the caller
// or the engine let go of what a repetition needs. After it the call only finishes or fails. Attempts in other slots are
// abandoned. A slot without an attempt is ignored.
func (c *Call) Commit(_ time.Time, slot int) Action {
	if c.done {
		return Action{}
	}
	if !c.running(slot) {
		return c.wait(WhyNone)
	}
	others := c.live &^ (1 << slot)
	c.committed, c.pending, c.overlaps = true, false, false
	c.live = 1 << slot
	a := c.wait(WhyNone)
	a.Cancel = others
	return a
}

// CallerGone reports that our caller left: the call fails and what runs is abandoned.
func (c *Call) CallerGone(time.Time) Action {
	if c.done {
		return Action{}
	}
	return c.fail(CallerGone, WhyCaller)
}

// BreakerOpened reports that the breaker is no longer closed. The policy retries no more in this call, and a retry that
// waits for its backoff is given up (S-149). Attempts in flight go on. Outcome.Broken says the same in a Result.
func (c *Call) BreakerOpened(time.Time) Action {
	if c.done {
		return Action{}
	}
	c.broken, c.overlaps = true, false
	if !c.pending {
		return c.wait(WhyNone)
	}
	if c.last == None { // that answer was discarded
		return c.fail(BreakerOpen, WhyBreaker)
	}
	return c.fail(c.last, WhyBreaker)
}

func (c *Call) running(slot int) bool { return slot >= 0 && slot < MaxSlots && c.live>>slot&1 == 1 }

// try starts an attempt in the lowest slot that is free and not to be avoided.
func (c *Call) try(at time.Duration, why Why, avoid uint8) Action {
	slot := bits.TrailingZeros8(^(c.live | avoid))
	end := c.deadline
	if c.perTry > 0 && c.perTry < c.deadline-at {
		end = at + c.perTry
	}
	if c.overlaps && c.live == 0 {
		c.backupAt = at + c.after
	}
	c.live |= 1 << slot
	c.ends[slot] = end
	c.numbers[slot] = c.attempts
	c.attempts++
	return Action{Verb: Try, Attempt: c.numbers[slot], Slot: slot, Until: c.start.Add(end), Why: why}
}

// wait asks for an event, or for Tick when the first of the times is reached.
func (c *Call) wait(why Why) Action {
	next := c.deadline
	if c.pending {
		next = min(next, c.retryAt)
	}
	for slot, end := range c.ends {
		if c.running(slot) {
			next = min(next, end)
		}
	}
	return Action{Verb: Wait, Until: c.start.Add(next), Why: why}
}

// finish relays the answer of the attempt in slot and abandons the others.
func (c *Call) finish(slot int, why Why) Action {
	return c.over(Action{Verb: Finish, Attempt: c.numbers[slot], Slot: slot, Why: why})
}

func (c *Call) fail(r Reason, why Why) Action {
	return c.over(Action{Verb: Fail, Attempt: c.attempts - 1, Reason: r, Why: why})
}

func (c *Call) over(a Action) Action {
	a.Cancel = c.live
	c.live, c.pending, c.done, c.overlaps = 0, false, true, false
	return a
}
