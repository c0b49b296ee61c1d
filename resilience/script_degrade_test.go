package resilience_test

import (
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

type switchScript struct{ s *resilience.Switch }

// newSwitchScript reads when, for, until, until_for, ramp; on.
func newSwitchScript(a args) *switchScript {
	var rule *resilience.SwitchRule
	if a.has("when") {
		rule = &resilience.SwitchRule{
			When: a.ratio("when"), WhenFor: a.duration("for"), Until: a.ratio("until"), UntilFor: a.duration("until_for"),
			Ramp: a.duration("ramp"),
		}
	}
	return &switchScript{resilience.NewSwitch(rule, a.has("on"))}
}

// event plays "set on", "set off", "adopt" (a new rule), and "calls ok=N failed=N [every=D] [for=D]": each is asked for, and
// recorded unless it is degraded.
func (s *switchScript) event(now time.Time, words []string) []string {
	switch words[0] {
	case "set":
		was := s.s.Set(words[1] == "on")
		return one("%v, was %v", s.s.State(), was)
	case "calls":
		return s.calls(now, parse(words[1:]))
	case "adopt":
		s.s = newSwitchScript(parse(words[1:])).s.Adopt(s.s)
		return one("%v", s.s.State())
	}
	return one("unknown event %s", words[0])
}

func (s *switchScript) calls(now time.Time, a args) []string {
	ok, failed := a.int("ok"), a.int("failed")
	every, rounds := a.duration("every"), 1
	if every > 0 {
		rounds = int(a.duration("for") / every)
	}
	var out []string
	shielded, through := 0, 0
	note := func(at time.Time, c resilience.SwitchChange) {
		if c.Changed() {
			out = append(out, one("%s %v to %v", clock(at), c.From, c.To)...)
		}
	}
	rnd := uint64(1)
	for i := range rounds {
		at := now.Add(time.Duration(i) * every)
		for n := range ok + failed {
			rnd = rnd*6364136223846793005 + 1442695040888963407
			shields, c := s.s.Shields(at, rnd>>11)
			note(at, c)
			if shields {
				shielded++
				continue
			}
			through++
			note(at, s.s.Record(at, n >= ok))
		}
	}
	return append(out, one("%d degraded, %d through, %v", shielded, through, s.s.State())...)
}
