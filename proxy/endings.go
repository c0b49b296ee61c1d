package proxy

import (
	"slices"
	"time"

	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// tellEndings makes an event of each rule for a while that has come, or was taken back before its time, and has Run tell when
// the others end.
func (p *Proxy) tellEndings(next *snapshot.Snapshot) {
	now := time.Now()
	is := next.Endings(now)
	p.endingsMu.Lock()
	was := p.endings
	p.endings = is
	p.endingsMu.Unlock()
	for i := range is {
		if !slices.ContainsFunc(was, is[i].Same) {
			p.tellEnding(&is[i], "acting")
		}
	}
	for i := range was {
		switch {
		case slices.ContainsFunc(is, was[i].Same):
		case now.Before(was[i].Until):
			p.tellEnding(&was[i], "withdrawn")
		default:
			p.tellEnding(&was[i], "over")
		}
	}
	if len(is) > 0 {
		p.wakeUp()
	}
}

// endRules tells which rules act no more, and returns when the next one will not.
func (p *Proxy) endRules(now time.Time) (next time.Time) {
	var over []snapshot.Ending
	p.endingsMu.Lock()
	p.endings = slices.DeleteFunc(p.endings, func(e snapshot.Ending) bool {
		if now.Before(e.Until) {
			next = soonest(next, e.Until)
			return false
		}
		over = append(over, e)
		return true
	})
	p.endingsMu.Unlock()
	for i := range over {
		p.tellEnding(&over[i], "over")
	}
	return next
}

func (p *Proxy) tellEnding(e *snapshot.Ending, to string) {
	what := e.Rule + ": until "
	if e.Forbids {
		what = e.Rule + ": refuses callers until "
	}
	p.o.Recorder.Events().Add(telemetry.Event{
		Kind: telemetry.EventRule, Service: e.Service, To: to, By: e.From,
		Detail: what + e.Until.UTC().Format(time.RFC3339),
	})
}
