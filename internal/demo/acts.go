package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

const (
	breakerOpen = "breaker_open"
	degraded    = "degraded"
	itemPath    = "/items/7"
)

// balanced shows that calls are routed by host and spread evenly.
func (s *stage) balanced(ctx context.Context) {
	s.act("1. Routed and balanced")
	s.say("300 calls go to the proxy with \"Host: catalog\"; it has three endpoints and takes them in turn")
	t := s.app.burst(ctx, "catalog", itemPath, 300)
	s.claim(t.failed == 0 && t.calls == 300, "all 300 were answered: %d failed", t.failed)
	even := true
	for _, e := range s.catalog {
		n := t.toys[e.name]
		even = even && n >= 95 && n <= 105
	}
	s.claim(even, "evenly: %s", shares(t, s.catalog))
	a := s.app.call(ctx, "nobody", "/")
	s.claim(a.status == 404 && a.reason == "no_route", "a host that no service has is refused: %d, x-sidecar-reason: %s", a.status, a.reason)
	s.say("the body says so too: %s", strings.TrimSpace(a.body))
}

// oneDies shows that retries hide a dead endpoint until it is ejected.
func (s *stage) oneDies(ctx context.Context) {
	s.act("2. One endpoint dies")
	dead := s.catalog[0]
	load := s.app.steady(ctx, "catalog", itemPath)
	defer load.end()
	until(ctx, patience, func() bool { return load.calls() > 100 })
	before := s.counters("catalog").Retries
	mark := time.Now()
	dead.kill()
	s.say("%s is killed in the middle of traffic: its connections break, its port refuses new ones", dead.name)
	e, found := s.event(ctx, mark, ejected(dead))
	s.claim(found, "the proxy leaves it out %s later; the event: %s %s %s (%s)", short(e.Time.Sub(mark)), e.Kind, e.Service, e.Endpoint, e.Detail)
	s.settle(ctx, load)
	retries := s.counters("catalog").Retries - before
	s.claim(e.Detail == "consecutive_failures" && retries >= 5 && retries <= 5+crowd,
		"that took five failures in a row: %d calls had to be tried again (up to %d were on their way at once)", retries, crowd)
	t := load.take()
	s.claim(t.failed == 0, "each of them went to another endpoint: of %d calls %d failed", t.calls, t.failed)
	before = s.counters("catalog").Retries
	until(ctx, patience, func() bool { return load.calls() > 200 })
	lasting(ctx, s.pace.breath)
	t = load.take()
	s.claim(t.failed == 0 && t.toys[dead.name] == 0, "since then nobody tries it: %s", shares(t, s.catalog))
	s.claim(s.counters("catalog").Retries-before <= crowd, "and nothing has to be retried: %d retries in %d calls",
		s.counters("catalog").Retries-before, t.calls)
}

// oneReturns shows that only a probe that succeeds brings an endpoint back.
func (s *stage) oneReturns(ctx context.Context) {
	s.act("3. It comes back")
	back := s.catalog[0]
	load := s.app.steady(ctx, "catalog", itemPath)
	defer load.end()
	e, _ := s.happened(time.Time{}, ejected(back))
	over := e.Time.Add(s.pace.eject + 2*s.pace.probe)
	s.say("it is out for eject_for (%s) at least; after that a probe knocks every %s", s.pace.eject, s.pace.probe)
	lasting(ctx, time.Until(over))
	_, early := s.happened(e.Time, readmitted(back))
	s.claim(!early, "%s have passed, but it is still dead: the probe keeps it out, no call has to find out", short(time.Since(e.Time)))
	mark := time.Now()
	if err := back.start(ctx); err != nil {
		s.claim(false, "%s can be started again: %v", back.name, err)
		return
	}
	s.say("%s is started again on its old port", back.name)
	r, found := s.event(ctx, mark, readmitted(back))
	s.claim(found, "the next probe finds it well, %s later; the event: %s %s %s", short(r.Time.Sub(mark)), r.Kind, r.Service, r.Endpoint)
	t := load.take()
	failed := t.failed
	until(ctx, patience, func() bool { return load.calls() > 300 })
	t = load.take()
	s.claim(t.toys[back.name] > t.calls/5, "it has its share again: %s", shares(t, s.catalog))
	s.claim(failed+t.failed == 0, "and no call failed")
}

// oneIsSlow shows that a limit per try with a retry bounds the latency.
func (s *stage) oneIsSlow(ctx context.Context) {
	s.act("4. One endpoint hangs")
	sick := s.search[0]
	load := s.app.steady(ctx, "search", "/find")
	defer load.end()
	until(ctx, patience, func() bool { return load.calls() > 100 })
	t := load.take()
	s.claim(t.failed == 0, "search answers in %s (half of %d calls)", short(quantile(t.took, 0.5)), t.calls)
	was := sick.delay.Swap(int64(s.pace.slow))
	mark := time.Now()
	s.say("%s now takes %s to answer; per_try_timeout is %s", sick.name, s.pace.slow, s.pace.perTry)
	e, found := s.event(ctx, mark, ejected(sick))
	s.settle(ctx, load)
	t = load.take()
	s.claim(t.failed == 0, "an attempt is given up after %s and made at %s: of %d calls %d failed", s.pace.perTry, s.search[1].name, t.calls, t.failed)
	slowest := quantile(t.took, 1)
	s.claim(slowest < s.pace.slow*2/3, "nobody waited for it: the slowest call took %s", short(slowest))
	s.claim(found, "%s after the first late answer it is left out: %s %s %s (%s)", short(e.Time.Sub(mark)), e.Kind, e.Service, e.Endpoint, e.Detail)
	until(ctx, patience, func() bool { return load.calls() > 200 })
	lasting(ctx, s.pace.breath)
	t = load.take()
	s.claim(t.failed == 0 && t.toys[sick.name] == 0 && quantile(t.took, 0.5) < s.pace.perTry/2, "after that latency is what it was: p50 %s, p99 %s in %d calls",
		short(quantile(t.took, 0.5)), short(quantile(t.took, 0.99)), t.calls)
	sick.delay.Store(was)
	mark = time.Now()
	s.say("%s answers in time again", sick.name)
	_, found = s.event(ctx, mark, readmitted(sick))
	s.claim(found, "its probe asks for /healthz and notices: it is back %s later", short(time.Since(mark)))
	rest := load.end()
	s.claim(rest.failed == 0, "of the other %d calls %d failed", rest.calls, rest.failed)
}

// settle waits until the calls that were on their way have ended.
func (s *stage) settle(ctx context.Context, load *traffic) {
	n := load.calls()
	until(ctx, patience, func() bool { return load.calls() > n+3*crowd })
	lasting(ctx, s.pace.perTry)
}

// allDie shows the breaker.
func (s *stage) allDie(ctx context.Context) {
	s.act("5. A whole service dies")
	load := s.app.steady(ctx, "payments", "/pay")
	defer load.end()
	until(ctx, patience, func() bool { return load.calls() > 100 })
	t := load.take()
	s.claim(t.failed == 0, "payments is well: %d calls, %d failed", t.calls, t.failed)
	mark := time.Now()
	for _, e := range s.payments {
		e.kill()
	}
	s.say("all endpoints of payments are killed; there is nobody left to retry at")
	_, found := s.event(ctx, mark, breakerIs("open"))
	t = load.take()
	s.doomed += t.failed
	s.claim(found, "after %d failed calls (%s) more than half of its window failed: the breaker opens", t.failed, reasons(t))
	s.settle(ctx, load)
	s.doomed += load.take().failed
	tried, began := s.counters("payments").Attempts, time.Now()
	lasting(ctx, s.pace.phase)
	t, tried = load.take(), s.counters("payments").Attempts-tried
	took := time.Since(began)
	s.doomed += t.failed
	probes := uint64(took/s.pace.sleep) + 2
	s.claim(len(t.refused) > 0 && len(t.refused) >= t.calls-int(probes), "calls are refused at once, x-sidecar-reason: %s: %d of %d", breakerOpen, len(t.refused), t.calls)
	half := quantile(t.refused, 0.5)
	s.claim(half < 50*time.Millisecond, "half of the refusals took the app less than %s, there and back", short(half))
	s.claim(tried <= probes, "%d calls became %d attempts in %s: one probe each sleep_window (%s)", t.calls, tried, short(took), s.pace.sleep)
	mark = time.Now()
	for _, e := range s.payments {
		if err := e.start(ctx); err != nil {
			s.claim(false, "%s can be started again: %v", e.name, err)
			return
		}
	}
	s.say("payments is started again")
	c, found := s.event(ctx, mark, breakerIs("closed"))
	s.claim(found, "the next probe succeeds and the breaker closes, %s later", short(c.Time.Sub(mark)))
	s.settle(ctx, load)
	s.doomed += load.take().failed
	until(ctx, patience, func() bool { return load.calls() > 200 })
	t = load.end()
	s.claim(t.failed == 0, "payments is well again: %d calls, %d failed", t.calls, t.failed)
}

// reconfigured shows a reload in the middle of traffic.
func (s *stage) reconfigured(ctx context.Context) {
	s.act("6. A new configuration in the middle of traffic")
	load := s.app.steady(ctx, "catalog", itemPath)
	defer load.end()
	until(ctx, patience, func() bool { return load.calls() > 100 })
	s.say("the file is edited: a tenth of /items/ goes to a new version, /old is answered by the proxy itself")
	s.quote(added(s.document(), s.withCanary()))
	closed, start := s.app.closed.Load(), time.Now()
	err := s.reload(ctx, s.withCanary())
	took := time.Since(start)
	s.claim(err == nil, "it is read, checked, compiled and in force %s later%s", short(took), trouble(err))
	until(ctx, patience, func() bool { return load.calls() > 300 })
	t := load.take()
	s.claim(t.failed == 0, "of %d calls before, while and after, %d failed", t.calls, t.failed)
	s.claim(s.app.closed.Load() == closed, "and no connection of the app was closed: what it asks next goes by the new rules")
	t = s.app.burst(ctx, "catalog", itemPath, 1000)
	n := t.toys[s.canary.name]
	s.claim(t.failed == 0 && n >= 50 && n <= 150, "of 1000 more calls %d went to the new version", n)
	a := s.app.call(ctx, "catalog", "/old")
	s.claim(a.status == 410, "/old: %d, %q", a.status, strings.TrimSpace(a.body))
}

// misconfigured shows that mistakes are refused whole, with their places.
func (s *stage) misconfigured(ctx context.Context) {
	s.act("7. A bad configuration")
	load := s.app.steady(ctx, "catalog", itemPath)
	defer load.end()
	until(ctx, patience, func() bool { return load.calls() > 50 })
	text, was := s.mistaken(), s.proxy.Snapshot()
	s.say("the file is edited again, by somebody in a hurry:")
	s.quote(added(s.withCanary(), text))
	err := s.reload(ctx, text)
	var mistakes config.Errors
	errors.As(err, &mistakes)
	s.claim(err != nil, "it is refused, with all its mistakes at once:")
	for _, m := range mistakes {
		m.File = filepath.Base(m.File)
		s.quote(m.Error())
	}
	s.claim(names(mistakes, lineOf(text, badTimeout)) && names(mistakes, lineOf(text, badRetry)) && len(mistakes) == 2,
		"each with its file, line and column: lines %d and %d", lineOf(text, badTimeout), lineOf(text, badRetry))
	s.claim(s.proxy.Snapshot() == was, "the last good configuration stays in force")
	until(ctx, patience, func() bool { return load.calls() > 200 })
	lasting(ctx, s.pace.breath)
	t := load.end()
	s.claim(t.failed == 0 && t.toys[s.canary.name] > 0, "and nobody notices: %d calls, %d failed, the new version has its share", t.calls, t.failed)
}

// names reports whether one of the mistakes is in a line.
func names(mistakes config.Errors, line int) bool {
	for _, m := range mistakes {
		if m.Line == line && m.Col > 0 && m.File != "" {
			return true
		}
	}
	return false
}

// shares lists how many answers came from which endpoint.
func shares(t *tally, list []*toy) string {
	parts := make([]string, len(list))
	for i, e := range list {
		parts[i] = fmt.Sprintf("%s %d", e.name, t.toys[e.name])
	}
	return strings.Join(parts, ", ")
}

// reasons lists why calls failed.
func reasons(t *tally) string {
	var parts []string
	for _, r := range slices.Sorted(maps.Keys(t.reasons)) {
		parts = append(parts, fmt.Sprintf("%s %d", r, t.reasons[r]))
	}
	return strings.Join(parts, ", ")
}

func trouble(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}
