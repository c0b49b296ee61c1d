package resilience_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

type callScript struct {
	policy resilience.Policy
	budget *resilience.Budget
	facts  resilience.Facts
	args   args
	call   resilience.Call
}

// newCallScript reads: timeout, per_try, retries, when (comma-separated), base, max, budget=ratio,min; idempotent, body,
// deadline (since the epoch), rand; backup (after), cap (ratio), dual. Without budget the call shares that of the call before it.
func newCallScript(a args, old subject) *callScript {
	s := &callScript{args: a}
	if prev, ok := old.(*callScript); ok {
		s.budget = prev.budget
	}
	on := resilience.DefaultConditions()
	if a.has("when") {
		var err error
		if on, err = resilience.ParseConditions(strings.Split(a["when"], ",")); err != nil {
			panic(err)
		}
	}
	s.policy = resilience.Policy{
		Timeout: a.duration("timeout"), PerTry: a.duration("per_try"), Retries: a.int("retries"), On: on,
		BackoffBase: a.duration("base"), BackoffMax: a.duration("max"), DualSend: a.has("dual"),
	}
	if a.has("budget") {
		ratio, least, _ := strings.Cut(a["budget"], ",")
		b := args{"ratio": ratio, "min": least}
		s.budget = resilience.NewBudget(resilience.BudgetConfig{Ratio: b.ratio("ratio"), MinPerSecond: b.ratio("min")})
	}
	s.facts = resilience.Facts{Idempotent: a.has("idempotent"), HasBody: a.has("body"), Rand: uint64(a.int("rand"))}
	s.facts.BackupAfter = a.duration("backup")
	if prev, ok := old.(*callScript); ok {
		s.facts.Backups = prev.facts.Backups
	}
	if a.has("cap") {
		s.facts.Backups = resilience.NewBudget(resilience.BudgetConfig{Ratio: a.ratio("cap")})
	}
	if a.has("deadline") {
		s.facts.Deadline = epoch.Add(a.duration("deadline"))
	}
	return s
}

func (s *callScript) event(now time.Time, words []string) []string {
	switch words[0] {
	case "start":
		return show(s.call.Start(&s.policy, s.budget, now, s.facts))
	case "result":
		return show(s.call.Result(now, atoi(words[1]), outcome(words[2:])))
	case "tick":
		return show(s.call.Tick(now))
	case "backup":
		c := parse(words[1:])
		return show(s.call.Backup(now, resilience.Chance{AtHand: c.has("at_hand"), Untried: c.has("untried"), Broken: c.has("broken")}))
	case "backup_at":
		if at, ok := s.call.BackupAt(); ok {
			return one("%s", clock(at))
		}
		return one("none")
	case "commit":
		return show(s.call.Commit(now, atoi(words[1])))
	case "gone":
		return show(s.call.CallerGone(now))
	case "breaker_opened":
		return show(s.call.BreakerOpened(now))
	}
	return one("unknown event %s", words[0])
}

// outcome reads "503 sent replayable untried", "reset reused", …
func outcome(words []string) resilience.Outcome {
	a := parse(words)
	o := resilience.Outcome{
		Sent: a.has("sent"), Reused: a.has("reused"), Replayable: a.has("replayable"), Untried: a.has("untried"),
		Broken: a.has("broken"), Pushback: a.duration("pushback"),
	}
	for k := resilience.Refused; k <= resilience.TooBusy; k++ {
		if k.String() == words[0] {
			o.Kind = k
			return o
		}
	}
	o.Kind, o.Status, o.Sent = resilience.Answered, atoi(words[0]), true
	return o
}

func show(a resilience.Action) []string {
	w := []string{a.Verb.String()}
	add := func(format string, v any) { w = append(w, fmt.Sprintf(format, v)) }
	switch a.Verb {
	case resilience.Try:
		add("attempt=%d", a.Attempt)
		add("slot=%d", a.Slot)
	case resilience.Finish:
		add("attempt=%d", a.Attempt)
	case resilience.Fail:
		add("reason=%v", a.Reason)
	}
	if a.Verb == resilience.Try || a.Verb == resilience.Wait {
		add("until=%s", clock(a.Until))
	}
	if a.Why != resilience.WhyNone {
		add("why=%v", a.Why)
	}
	if a.Fresh {
		w = append(w, "fresh")
	}
	if a.Cancel != 0 {
		add("cancel=%04b", a.Cancel)
	}
	return []string{strings.Join(w, " ")}
}

type budgetScript struct{ b *resilience.Budget }

// newBudgetScript reads ratio and min.
func newBudgetScript(a args) *budgetScript {
	cfg := resilience.BudgetConfig{Ratio: a.ratio("ratio"), MinPerSecond: a.ratio("min")}
	return &budgetScript{resilience.NewBudget(cfg)}
}

func (s *budgetScript) event(now time.Time, words []string) []string {
	n := count(words, 1)
	switch words[0] {
	case "call":
		for range n {
			s.b.Call(now)
		}
		return nil
	case "take":
		got := 0
		for range n {
			if s.b.Take(now) {
				got++
			}
		}
		return one("%d of %d", got, n)
	}
	return one("unknown event %s", words[0])
}
