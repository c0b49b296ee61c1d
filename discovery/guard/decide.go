package guard

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// Decide says what becomes of the list now. It is to be asked after every event and at Next.
func (g *Guard) Decide(now time.Time, r Rules) Decision {
	var d Decision
	g.weigh(now, &r, &d)
	capped := g.bound(now, &r)
	for _, e := range g.entries {
		e.judge(now, &r, g.answered, d.Mode == HalfDead)
	}
	if capped && d.Mode == Believed {
		d.Mode = Capped
	}
	g.spare()
	g.forget(now, &r, d.Listed)
	g.tell(now, &d)
	if d.Mode != g.mode || g.since.IsZero() {
		g.mode, g.since = d.Mode, now
	}
	d.Since = g.since
	return d
}

// weigh finds out whether the list is too short to be true (S-46).
func (g *Guard) weigh(now time.Time, r *Rules, d *Decision) {
	living := 0 // on the list, or off it and not known to be gone
	for _, e := range g.entries {
		switch {
		case e.goes():
		case e.listed:
			d.Listed++
			living++
		case e.check.state == Dead:
		case now.Sub(e.seen) <= r.Memory, e.check.state == Alive && (g.mode == HalfDead || g.mode == Restored):
			living++
		}
	}
	d.Known = living
	switch {
	case !g.answered:
		if !g.restored.IsZero() {
			d.Mode = Restored
		}
		return
	case r.Below <= 0:
		return
	case g.mode != HalfDead:
		d.Known = max(d.Listed, min(g.peak.most(now, r.Memory), living))
	}
	short := d.Listed == 0 && d.Known > 0 || !r.Meant && float64(d.Listed) < r.Below*float64(d.Known)
	if g.mode != HalfDead && !g.begins(now, r, short, max(living, g.peak.most(now, r.Memory)), d) {
		return
	}
	g.goesOn(now, r, short, d)
}

// begins reports whether half-dead protection begins. Of few an empty list may well be true: it is doubted for a while, and
// one that is not empty not at all.
func (g *Guard) begins(now time.Time, r *Rules, short bool, known int, d *Decision) bool {
	few := known < r.MinKnown
	if !short || few && (d.Listed > 0 || r.Meant) {
		return false
	}
	g.brief, g.below, g.above = few, now, time.Time{}
	g.swings = !g.ended.IsZero() && now.Sub(g.ended) <= r.Memory
	return true
}

// goesOn says until when half-dead protection goes on, and ends it (S-48): never while the registry is not heard.
func (g *Guard) goesOn(now time.Time, r *Rules, short bool, d *Decision) {
	d.Mode = HalfDead
	switch {
	case g.silent:
		return
	case short && g.brief:
		d.Until = g.below.Add(r.Hold)
	case short:
		g.swings = g.swings || !g.above.IsZero()
		g.above = time.Time{}
		return
	case g.brief, r.Meant:
		d.Until = now
	default:
		if g.above.IsZero() {
			g.above = now
		}
		d.Until = g.above.Add(g.hold(now, r, d.Known))
	}
	if now.Before(d.Until) {
		return
	}
	// Who is missing is remembered all the same: if the list is too short again, it was not meant.
	d.Mode, d.Until, d.Known = Believed, time.Time{}, d.Listed
	g.ended = now
	if !g.swings {
		g.peak.reset()
	}
}

// patience is how many times Hold a list that swings must be back while more of it is missing than may go for failed health: what it
// says in between is chance.
const patience = 4

// hold is how long a list must be back above the bound.
func (g *Guard) hold(now time.Time, r *Rules, known int) time.Duration {
	if !g.swings || r.MaxRemoval <= 0 {
		return r.Hold
	}
	missing := 0
	for _, e := range g.entries {
		if !e.listed && !e.goes() && e.check.state != Dead && now.Sub(e.seen) <= r.Memory {
			missing++
		}
	}
	if missing <= r.removable(known) {
		return r.Hold
	}
	return patience * r.Hold
}

// removable is how many of the known may go for failed health.
func (r *Rules) removable(known int) int {
	const tiny = 1e-9 // of a product that should be whole
	return max(1, int(math.Floor(r.MaxRemoval*float64(known)+tiny)))
}

// bound chooses who of those that fail health may go, at most max(1, floor(MaxRemoval × N)), and reports whether that
// keeps any (S-41, X-5). Who has a place keeps it; then those that failed before go first, the least recently failed stay.
func (g *Guard) bound(now time.Time, r *Rules) (kept bool) {
	var failing []*entry
	known := 0
	for _, e := range g.entries {
		switch {
		case e.failing(now, r):
			failing = append(failing, e)
			known++
		default:
			e.out = false
			if e.listed && !e.goes() && e.failed.IsZero() {
				known++
			}
		}
	}
	allowed := len(failing)
	if r.MaxRemoval > 0 && allowed > 1 {
		allowed = min(allowed, r.removable(known))
		slices.SortFunc(failing, func(a, b *entry) int {
			return cmp.Or(places(b.out, a.out), b.before.Compare(a.before), a.failed.Compare(b.failed), strings.Compare(a.address(), b.address()))
		})
	}
	for i, e := range failing {
		e.out = i < allowed
	}
	return allowed < len(failing)
}

func places(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// judge says what becomes of one endpoint.
func (e *entry) judge(now time.Time, r *Rules, answered, halfDead bool) {
	why := Unlisted
	switch {
	case e.goes():
		why = OutOfOrder
	case e.out, e.listed && !r.Consumer && !e.failed.IsZero() && !e.passed:
		why = Unhealthy
	case e.failing(now, r):
		why = Retained
	case e.listed && e.suspect && e.check.state == Dead:
		why = Unreachable
	case e.listed:
		why = InList
	case !answered:
		why = FromDisk
	case halfDead:
		why = Remembered
	}
	if why != e.why {
		if !e.watched() && !e.suspect && why.checked() {
			e.check = check{due: now, running: e.check.running}
		}
		e.why, e.since = why, now
	}
	switch why {
	case InList:
		e.used = true
		if !e.suspect && e.check != (check{}) {
			e.check = check{running: e.check.running}
		}
	case Retained, Remembered, FromDisk:
		e.used = e.check.state == Alive || e.check.state == Unchecked && e.used
	default:
		e.used = false
	}
}

// checked reports whether endpoints with this reason are checked directly.
func (w Why) checked() bool { return w >= Retained }

// watched reports whether the endpoint is to be checked.
func (e *entry) watched() bool { return e.why.checked() || e.why == InList && e.suspect }

// spare takes endpoints of the list back that no check reaches, when nothing else is left: then more likely it is us.
func (g *Guard) spare() {
	if slices.ContainsFunc(g.entries, func(e *entry) bool { return e.used }) {
		return
	}
	for _, e := range g.entries {
		if e.why == Unreachable {
			e.used = true
		}
	}
}

// leastRemembered bounds the endpoints off the list that are remembered: so many, or twice the greatest length of the list.
const leastRemembered = 1000

// forget drops what is not worth remembering: what has not been listed for long, what is gone and is not needed.
func (g *Guard) forget(now time.Time, r *Rules, listed int) {
	unlisted := 0
	g.entries = slices.DeleteFunc(g.entries, func(e *entry) bool {
		switch old := now.Sub(e.seen) > r.Memory; {
		case e.listed:
			return false
		case e.why == OutOfOrder,
			e.why != FromDisk && e.check.failures >= giveUp && listed > 0,
			old && (e.why == Unlisted || e.why == Unhealthy || e.why == Remembered && e.check.state == Dead):
			return true
		}
		unlisted++
		return false
	})
	g.unlisted = unlisted
	most := max(leastRemembered, 2*g.peak.most(now, r.Memory))
	if unlisted <= most {
		return
	}
	ages := make([]time.Time, 0, unlisted)
	for _, e := range g.entries {
		if !e.listed {
			ages = append(ages, e.seen)
		}
	}
	slices.SortFunc(ages, time.Time.Compare)
	g.unlisted = most
	eldest := ages[unlisted-most-1]
	g.entries = slices.DeleteFunc(g.entries, func(e *entry) bool { return !e.listed && !e.seen.After(eldest) })
}

// tell writes the decision down and asks for the checks that are due.
func (g *Guard) tell(now time.Time, d *Decision) {
	soonest := func(t time.Time) {
		if !t.IsZero() && (d.Next.IsZero() || t.Before(d.Next)) {
			d.Next = t
		}
	}
	soonest(d.Until)
	for _, e := range g.entries {
		if e.used {
			d.Use = append(d.Use, e.endpoint)
		}
		if e.watched() {
			switch {
			case e.check.running:
			case now.Before(e.check.due):
				soonest(e.check.due)
			default:
				e.check.running = true
				d.Due = append(d.Due, e.endpoint)
			}
			if !e.used && e.check.state == Unchecked {
				d.Pending++
			}
		}
		if e.why == InList || e.why == Unlisted {
			continue
		}
		n := Note{Endpoint: e.endpoint, Why: e.why, Used: e.used, Since: e.since}
		if e.watched() {
			n.Watched, n.Check, n.Err = true, e.check.state, e.check.err
			if !e.check.running {
				n.Until = e.check.due
			}
		}
		d.Notes = append(d.Notes, n)
	}
}
