package resilience

import "time"

// Chance is what a Call must know to begin a second attempt beside one in flight.
type Chance struct {
	AtHand  bool // the whole request can be sent again: there is no body, or all of it is kept
	Untried bool // a usable endpoint is left that this call has not tried
	Broken  bool // the breaker is open or half-open now
}

// BackupAt returns when Backup may be asked for an attempt beside the one in flight; false: not at all, or not any more.
func (c *Call) BackupAt() (time.Time, bool) {
	if !c.overlaps {
		return time.Time{}, false
	}
	return c.start.Add(c.backupAt), true
}

// Overlaps reports whether a second attempt may still begin beside the first, so that the request must be kept.
func (c *Call) Overlaps() bool { return c.overlaps }

// Backup asks for a second attempt beside the one in flight, once in each call: what is sent twice at once must be
// idempotent and at hand, go to another endpoint (S-144), and not add to the load of a service that fails (S-149) or is
// slow as a whole (S-147: a share of the calls). The action is Try, or Wait with the reason why not. Too early is no
// refusal: it may be asked again.
func (c *Call) Backup(now time.Time, h Chance) Action {
	if c.done {
		return Action{}
	}
	at := now.Sub(c.start)
	if !c.overlaps || at < c.backupAt || at >= c.deadline || c.live == 0 {
		return c.wait(WhyNone)
	}
	c.overlaps = false
	switch {
	case c.broken, h.Broken:
		return c.wait(WhyBreaker)
	case c.hasBody && !h.AtHand:
		return c.wait(WhyBody)
	case !h.Untried:
		return c.wait(WhyNoOther)
	case c.p.DualSend:
		return c.try(at, WhyDual, 0)
	case !c.backups.Take(now):
		return c.wait(WhyCap)
	}
	return c.try(at, WhyBackup, 0)
}
