package resilience

import (
	"sync"
	"time"
)

// OutlierConfig is the outlier detection of a policy. A zero field has the default written beside it. A ratio above 1 is
// never reached.
type OutlierConfig struct {
	ConsecutiveFailures int           // this many in a row eject (S-43); 5
	ErrorRatio          float64       // share of failed attempts, timeouts included, at which to eject (S-51); 0.5
	TimeoutRatio        float64       // share of attempts that timed out (S-51); 0.5
	RequestVolume       int           // attempts in the window below which the ratios say nothing; 20
	Window              time.Duration // of ten buckets; 10 s
	EjectFor            time.Duration // times the number of ejections; 10 s
	EjectMax            time.Duration // bound of that product; 5 min
	MaxEjected          float64       // share of the endpoints that may be out at once, but always one; 0.2
	ProbeInterval       time.Duration // between probes of an ejected endpoint (S-43); 10 s
	Slow                SlowNode      // without AverageOver: none is slow
}

// SlowNode says when an endpoint is too slow to serve: when the average time of its attempts was over a bound in so many of
// its last samples that it is no jitter (S-134, S-135). A sample without attempts is not over it.
type SlowNode struct {
	AverageOver time.Duration
	Every       time.Duration // one sample; 10 s
	Points      int           // samples looked at, 1 … 64; 5
	Exceed      int           // of those over the bound, so many eject; 4
}

func (c OutlierConfig) filled() OutlierConfig {
	fill(&c.ConsecutiveFailures, 5)
	fill(&c.ErrorRatio, 0.5)
	fill(&c.TimeoutRatio, 0.5)
	fill(&c.RequestVolume, 20)
	fill(&c.Window, 10*time.Second)
	fill(&c.EjectFor, 10*time.Second)
	fill(&c.EjectMax, 5*time.Minute)
	fill(&c.MaxEjected, 0.2)
	fill(&c.ProbeInterval, 10*time.Second)
	fill(&c.Slow.Every, 10*time.Second)
	fill(&c.Slow.Points, 5)
	fill(&c.Slow.Exceed, 4)
	return c
}

// EjectReason says what was wrong with an endpoint.
type EjectReason uint8

// The reasons.
const (
	EjectNone EjectReason = iota
	EjectConsecutive
	EjectErrorRatio
	EjectTimeoutRatio
	EjectSlowNode
)

// String returns the name of the knob that ejected.
func (r EjectReason) String() string {
	return [...]string{"", "consecutive_failures", "error_ratio", "timeout_ratio", "slow_node"}[r]
}

// EjectAct is what to do with an endpoint.
type EjectAct uint8

// The acts.
const (
	Keep    EjectAct = iota // as it is
	Eject                   // set its ejected bit
	Spare                   // it deserves to be ejected, but too many are, or it is the last one usable
	Readmit                 // clear its ejected bit
)

// String returns the name of a in logs and metrics.
func (a EjectAct) String() string { return [...]string{"keep", "eject", "spare", "readmit"}[a] }

// EjectVerdict is a decision about an endpoint.
type EjectVerdict struct {
	Act    EjectAct
	Reason EjectReason // Eject, Spare
	Until  time.Time   // Eject: when the first probe is due
	Times  int         // Eject: its number of ejections, this one included
}

// Outlier decides which endpoints of a service are kept out because they fail. It is fed with attempts and probes, knows
// how many are out, and returns verdicts; the engine sets the bits and runs the probes. It is shared. A nil Outlier keeps
// all.
type Outlier struct {
	cfg OutlierConfig
	s   *ejections // shared with the outliers that this one was adopted from and by
}

type ejections struct {
	mu     sync.Mutex // taken before that of an EndpointHealth
	known  int        // guarded by mu, as the rest
	usable int
	out    []*EndpointHealth
}

// NewOutlier returns a detector of a service about whose endpoints nothing is known yet: it ejects none before SetSize.
func NewOutlier(cfg OutlierConfig) *Outlier { return &Outlier{cfg: cfg.filled(), s: new(ejections)} }

// Adopt returns a detector with the configuration of o that goes on with what prev knows.
func (o *Outlier) Adopt(prev *Outlier) *Outlier {
	switch {
	case o == nil || prev == nil:
		return o
	case o.cfg == prev.cfg:
		return prev
	}
	return &Outlier{cfg: o.cfg, s: prev.s}
}

// SetSize tells how many endpoints the service has and how many of them nothing but outlier detection keeps out. It
// returns those that are readmitted because too many are out now, soonest due first. Call it once the endpoints are in
// force, not while they are compiled.
func (o *Outlier) SetSize(now time.Time, known, usable int) (readmitted []*EndpointHealth) {
	if o == nil {
		return nil
	}
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	o.s.known, o.s.usable = known, usable
	for n := len(o.s.out); n > 0 && !o.fitsLocked(n); n = len(o.s.out) {
		first := 0
		for i, h := range o.s.out {
			if h.until.Before(o.s.out[first].until) {
				first = i
			}
		}
		h := o.s.out[first]
		h.readmit(now)
		o.s.removeLocked(h)
		readmitted = append(readmitted, h)
	}
	return readmitted
}

// Record counts an attempt at the endpoint of h: each one but those that Call replays as stale (WhyStale), since a pool's
// dead connections say nothing about an endpoint. A caller who left, a full pool and a lack of endpoints are not counted.
func (o *Outlier) Record(now time.Time, h *EndpointHealth, out Outcome) EjectVerdict {
	switch {
	case o == nil:
		return EjectVerdict{}
	case out.Kind == Answered && out.Status < 500 && !out.GRPC.failed(): // not Failed, without copying out
		if h.well(now, &o.cfg, out.Took) == EjectNone {
			return EjectVerdict{}
		}
	case !out.Failed():
		return EjectVerdict{}
	case h.ill(now, &o.cfg, out.Kind, out.Took) == EjectNone:
		return EjectVerdict{}
	}
	return o.eject(now, h)
}

// eject takes h out, if that may be and its state still says so.
func (o *Outlier) eject(now time.Time, h *EndpointHealth) EjectVerdict {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if !o.fitsLocked(len(o.s.out) + 1) {
		return EjectVerdict{Act: Spare, Reason: h.verdict(&o.cfg)}
	}
	reason, until, times := h.eject(now, &o.cfg)
	if reason == EjectNone {
		return EjectVerdict{}
	}
	o.s.out = append(o.s.out, h)
	return EjectVerdict{Act: Eject, Reason: reason, Until: until, Times: times}
}

// fitsLocked reports whether n endpoints may be out: at most max(1, floor(max_ejected × known)), and one usable stays.
func (o *Outlier) fitsLocked(n int) bool {
	share := millionths(o.cfg.MaxEjected) * uint64(max(0, o.s.known)) / million
	return uint64(n) <= max(1, share) && n < o.s.usable
}

// ProbesDue appends to dst the ejected endpoints that must be probed now: their time is over and no probe went out in the
// last interval. next is when to ask again; zero if none is ejected.
func (o *Outlier) ProbesDue(now time.Time, dst []*EndpointHealth) (due []*EndpointHealth, next time.Time) {
	if o == nil {
		return dst, time.Time{}
	}
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	for _, h := range o.s.out {
		is, at := h.due(now, o.cfg.ProbeInterval)
		if is {
			dst = append(dst, h)
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return dst, next
}

// ProbeResult reports a probe of h. One that succeeds after the time of the ejection is over readmits (S-43); an earlier
// one says nothing.
func (o *Outlier) ProbeResult(now time.Time, h *EndpointHealth, ok bool) EjectVerdict {
	if o == nil || !ok {
		return EjectVerdict{}
	}
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if !h.ejected || now.Before(h.until) {
		return EjectVerdict{}
	}
	h.readmit(now)
	o.s.removeLocked(h)
	return EjectVerdict{Act: Readmit}
}

// Forget drops an endpoint that left the service, so that it no longer counts as out. If it comes back it is healthy.
func (o *Outlier) Forget(now time.Time, h *EndpointHealth) {
	if o == nil {
		return
	}
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if h.ejected {
		h.readmit(now)
		o.s.removeLocked(h)
	}
}

// State returns the health of h at now.
func (o *Outlier) State(now time.Time, h *EndpointHealth) HealthState {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o != nil && !h.ejected {
		h.settleLocked(now, &o.cfg)
	}
	return HealthState{
		Ejected: h.ejected, Reason: h.reason, Until: h.until, Ejections: h.ejections, Consecutive: h.consecutive,
	}
}

// Ejected returns how many endpoints are out.
func (o *Outlier) Ejected() int {
	if o == nil {
		return 0
	}
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	return len(o.s.out)
}

func (s *ejections) removeLocked(h *EndpointHealth) {
	for i, x := range s.out {
		if x == h {
			last := len(s.out) - 1
			copy(s.out[i:], s.out[i+1:])
			s.out[last] = nil
			s.out = s.out[:last]
			return
		}
	}
}
