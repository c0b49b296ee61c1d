package registration

import "time"

const (
	firstPause = 500 * time.Millisecond // after a failure, doubled with each one, up to the time between two reports
	refusedFor = 10 * time.Second       // until it is asked again whether the instance may be there
	reports    = 3                      // within one TTL
	firstLook  = 50 * time.Millisecond
	longLook   = time.Second // between two looks whether it is gone
)

// Machine is the life of one instance in one registry. Its methods are called by one goroutine.
type Machine struct {
	ttl   time.Duration
	rules bool // there are rules, to be looked at with every report
	own   bool // the agent asks the app by itself

	listening bool
	app       tri
	note      string // why the app is not well
	leaving   bool

	cleared bool   // it may be there
	barred  bool   // the rules have changed: it may not be registered anew
	away    bool   // an operator wants it away
	order   string // why
	there   tri
	maybe   bool // it may be there, though nobody said so
	again   bool // the registry has forgotten it, though its app was well
	gone    bool // verified
	lapsed  bool // lost while its app was not well: it comes back with the app
	told    tri  // what was reported last

	notBefore time.Time // the next try of what failed
	beat      time.Time // the next report
	look      time.Time // the next look at the rules
	fails     int
	last      Result // of the last action that did not go well; OK when it did
}

// tri is yes, no or not known.
type tri uint8

const (
	unknown tri = iota
	no
	yes
)

func triOf(b bool) tri {
	if b {
		return yes
	}
	return no
}

// New returns the life of an instance that nothing was done for yet.
func New(i *Instance) *Machine {
	return &Machine{ttl: i.TTL, rules: i.Rules != "", own: i.Probe.Own(), cleared: i.Rules == ""}
}

// Listening says that we take connections for the app.
func (m *Machine) Listening() { m.listening = true }

// App says how the app is doing.
func (m *Machine) App(well bool, note string) {
	m.app, m.note = triOf(well), note
	if well && m.lapsed {
		m.lapsed = false
	}
}

// Leave takes the instance away for good.
func (m *Machine) Leave() {
	if !m.leaving {
		m.leaving, m.notBefore, m.fails = true, time.Time{}, 0
	}
}

// well reports whether the instance should get calls.
func (m *Machine) well() bool { return m.listening && m.app == yes }

// Next says what to do at now. An action must be followed by Done before Next is asked again.
func (m *Machine) Next(now time.Time) Action {
	switch {
	case m.leaving && !m.written() && !m.gone:
		m.gone = true // nothing was ever written
		return Action{}
	case m.leaving && m.gone:
		return Action{}
	case now.Before(m.notBefore):
		return Action{Until: m.notBefore}
	case m.leaving || m.away:
		return m.takeAway(now)
	case !m.cleared || m.rules && !now.Before(m.look):
		return Action{Verb: Check}
	case m.there != yes && m.lapsed:
		return m.untilLook()
	case m.there != yes:
		return Action{Verb: Register, Well: m.again && m.well()}
	case m.told != triOf(m.well()) || !now.Before(m.beat):
		return Action{Verb: Report, Well: m.well(), Note: m.why()}
	}
	return Action{Until: soonest(m.beat, m.untilLook().Until)}
}

// written reports whether the registry may know the instance.
func (m *Machine) written() bool { return m.there != unknown || m.maybe }

// takeAway is the next step of deregistration.
func (m *Machine) takeAway(now time.Time) Action {
	switch {
	case m.there != no && m.written():
		return Action{Verb: Deregister}
	case !m.gone && m.written():
		return Action{Verb: Verify}
	case m.away && !now.Before(m.look):
		return Action{Verb: Check}
	}
	return m.untilLook()
}

func (m *Machine) untilLook() Action {
	if m.rules {
		return Action{Until: m.look}
	}
	return Action{}
}

// why says why the instance is critical.
func (m *Machine) why() string {
	switch {
	case m.well():
		return ""
	case !m.listening:
		return "the sidecar does not listen yet"
	case m.app == unknown:
		return "the app has not been asked yet"
	}
	return m.note
}

// Done takes in how an action ended; chance, from 0 to 1, spreads retries.
func (m *Machine) Done(now time.Time, a Action, r Result, chance float64) {
	if r.Kind == Failed {
		m.maybe = m.maybe || a.Verb == Register
		if a.Verb == Check && m.cleared { // what was known goes on: an instance does not depend on its rules being readable
			m.look = now.Add(m.every())
			return
		}
		m.failed(now, r, chance)
		return
	}
	switch a.Verb {
	case Check:
		m.checked(now, r)
		return
	case Register:
		m.there, m.gone, m.again, m.told, m.beat = yes, false, false, triOf(a.Well), now
	case Report:
		m.reported(now, a, r)
	case Deregister:
		m.there, m.gone = no, false
	case Verify:
		if r.Kind == There {
			m.fails++
			m.last = r
			m.notBefore = now.Add(min(firstLook<<min(m.fails, 10), longLook))
			if m.fails%4 == 0 {
				m.there = yes // somebody may have put it back: ask for it again
			}
			return
		}
		m.gone = true
	}
	m.last, m.fails, m.notBefore = Result{}, 0, time.Time{}
}

func (m *Machine) failed(now time.Time, r Result, chance float64) {
	pause := min(firstPause<<min(m.fails, 10), max(m.every(), time.Second))
	m.fails++
	m.last = r
	m.notBefore = now.Add(pause/2 + time.Duration(chance*float64(pause/2)))
}

// checked takes in what the rules say. An instance that is there stays whatever lists say: a wrong edit must not take a
// whole service away. Only the word of an operator about this very instance or service does.
func (m *Machine) checked(now time.Time, r Result) {
	m.look = now.Add(m.every())
	m.fails, m.notBefore = 0, time.Time{}
	was := m.away
	m.away, m.barred = r.Kind == Offline, r.Kind.Refusal()
	switch {
	case m.away:
		m.order = r.Text
	case r.Kind.Refusal() && m.there != yes:
		m.cleared, m.last = false, r
		m.notBefore = now.Add(refusedFor)
	default:
		m.cleared, m.last = true, Result{}
		if was {
			m.there = no
		}
	}
}

// reported takes in that the registry was told about the app.
func (m *Machine) reported(now time.Time, a Action, r Result) {
	if r.Kind == Lost {
		m.there, m.again, m.told, m.cleared = no, m.app != no, unknown, !m.barred
		m.lapsed = m.app == no
		return
	}
	m.told, m.beat = triOf(a.Well), now.Add(m.every())
}

func (m *Machine) every() time.Duration { return m.ttl / reports }

// View says where the instance stands, and why.
func (m *Machine) View() (s State, why string) {
	switch {
	case m.leaving && m.gone:
		return Left, ""
	case m.leaving:
		return Leaving, m.last.Text
	case m.away:
		return Away, m.order
	case m.last.Kind.Refusal():
		return Refused, m.last.Kind.String() + ": " + m.last.Text
	case !m.cleared:
		return Checking, m.last.Text
	case m.there != yes && m.lapsed:
		return Registering, "it waits for the app, which was away for so long that the registry removed it"
	case m.there != yes:
		return Registering, m.last.Text
	case m.own:
		return Passing, "the agent asks the app"
	case m.told == yes:
		return Passing, m.last.Text
	}
	return Critical, m.why()
}

// Refusal returns why the instance may not be there; OK if it may.
func (m *Machine) Refusal() Result {
	if m.last.Kind.Refusal() && m.there != yes {
		return m.last
	}
	return Result{}
}

// soonest returns the earlier of two times, of which a zero one counts for none.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
