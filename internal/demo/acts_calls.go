package demo

import (
	"context"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// someAreLate shows backup requests: they cut off the few calls that take long, for little more load.
func (s *stage) someAreLate(ctx context.Context) {
	s.act("10. One answer in twenty-five takes long")
	late := s.pace.perTry / 2
	for _, e := range s.search {
		e.pauses.Store(int64(late))
		defer e.pauses.Store(0)
	}
	const calls = 500
	before := s.app.burst(ctx, "search", "/find", calls)
	slow := before.above(late)
	s.claim(before.failed == 0 && slow >= calls/pauseEvery/2, "of %d calls to search %d take longer than %s, though half of them are done in %s",
		calls, slow, short(late), short(quantile(before.took, 0.5)))
	s.say("the policy is told to ask another endpoint too when one takes longer than nine calls in ten do:")
	s.quote(added(s.document(), s.withBackup()))
	err := s.reload(ctx, s.withBackup())
	s.claim(err == nil, "it is in force%s", trouble(err))
	served := s.served()
	learned := s.app.burst(ctx, "search", "/find", calls/2)
	after := s.app.burst(ctx, "search", "/find", calls)
	served = s.served() - served
	s.claim(learned.failed+after.failed == 0 && after.above(late) <= slow/2, "of %d more calls %d take that long: the first answer wins, the other attempt is cancelled",
		calls, after.above(late))
	made := int64(learned.calls + after.calls)
	s.claim(served <= made*(100+backupShare+1)/100, "that costs few calls more, and never more than max_ratio: %d calls became %d", made, served)
}

// served is how many calls the endpoints of search have had.
func (s *stage) served() (n int64) {
	for _, e := range s.search {
		n += e.served.Load()
	}
	return n
}

// oneIsSwitchedOff shows a degradation switch, on and off again.
func (s *stage) oneIsSwitchedOff(ctx context.Context) {
	s.act("11. A service is switched off by hand")
	s.say("a switch has an answer ready for the day that search must be spared:")
	s.quote(added(s.document(), s.withSwitch()))
	err := s.reload(ctx, s.withSwitch())
	load := s.app.steady(ctx, "search", "/find")
	defer load.end()
	s.settle(ctx, load)
	load.take()
	until(ctx, patience, func() bool { return load.calls() > 100 })
	t := load.take()
	s.claim(err == nil && t.failed+t.degraded == 0, "it is off, and of %d calls each is answered by search%s", t.calls, trouble(err))
	_, err = s.proxy.SetSwitch(switchName, proxy.SwitchWrite{On: true, By: "ann", Reason: "search must be spared"})
	s.say("sidecar switch on %s --reason 'search must be spared'", switchName)
	s.settle(ctx, load)
	load.take()
	served := s.served()
	until(ctx, patience, func() bool { return load.calls() > 200 })
	t = load.take()
	s.claim(err == nil && t.failed == 0 && t.degraded == t.calls && s.served() == served,
		"from the next call on the proxy answers itself: of %d calls %d, none reached search%s", t.calls, t.degraded, trouble(err))
	a := s.app.call(ctx, "search", "/find")
	s.claim(a.status == 200 && a.reason == degraded, "they are told so: %d, x-sidecar-reason: %s, %s", a.status, a.reason, strings.TrimSpace(a.body))
	e, told := s.happened(time.Time{}, func(e telemetry.Event) bool { return e.Kind == telemetry.EventSwitch && e.By == "ann" })
	s.claim(told, "and the event says who and why: %s %s by %s (%s)", e.Kind, e.To, e.By, e.Detail)
	_, err = s.proxy.SetSwitch(switchName, proxy.SwitchWrite{By: "ann", Reason: "it is well"})
	s.say("sidecar switch off %s", switchName)
	s.settle(ctx, load)
	load.take()
	until(ctx, patience, func() bool { return load.calls() > 100 })
	t = load.end()
	s.claim(err == nil && t.failed+t.degraded == 0, "and search answers again: %s%s", shares(t, s.search), trouble(err))
}
