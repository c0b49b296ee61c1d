package resilience

import (
	"sync"
	"sync/atomic"
	"time"
)

// SwitchState is where a degradation switch stands.
type SwitchState uint32

// The states of a Switch. On is what a person, a document or a config centre has set; Auto and Ramp are those of the
// automatic rule.
const (
	SwitchOff  SwitchState = iota
	SwitchOn               // every call is degraded
	SwitchAuto             // every call is, but for a few that find out whether the service is well again
	SwitchRamp             // a share is, which falls to nothing
)

// String returns the name of s for logs and the admin API.
func (s SwitchState) String() string { return [...]string{"off", "on", "auto", "ramp"}[s] }

// SwitchRule turns a switch on and off by itself (S-159, S-161): on when the share of failed calls was at least When for
// WhenFor, and off, over Ramp, when that of the calls that are let through was at most Until for UntilFor.
type SwitchRule struct {
	When, Until             float64
	WhenFor, UntilFor, Ramp time.Duration
}

const (
	// switchVolume is how many calls the rule must have seen to turn a switch on, and switchProbes to turn it off again.
	switchVolume = 20
	switchProbes = 3
	// switchProbeEvery is the pace of the calls that are let through meanwhile.
	switchProbeEvery = time.Second
)

// Switch is the state of one degradation switch. The latest write wins, whoever made it. Shields is one atomic load unless
// the automatic rule is at work. A nil Switch is off.
type Switch struct {
	state atomic.Uint32
	rule  SwitchRule
	auto  bool

	mu     sync.Mutex
	sick   steady    // guarded by mu, as the rest
	well   steady    //
	since  time.Time // of Ramp
	probed time.Time // when a call was let through last
}

// SwitchChange is a change of state that the automatic rule has made.
type SwitchChange struct {
	From, To SwitchState
}

// Changed reports whether it is one.
func (c SwitchChange) Changed() bool { return c.From != c.To }

// NewSwitch returns a switch. rule may be nil: then only a write changes it.
func NewSwitch(rule *SwitchRule, on bool) *Switch {
	s := &Switch{}
	if rule != nil {
		s.auto, s.rule = true, *rule
		s.sick = steady{hold: rule.WhenFor, volume: switchVolume}
		s.well = steady{hold: rule.UntilFor, volume: switchProbes}
	}
	if on {
		s.state.Store(uint32(SwitchOn))
	}
	return s
}

// Adopt returns prev where it has the same rule, else s in the state of prev: a snapshot keeps the state of the one before,
// but under another rule what the rule has done begins anew.
func (s *Switch) Adopt(prev *Switch) *Switch {
	if prev == nil {
		return s
	}
	if s.auto == prev.auto && s.rule == prev.rule {
		return prev
	}
	state := prev.State()
	if state == SwitchAuto || state == SwitchRamp {
		state = SwitchOff
	}
	s.state.Store(uint32(state))
	return s
}

// State returns the state.
func (s *Switch) State() SwitchState {
	if s == nil {
		return SwitchOff
	}
	return SwitchState(s.state.Load())
}

// Set turns the switch on or off and returns what it was before.
func (s *Switch) Set(on bool) SwitchState {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.State()
	to := SwitchOff
	if on {
		to = SwitchOn
	}
	s.state.Store(uint32(to))
	s.sick.clear()
	s.well.clear()
	return was
}

// Shields reports whether a call is degraded. rnd is random: in Ramp a growing share of calls goes through.
func (s *Switch) Shields(now time.Time, rnd uint64) (bool, SwitchChange) {
	switch s.State() {
	case SwitchOff:
		return false, SwitchChange{}
	case SwitchOn:
		return true, SwitchChange{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.State() {
	case SwitchOn:
		return true, SwitchChange{}
	case SwitchAuto:
		if now.Sub(s.probed) < switchProbeEvery {
			return true, SwitchChange{}
		}
		s.probed = now
		return false, SwitchChange{}
	case SwitchRamp:
		done := now.Sub(s.since)
		if done >= s.rule.Ramp {
			return false, s.turnLocked(now, SwitchOff)
		}
		const bits = 1 << 53
		return float64(rnd%bits)/bits >= float64(done)/float64(s.rule.Ramp), SwitchChange{}
	}
	return false, SwitchChange{}
}

// Watches reports whether the switch wants to be told how calls end.
func (s *Switch) Watches() bool { return s != nil && s.auto }

// Record reports how a call ended that was not degraded.
func (s *Switch) Record(now time.Time, failed bool) SwitchChange {
	if !s.Watches() || s.State() == SwitchOn {
		return SwitchChange{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.State() {
	case SwitchOff, SwitchRamp:
		if s.sick.record(now, failed, func(share float64) bool { return share >= s.rule.When }) {
			return s.turnLocked(now, SwitchAuto)
		}
	case SwitchAuto:
		if s.well.record(now, failed, func(share float64) bool { return share <= s.rule.Until }) {
			return s.turnLocked(now, SwitchRamp)
		}
	}
	return SwitchChange{}
}

func (s *Switch) turnLocked(now time.Time, to SwitchState) SwitchChange {
	was := s.State()
	s.sick.clear()
	s.well.clear()
	s.since, s.probed = now, now
	s.state.Store(uint32(to))
	return SwitchChange{was, to}
}

// steady finds out whether something has been true for some time: of each tenth of that time by itself, as far as it saw any
// calls. One look that says otherwise begins anew, which is what keeps a switch from flapping.
type steady struct {
	hold   time.Duration
	volume int // calls it must have seen meanwhile

	begin   time.Time // of the part in progress
	ok, bad int       // in it
	since   time.Time // when it became true; zero: it is not
	seen    int       // calls since
}

func (s *steady) clear() { *s = steady{hold: s.hold, volume: s.volume} }

// record counts a call and reports whether what holds judges has been true for long enough.
func (s *steady) record(now time.Time, failed bool, holds func(share float64) bool) bool {
	step := max(s.hold/10, 10*time.Millisecond)
	if s.begin.IsZero() {
		s.begin = now
	}
	if d := now.Sub(s.begin); d >= step {
		s.judge(holds)
		s.begin = s.begin.Add(d / step * step)
	}
	if failed {
		s.bad++
	} else {
		s.ok++
	}
	return !s.since.IsZero() && now.Sub(s.since) >= s.hold && s.seen >= s.volume
}

func (s *steady) judge(holds func(share float64) bool) {
	n := s.ok + s.bad
	switch {
	case n == 0:
		return
	case !holds(float64(s.bad) / float64(n)):
		s.since, s.seen = time.Time{}, 0
	default:
		if s.since.IsZero() {
			s.since = s.begin
		}
		s.seen += n
	}
	s.ok, s.bad = 0, 0
}
