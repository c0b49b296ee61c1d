package resilience

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// healthBuckets is how many buckets the window of an endpoint has.
const healthBuckets = 10

// The kinds of event of an endpoint's window.
const (
	attemptsOK = iota
	attemptsFailed
	attemptsTimedOut
)

// EndpointHealth is what outlier detection remembers of one endpoint. It belongs to the endpoint's identity and outlives
// configurations; the ejected bit that balancers read is not here. The zero value is a healthy endpoint.
type EndpointHealth struct {
	// Address is for the owner, to know whom an Outlier speaks of. It does not change.
	Address string

	// A success takes the short way as long as quiet says: it is counted in fresh, and mu is not needed.
	quiet atomic.Int64  // end of the quiet time, in ns since base; 0: there is none
	fresh atomic.Uint32 // successes of the quiet time
	base  time.Time     // written once, before quiet

	// Of the sample in progress (SlowNode); not touched where slow endpoints are not looked for.
	timed, spent atomic.Uint64 // attempts that were answered or timed out, and the nanoseconds they took

	mu          sync.Mutex
	win         window // guarded by mu, as all down to ejections
	consecutive int    // failures since the last success
	calm        time.Time
	ejections   int       // how often it was ejected, less one for each calm eject_for
	sampled     time.Time // when the sample in progress began; zero: none has
	over        uint64    // bit i: the sample i before the last complete one was over the bound

	// Written with both mu and the Outlier's lock held, read with either.
	ejected   bool
	reason    EjectReason
	until     time.Time // not readmitted before
	nextProbe time.Time
}

// HealthState is the health of an endpoint, for the admin page and explain.
type HealthState struct {
	Ejected     bool
	Reason      EjectReason // of the ejection in force
	Until       time.Time   // not readmitted before
	Ejections   int         // the number that the next ejection adds one to; falls with time
	Consecutive int         // failures since the last success
}

// well counts an attempt that succeeded. While there is nothing to forgive and the bucket lasts, that is one addition. Only
// a sample that is over its time can make it say that h should be ejected.
func (h *EndpointHealth) well(now time.Time, cfg *OutlierConfig, took time.Duration) EjectReason {
	if end := h.quiet.Load(); end != 0 && int64(now.Sub(h.base)) < end {
		h.time(cfg, took)
		h.fresh.Add(1)
		return EjectNone
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ejected {
		return EjectNone
	}
	h.advanceLocked(now, cfg)
	slow := h.sampleLocked(now, cfg)
	h.time(cfg, took)
	h.win.add(attemptsOK, 1)
	h.consecutive = 0
	h.quiet.Store(int64(h.win.begin.Add(h.win.width).Sub(h.base)))
	if slow {
		return EjectSlowNode
	}
	return EjectNone
}

// time takes how long an attempt took into the sample in progress.
func (h *EndpointHealth) time(cfg *OutlierConfig, took time.Duration) {
	if cfg.Slow.AverageOver > 0 {
		h.timed.Add(1)
		h.spent.Add(uint64(max(took, 0)))
	}
}

// sampleLocked ends the sample in progress when its time is over, and reports whether h has just been too slow for too long.
func (h *EndpointHealth) sampleLocked(now time.Time, cfg *OutlierConfig) bool {
	s := &cfg.Slow
	if s.AverageOver <= 0 {
		return false
	}
	if h.sampled.IsZero() {
		h.sampled = now
	}
	steps := now.Sub(h.sampled) / s.Every
	if steps <= 0 {
		return false
	}
	h.sampled = h.sampled.Add(steps * s.Every)
	n, spent := h.timed.Swap(0), h.spent.Swap(0)
	h.over <<= 1
	if n > 0 && spent > n*uint64(s.AverageOver) {
		h.over |= 1
	}
	h.over <<= min(steps-1, 64) // those in which nothing was tried
	return h.slowLocked(cfg)
}

// slowLocked reports whether so many of the last samples were over the bound that it is no jitter.
func (h *EndpointHealth) slowLocked(cfg *OutlierConfig) bool {
	s := &cfg.Slow
	return s.AverageOver > 0 && bits.OnesCount64(h.over<<(64-min(s.Points, 64))) >= s.Exceed
}

// ill counts an attempt that failed and says why h should be ejected, if it should. What still comes from an ejected
// endpoint, of calls from before or by panic routing, does not count: its counters start clean after the return.
func (h *EndpointHealth) ill(now time.Time, cfg *OutlierConfig, k Kind, took time.Duration) EjectReason {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ejected {
		return EjectNone
	}
	h.advanceLocked(now, cfg)
	h.settleLocked(now, cfg)
	h.sampleLocked(now, cfg)
	h.calm = now
	h.consecutive++
	if k == Answered || k == TimedOut { // a refusal takes no time at all
		h.time(cfg, took)
	}
	if k == TimedOut || k == ConnectTimed {
		h.win.add(attemptsTimedOut, 1)
	} else {
		h.win.add(attemptsFailed, 1)
	}
	return h.verdictLocked(cfg)
}

// verdict says why h should be ejected now, if it should.
func (h *EndpointHealth) verdict(cfg *OutlierConfig) EjectReason {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.verdictLocked(cfg)
}

// advanceLocked ends the quiet time, takes its successes into the bucket they belong to, and goes on to now's bucket.
func (h *EndpointHealth) advanceLocked(now time.Time, cfg *OutlierConfig) {
	if h.win.ring == nil {
		h.win.start(now, healthBuckets, max(1, cfg.Window/healthBuckets))
		h.base = h.win.begin
	}
	h.quiet.Store(0)
	h.win.add(attemptsOK, h.fresh.Swap(0))
	h.win.advance(now)
}

func (h *EndpointHealth) verdictLocked(cfg *OutlierConfig) EjectReason {
	if h.consecutive >= cfg.ConsecutiveFailures {
		return EjectConsecutive
	}
	if h.slowLocked(cfg) {
		return EjectSlowNode
	}
	all := h.win.sum.total()
	if all < uint64(cfg.RequestVolume) {
		return EjectNone
	}
	timeouts := uint64(h.win.sum[attemptsTimedOut])
	failures := timeouts + uint64(h.win.sum[attemptsFailed])
	switch {
	case timeouts > 0 && timeouts*million >= millionths(cfg.TimeoutRatio)*all:
		return EjectTimeoutRatio
	case failures > 0 && failures*million >= millionths(cfg.ErrorRatio)*all:
		return EjectErrorRatio
	}
	return EjectNone
}

// settleLocked takes one off the number of ejections for each eject_for without failure.
func (h *EndpointHealth) settleLocked(now time.Time, cfg *OutlierConfig) {
	if quiet := now.Sub(h.calm); h.ejections > 0 && quiet >= cfg.EjectFor {
		n := int(quiet / cfg.EjectFor)
		h.ejections = max(0, h.ejections-n)
		h.calm = h.calm.Add(time.Duration(n) * cfg.EjectFor)
	}
}

// eject marks h ejected unless it is so, or was found well meanwhile. The Outlier's lock is held.
func (h *EndpointHealth) eject(now time.Time, cfg *OutlierConfig) (reason EjectReason, until time.Time, times int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ejected {
		return EjectNone, time.Time{}, 0
	}
	reason = h.verdictLocked(cfg)
	if reason == EjectNone {
		return EjectNone, time.Time{}, 0
	}
	h.settleLocked(now, cfg)
	h.ejections++
	// The number stops counting where it no longer prolongs: after a long illness it must not take days to forget.
	h.ejections = min(h.ejections, max(1, int((cfg.EjectMax+cfg.EjectFor-1)/cfg.EjectFor)))
	h.ejected, h.reason = true, reason
	h.quiet.Store(0)
	h.until = now.Add(min(cfg.EjectFor*time.Duration(h.ejections), cfg.EjectMax))
	h.nextProbe = h.until
	return reason, h.until, h.ejections
}

// readmit clears all but the number of ejections. The Outlier's lock is held.
func (h *EndpointHealth) readmit(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ejected, h.reason = false, EjectNone
	h.until, h.nextProbe = time.Time{}, time.Time{}
	h.consecutive = 0
	h.fresh.Store(0)
	h.win.clear()
	h.timed.Store(0)
	h.spent.Store(0)
	h.over, h.sampled = 0, time.Time{}
	h.calm = now
}

// due reports whether h must be probed now, and if so that the next time is one interval later; next is that time.
func (h *EndpointHealth) due(now time.Time, interval time.Duration) (due bool, next time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Before(h.nextProbe) {
		return false, h.nextProbe
	}
	h.nextProbe = now.Add(interval)
	return true, h.nextProbe
}
