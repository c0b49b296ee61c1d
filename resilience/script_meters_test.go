package resilience_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

type breakerScript struct {
	b       *resilience.Breaker
	tickets map[string]resilience.Ticket
}

// newBreakerScript reads threshold, volume, window, buckets, sleep, probes, slow, ratio.
func newBreakerScript(a args) *breakerScript {
	return &breakerScript{
		b: resilience.NewBreaker(resilience.BreakerConfig{
			ErrorThreshold: a.ratio("threshold"), RequestVolume: a.int("volume"), Window: a.duration("window"),
			Buckets: a.int("buckets"), SleepWindow: a.duration("sleep"), HalfOpenProbes: a.int("probes"),
			SlowOver: a.duration("slow"), SlowRatio: a.ratio("ratio"),
		}),
		tickets: map[string]resilience.Ticket{},
	}
}

func callResult(s string) (resilience.CallResult, bool) {
	for r := resilience.CallOK; r <= resilience.CallSlow; r++ {
		if r.String() == s {
			return r, true
		}
	}
	return 0, false
}

func (s *breakerScript) event(now time.Time, words []string) []string {
	if r, ok := callResult(words[0]); ok {
		return s.calls(now, r, count(words, 1))
	}
	switch words[0] {
	case "admit": // NAME: reported later by done or cancel
		a := s.b.Admit(now)
		s.tickets[words[1]] = a.Ticket
		return one("%s", admission(a))
	case "done":
		r, _ := callResult(words[2])
		return change(s.b.Record(now, s.tickets[words[1]], r), "")
	case "reject": // by our own limit, before the breaker was asked
		return change(s.b.Record(now, 0, resilience.CallRejected), "")
	case "cancel":
		s.b.Cancel(now, s.tickets[words[1]])
		return nil
	case "state":
		c := s.b.Counts(now)
		slow := ""
		if c.Slow > 0 {
			slow = fmt.Sprintf(" slow=%d", c.Slow)
		}
		return one("%v success=%d failure=%d timeout=%d rejected=%d%s bad=%d/%d", s.b.State(now),
			c.OK, c.Failed, c.TimedOut, c.Rejected, slow, c.All()-c.OK-c.Slow, c.All())
	case "took": // DURATION: a call with a good answer that took so long, as the engine reports it
		a := s.b.Admit(now)
		took := parse([]string{"t=" + words[1]}).duration("t")
		var out []string
		for range count(words, 2) {
			out = append(out, change(s.b.Done(now, a.Ticket, resilience.Action{Verb: resilience.Finish}, resilience.Outcome{Status: 200}, took), "")...)
		}
		return out
	}
	return one("unknown event %s", words[0])
}

// calls makes n calls that end at once, and stops at the first that is refused.
func (s *breakerScript) calls(now time.Time, r resilience.CallResult, n int) (out []string) {
	for i := range n {
		a := s.b.Admit(now)
		out = append(out, change(a.Change, fmt.Sprintf(" before call %d", i+1))...)
		if !a.OK {
			return append(out, admission(a))
		}
		out = append(out, change(s.b.Record(now, a.Ticket, r), fmt.Sprintf(" by call %d", i+1))...)
	}
	return out
}

func admission(a resilience.Admission) string {
	w := "refused until=" + clock(a.Until)
	if a.OK {
		w = "admitted"
	}
	if a.Probe {
		w = "probe"
	}
	return strings.TrimSpace(w + " " + a.Change.String())
}

func change(c resilience.BreakerChange, suffix string) []string {
	if c == resilience.Unchanged {
		return nil
	}
	if c == resilience.OpenedSlow {
		suffix += " why=" + c.Why()
	}
	return []string{c.String() + suffix}
}

type outlierScript struct {
	o    *resilience.Outlier
	ends []*resilience.EndpointHealth
}

// newOutlierScript reads n (endpoints e0, e1, …), consecutive, errors, timeouts, volume, window, for, longest, max, every,
// and of slow_node slow, sample, points, exceed.
func newOutlierScript(a args) *outlierScript {
	s := &outlierScript{o: resilience.NewOutlier(resilience.OutlierConfig{
		ConsecutiveFailures: a.int("consecutive"), ErrorRatio: a.ratio("errors"), TimeoutRatio: a.ratio("timeouts"),
		RequestVolume: a.int("volume"), Window: a.duration("window"), EjectFor: a.duration("for"),
		EjectMax: a.duration("longest"), MaxEjected: a.ratio("max"), ProbeInterval: a.duration("every"),
		Slow: resilience.SlowNode{
			AverageOver: a.duration("slow"), Every: a.duration("sample"), Points: a.int("points"), Exceed: a.int("exceed"),
		},
	})}
	n := a.int("n")
	for i := range n {
		s.ends = append(s.ends, &resilience.EndpointHealth{Address: fmt.Sprintf("e%d", i)})
	}
	s.o.SetSize(epoch, n, n)
	return s
}

func (s *outlierScript) end(name string) *resilience.EndpointHealth {
	return s.ends[atoi(strings.TrimPrefix(name, "e"))]
}

func (s *outlierScript) event(now time.Time, words []string) []string {
	switch words[0] {
	case "attempt": // e3 503 [times]
		return s.attempts(now, s.end(words[1]), outcome(words[2:3]), count(words, 3))
	case "took": // e3 600ms [times]: a good answer after so long
		o := resilience.Outcome{Kind: resilience.Answered, Status: 200, Sent: true, Took: parse([]string{"t=" + words[2]}).duration("t")}
		return s.attempts(now, s.end(words[1]), o, count(words, 3))
	case "probes":
		due, next := s.o.ProbesDue(now, nil)
		return one("probe [%s] next=%s", addresses(due), clock(next))
	case "probe": // e3 ok|bad
		return one("%s", verdict(s.o.ProbeResult(now, s.end(words[1]), words[2] == "ok")))
	case "size": // known usable
		return one("readmit [%s]", addresses(s.o.SetSize(now, atoi(words[1]), atoi(words[2]))))
	case "forget":
		s.o.Forget(now, s.end(words[1]))
		return nil
	case "state":
		h := s.o.State(now, s.end(words[1]))
		return one("ejected=%t reason=%q until=%s ejections=%d consecutive=%d out=%d", h.Ejected, h.Reason,
			clock(h.Until), h.Ejections, h.Consecutive, s.o.Ejected())
	}
	return one("unknown event %s", words[0])
}

func (s *outlierScript) attempts(now time.Time, h *resilience.EndpointHealth, o resilience.Outcome, n int) (out []string) {
	for i := range n {
		if v := s.o.Record(now, h, o); v.Act != resilience.Keep {
			out = append(out, fmt.Sprintf("%s by attempt %d", verdict(v), i+1))
		}
	}
	return out
}

func verdict(v resilience.EjectVerdict) string {
	w := v.Act.String()
	if v.Reason != resilience.EjectNone {
		w += " reason=" + v.Reason.String()
	}
	if v.Act == resilience.Eject {
		w += fmt.Sprintf(" until=%s times=%d", clock(v.Until), v.Times)
	}
	return w
}

func addresses(hs []*resilience.EndpointHealth) string {
	w := make([]string, len(hs))
	for i, h := range hs {
		w[i] = h.Address
	}
	return strings.Join(w, " ")
}

type limiterScript struct {
	l       *resilience.Limiter
	waiters map[string]*resilience.Waiter
	woken   []string
}

// newLimiterScript reads max, waiting, wait, ranked, name (as its Reason: concurrency or overloaded); it adopts the one before.
func newLimiterScript(a args, old subject) *limiterScript {
	s := &limiterScript{waiters: map[string]*resilience.Waiter{}}
	cfg := resilience.LimiterConfig{Max: a.int("max"), Waiting: a.int("waiting"), Wait: a.duration("wait"), Ranked: a.has("ranked")}
	cfg.Name = resilience.LimitInFlight
	if a["name"] == resilience.Concurrency.String() {
		cfg.Name = resilience.LimitConcurrency
	}
	s.l = resilience.NewLimiter(cfg)
	if prev, ok := old.(*limiterScript); ok {
		s.l, s.waiters = s.l.Adopt(prev.l), prev.waiters
		for name, w := range s.waiters {
			w.Wake = func() { s.woken = append(s.woken, name) }
		}
	}
	return s
}

func (s *limiterScript) event(now time.Time, words []string) []string {
	s.woken = nil
	switch words[0] {
	case "acquire": // NAME [rank=…] [deadline=…]
		return one("%s", s.acquire(now, words[1], parse(words[2:])))
	case "release":
		s.wake(now, s.l.Release(now))
	case "grant":
		s.wake(now, s.l.Grant(now))
	case "leave":
		p, granted := s.l.Leave(s.waiters[words[1]])
		if granted {
			return one("granted")
		}
		return one("%s", pass(p))
	case "use":
	default:
		return one("unknown event %s", words[0])
	}
	runs, waits := s.l.InUse()
	return one("woke [%s] running=%d waiting=%d", strings.Join(s.woken, " "), runs, waits)
}

func (s *limiterScript) acquire(now time.Time, name string, a args) string {
	p := s.l.Acquire()
	if p.Verdict == resilience.Queue {
		w := &resilience.Waiter{Wake: func() { s.woken = append(s.woken, name) }, Rank: uint8(a.int("rank"))}
		s.waiters[name] = w
		var deadline time.Time
		if a.has("deadline") {
			deadline = epoch.Add(a.duration("deadline"))
		}
		if p = s.l.Enqueue(now, deadline, w); p.Shed != nil {
			p.Shed.Wake()
			return pass(p) + " shed=" + strings.Join(s.woken, " ")
		}
	}
	return pass(p)
}

// wake does what an engine does after Release.
func (s *limiterScript) wake(now time.Time, w *resilience.Waiter) {
	for ; w != nil; w = s.l.Grant(now) {
		w.Wake()
	}
}

func pass(p resilience.Pass) string {
	switch p.Verdict {
	case resilience.Queue:
		return "queue until=" + clock(p.Until)
	case resilience.Turned:
		return fmt.Sprintf("refused limit=%v reason=%v", p.Limit, p.Limit.Reason())
	}
	return p.Verdict.String()
}
