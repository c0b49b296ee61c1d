package resilience_test

import (
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

// callModel watches a Call from outside and knows what must always hold.
type callModel struct {
	t        *testing.T
	p        resilience.Policy
	f        resilience.Facts
	deadline time.Time

	tries, stale   int
	seconds        int // beside others
	secondsAllowed int
	live           uint8
	ended          bool
	committed      bool
	broken         bool
	sentForGood    bool // something was sent that must not be sent twice
	bodyLost       bool
	retriesAllowed int
}

func (m *callModel) check(now time.Time, a resilience.Action) {
	m.t.Helper()
	if m.ended {
		if a != (resilience.Action{}) {
			m.t.Fatalf("%+v after the end", a)
		}
		return
	}
	m.live &^= a.Cancel
	switch a.Verb {
	case resilience.Try:
		m.try(now, a)
	case resilience.Wait:
		if a.Until.After(m.deadline) {
			m.t.Fatalf("waits past the deadline: %+v", a)
		}
	case resilience.Finish, resilience.Fail:
		m.ended = true
		if m.live != 0 {
			m.t.Fatalf("ended with attempts %b running: %+v", m.live, a)
		}
		if (a.Verb == resilience.Fail) != (a.Reason != resilience.None) {
			m.t.Fatalf("reason %v does not fit %+v", a.Reason, a)
		}
	}
}

func (m *callModel) try(now time.Time, a resilience.Action) {
	m.t.Helper()
	if a.Attempt != m.tries {
		m.t.Fatalf("attempt %d is the %dth", a.Attempt, m.tries)
	}
	m.tries++
	if a.Fresh != (a.Why == resilience.WhyStale) {
		m.t.Fatalf("fresh without stale: %+v", a)
	}
	if a.Why == resilience.WhyStale {
		m.stale++
	}
	second := a.Why == resilience.WhyBackup || a.Why == resilience.WhyDual
	if second {
		m.seconds++
		if m.live == 0 || !m.f.Idempotent || m.broken {
			m.t.Fatalf("overlaps with %b running, idempotent %t, broken %t", m.live, m.f.Idempotent, m.broken)
		}
	} else if m.live != 0 {
		m.t.Fatalf("tried %v beside %b", a.Why, m.live)
	}
	switch {
	case m.seconds > m.secondsAllowed:
		m.t.Fatalf("%d attempts beside others", m.seconds)
	case m.stale > 1 || m.tries-m.stale-m.seconds > 1+m.retriesAllowed:
		m.t.Fatalf("%d attempts, %d of them replays, with %d retries", m.tries, m.stale, m.retriesAllowed)
	case m.committed, m.sentForGood, m.bodyLost:
		m.t.Fatalf("tried again: committed %t, sent %t, body lost %t", m.committed, m.sentForGood, m.bodyLost)
	case m.broken && a.Why == resilience.WhyRetry:
		m.t.Fatal("retried while the breaker is open")
	case !a.Until.After(now) || a.Until.After(m.deadline):
		m.t.Fatalf("attempt until %v, deadline %v", a.Until.Sub(epoch), m.deadline.Sub(epoch))
	case m.p.PerTry > 0 && a.Until.After(now.Add(m.p.PerTry)):
		m.t.Fatal("attempt longer than per-try")
	case m.live>>a.Slot&1 == 1 || a.Cancel>>a.Slot&1 == 1:
		m.t.Fatalf("slot %d is taken", a.Slot)
	}
	m.live |= 1 << a.Slot
}

// result notes what a report means before it is made.
func (m *callModel) result(slot int, o resilience.Outcome) {
	if m.ended || m.live>>slot&1 == 0 {
		return
	}
	m.live &^= 1 << slot
	m.sentForGood = m.sentForGood || o.Sent && !m.f.Idempotent
	m.bodyLost = m.bodyLost || m.f.HasBody && !o.Replayable
	m.broken = m.broken || o.Broken
}

// tick checks what a Tick gave: of an attempt that it abandoned the worst is assumed.
func (m *callModel) tick(now time.Time, a resilience.Action) {
	m.t.Helper()
	if !m.ended && a.Cancel != 0 {
		m.sentForGood = m.sentForGood || !m.f.Idempotent
		m.bodyLost = m.bodyLost || m.f.HasBody
	}
	m.check(now, a)
}

func FuzzCall(f *testing.F) {
	f.Add(uint64(0x1234567), []byte{0, 1, 2, 3, 4, 5, 6, 7})
	f.Add(uint64(0xffffffff), []byte("\x81\x0f\xf0\x22\x10\xff\x43\x99"))
	f.Add(uint64(0x00ff00ff00ff), []byte("retry me once, retry me twice"))
	f.Fuzz(runCall)
}

// runCall plays what happens to one call.
func runCall(t *testing.T, setup uint64, events []byte) {
	bit := func(n int) bool { return setup>>n&1 == 1 }
	p := resilience.Policy{
		Timeout: 200 * time.Millisecond, PerTry: time.Duration(setup&3) * 40 * time.Millisecond,
		Retries: int(setup >> 2 & 3), On: resilience.DefaultConditions(),
		BackoffBase: time.Duration(setup>>4&3) * 5 * time.Millisecond, BackoffMax: 12 * time.Millisecond,
	}
	facts := resilience.Facts{Idempotent: bit(8), HasBody: bit(9), Rand: setup}
	allowed := 0
	switch setup >> 12 & 3 {
	case 1:
		p.DualSend, allowed = true, 1
	case 2:
		facts.BackupAfter, allowed = time.Duration(setup>>6&3)*10*time.Millisecond, 1
	case 3:
		facts.BackupAfter, facts.Backups = 10*time.Millisecond, resilience.NewBudget(resilience.BudgetConfig{})
	}
	m := &callModel{t: t, p: p, f: facts, deadline: epoch.Add(p.Timeout), retriesAllowed: p.Retries, secondsAllowed: allowed}
	if bit(10) {
		facts.Deadline = epoch.Add(time.Duration(setup>>16&0xff) * time.Millisecond)
		if facts.Deadline.Before(m.deadline) {
			m.deadline = facts.Deadline
		}
	}
	var budget *resilience.Budget
	if bit(11) {
		budget = resilience.NewBudget(resilience.BudgetConfig{MinPerSecond: 0.1})
		m.retriesAllowed = min(p.Retries, 1)
	}
	var c resilience.Call
	now := epoch
	m.check(now, c.Start(&p, budget, now, facts))
	for len(events) > 1 {
		now = now.Add(time.Duration(events[0]>>3) * time.Millisecond)
		playEvent(m, &c, now, events[0]&7, events[1])
		events = events[2:]
	}
	finishCall(m, &c, now)
}

func playEvent(m *callModel, c *resilience.Call, now time.Time, what, detail byte) {
	slot := int(detail & 3)
	switch what {
	case 0:
		m.tick(now, c.Tick(now))
	case 1:
		m.committed = m.committed || !m.ended && m.live>>slot&1 == 1
		m.check(now, c.Commit(now, slot))
	case 2:
		if detail < 128 {
			h := resilience.Chance{AtHand: detail&1 == 1, Untried: detail&2 == 2, Broken: detail&4 == 4}
			m.check(now, c.Backup(now, h))
		}
		if detail > 240 {
			m.check(now, c.CallerGone(now))
		}
	case 3:
		if detail > 200 {
			m.broken = true
			m.check(now, c.BreakerOpened(now))
		}
	default:
		o := resilience.Outcome{
			Kind: resilience.Kind(detail >> 2 % 9), Status: []int{200, 500, 503, 404}[detail>>6&3],
			Sent: what&1 == 1, Reused: detail&0x80 != 0, Replayable: what&2 == 2 && !m.bodyLost, Untried: detail&0x40 != 0,
			Broken: detail == 0x55,
		}
		m.result(slot, o)
		m.check(now, c.Result(now, slot, o))
	}
}

// finishCall only ticks when told to, and must come to the end by the deadline.
func finishCall(m *callModel, c *resilience.Call, now time.Time) {
	for range 1000 {
		if m.ended {
			return
		}
		a := c.Tick(now)
		if now.After(m.deadline) && a.Verb == resilience.Try {
			m.t.Fatal("tries after the deadline")
		}
		m.tick(now, a)
		if a.Verb == resilience.Wait && a.Until.After(now) {
			now = a.Until
		}
	}
	m.t.Fatal("never ends")
}

// TestCallShapes pins what the scripts do not show.
func TestCallShapes(t *testing.T) {
	p := resilience.Policy{Timeout: 1<<63 - 1, PerTry: 1<<63 - 1, Retries: 2, On: resilience.DefaultConditions(), BackoffBase: 1<<63 - 1}
	var c resilience.Call
	a := c.Start(&p, nil, epoch, resilience.Facts{Idempotent: true})
	if !a.Until.After(epoch) {
		t.Errorf("endless times overflow: %v", a)
	}
	a = c.Result(epoch, 0, resilience.Outcome{Kind: resilience.Refused})
	if a.Verb == resilience.Wait && !a.Until.After(epoch) {
		t.Errorf("endless backoff overflows: %v", a)
	}
	if a = c.Start(&p, nil, epoch, resilience.Facts{}); a.Verb != resilience.Try || a.Attempt != 0 || c.Done() || c.Attempts() != 1 {
		t.Errorf("a started call cannot be started again: %v", a)
	}
	c.Result(epoch.Add(-time.Hour), 0, resilience.Outcome{Kind: resilience.Refused, Untried: true})
	if a = c.Tick(epoch.Add(-time.Hour)); a.Verb != resilience.Wait {
		t.Errorf("a clock that ran back ends the call: %v", a)
	}
}

// TestJitter checks that waits spread over the whole of 0 … ceiling.
func TestJitter(t *testing.T) {
	p := resilience.Policy{Timeout: time.Hour, Retries: 1, On: resilience.DefaultConditions(), BackoffBase: time.Second}
	var c resilience.Call
	var sum, low, high time.Duration
	const n = 4000
	low = time.Hour
	for i := range uint64(n) {
		c.Start(&p, nil, epoch, resilience.Facts{Idempotent: true, Rand: i})
		d := c.Result(epoch, 0, resilience.Outcome{Kind: resilience.Refused}).Until.Sub(epoch)
		sum, low, high = sum+d, min(low, d), max(high, d)
	}
	mean := sum / n
	if mean < 480*time.Millisecond || mean > 520*time.Millisecond || low > 5*time.Millisecond || high > time.Second || high < 995*time.Millisecond {
		t.Errorf("mean %v, from %v to %v", mean, low, high)
	}
}
