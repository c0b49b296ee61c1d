// Package guard decides how far the answers of a registry are believed: which of the endpoints that it lists, and of those
// that it no longer lists, are used. It owns the memory of one list (one service of one registry): removal protection
// (S-41, S-42), half-dead protection (S-46 … S-49), endpoints that a direct check found dead (S-28, S-47), and apart from
// that the update gate (S-40). It is pure: time is an argument, checks are asked for by what Decide returns and told by
// Checked. Tests: stories as text scripts in testdata, and a property test of invariants under hostile lists.
package guard

import (
	"slices"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

// Rules are the bounds of one list. The zero Rules believe everything.
type Rules struct {
	// MaxRemoval is the share of the known endpoints that may go for failed health: at most max(1, floor(MaxRemoval × N))
	// . 0 or less means no bound.
	MaxRemoval float64
	// Below is the share of the endpoints known in Memory below which a list is no longer believed; 0 or less: never.
	Below float64
	// MinKnown is how many endpoints must be known for that. An empty list where fewer are known is doubted for Hold.
	MinKnown int
	// Hold is how long a list must be back above Below before it is believed again (S-48).
	Hold time.Duration
	// Memory is how long an endpoint is remembered that is no longer listed.
	Memory time.Duration
	// Meant says that whoever writes the list means what is not in it: only an empty one is doubted.
	Meant bool
	// Consumer ignores what the registry says of health: it is only a list, and the proxy finds out who lives (S-43, S-44).
	Consumer bool
}

// How direct checks are repeated.
const (
	CheckEvery = 10 * time.Second // of a remembered endpoint that lives
	firstRetry = time.Second      // after a failure; doubles
	lastRetry  = 30 * time.Second
	giveUp     = 3 // failures in a row after which an endpoint that is not listed is forgotten, if others are there
	deadAfter  = 2 // failures in a row after which one that is listed is taken out
)

// Mode says which protection is active.
type Mode uint8

// The modes, the mildest first.
const (
	Believed Mode = iota // the list is used as it is
	Capped               // more failed health checks than may be believed
	Restored             // the list is that of the disk: the registry has not answered since the start
	HalfDead             // the list is too short to be true
)

func (m Mode) String() string {
	return [...]string{"believed", "removal_protection", "restored", "half_dead"}[m]
}

// Why is the reason for what becomes of one endpoint.
type Why uint8

// The reasons. Those from Retained on are used only after a direct check, or while the first one is under way.
const (
	InList      Why = iota // listed and believed
	OutOfOrder             // in maintenance, or it left as it had said it would: not used
	Unhealthy              // failed health, and within the bound: not used
	Unlisted               // no longer listed, and that is believed: not used
	Retained               // failed health, above the bound: used
	Remembered             // no longer listed, which is doubted: used
	FromDisk               // of the disk, before the registry has answered: used
	Unreachable            // listed, but direct checks fail: not used, a zombie (S-28)
)

func (w Why) String() string {
	return [...]string{"listed", "maintenance", "unhealthy", "unlisted", "retained", "remembered", "from_disk", "unreachable"}[w]
}

// Check is how far the direct check of an endpoint has come.
type Check uint8

// The states of a check.
const (
	Unchecked Check = iota // none has ended
	Alive
	Dead
)

func (c Check) String() string { return [...]string{"unchecked", "alive", "dead"}[c] }

// Note says what is special about one endpoint.
type Note struct {
	Endpoint *config.Endpoint
	Why      Why
	Used     bool
	Watched  bool // it is checked directly
	Check    Check
	Since    time.Time // since when Why holds
	Until    time.Time // when it may change without an answer of the registry: the next check; zero: nothing is due
	Err      string    // of the last check
}

// Decision is what becomes of a list.
type Decision struct {
	Use   []*config.Endpoint // by address
	Notes []Note             // by address: of all that is not just listed and used
	Mode  Mode
	Since time.Time // of Mode
	Until time.Time // when Mode ends if nothing changes; zero: not by time alone
	// Listed and Known are the numbers behind Mode: endpoints on the list, and those it is measured by.
	Listed, Known int
	Due           []*config.Endpoint // to be checked now; each must be answered by Checked
	Pending       int                // first checks that have not ended; nothing of theirs that was not in use before is used
	Next          time.Time          // when to decide again; zero: after the next event
}

// Guard is the memory of one list. It is a meter: owned by one goroutine.
type Guard struct {
	entries  []*entry // by address
	peak     peak
	answered bool
	unlisted int  // entries off the list
	silent   bool // the registry fails to answer since
	restored time.Time
	mode     Mode
	since    time.Time
	brief    bool      // half dead with too few known: for Hold only
	swings   bool      // it was too short, was back, and is or was too short again
	below    time.Time // when half-dead protection began
	above    time.Time // since when the list is back above the bound; zero: it is not
	ended    time.Time // when half-dead protection ended last; zero: it never did
}

// entry is what is known of one endpoint.
type entry struct {
	endpoint *config.Endpoint
	listed   bool
	left     time.Time // when it said itself that it goes; zero: it did not
	suspect  bool      // calls to it fail
	passed   bool      // its health was good once since it is listed: only then can failing take it away
	used     bool      // by the last decision
	why      Why       // of the last decision
	since    time.Time
	seen     time.Time // when it was listed last; of one that is not listed
	failed   time.Time // since when its health is critical; zero: it is not
	before   time.Time // when that was so last
	out      bool      // takes one of the places of MaxRemoval
	check    check
}

type check struct {
	state    Check
	failures int // in a row
	running  bool
	due      time.Time
	err      string
}

func (e *entry) address() string { return e.endpoint.Address }

// goes reports whether there is proof that the endpoint is meant to go.
func (e *entry) goes() bool {
	return !e.listed && !e.left.IsZero() || e.endpoint.Health == config.HealthMaintenance
}

// failing reports whether its health took a good endpoint away; it is remembered when the registry then drops it.
func (e *entry) failing(now time.Time, r *Rules) bool {
	return !r.Consumer && e.passed && !e.failed.IsZero() && !e.goes() && (e.listed || now.Sub(e.seen) <= r.Memory)
}

// Remembers reports whether anything is remembered that is not listed.
func (g *Guard) Remembers() bool { return g.unlisted > 0 }

// Endpoint returns what is remembered of an address, nil if nothing is.
func (g *Guard) Endpoint(address string) *config.Endpoint {
	if e := g.find(address); e != nil {
		return e.endpoint
	}
	return nil
}

func (g *Guard) find(address string) *entry {
	i, ok := slices.BinarySearchFunc(g.entries, address, func(e *entry, a string) int { return strings.Compare(e.address(), a) })
	if !ok {
		return nil
	}
	return g.entries[i]
}

// Restore fills an empty memory with the endpoints of an earlier run, sorted by address. They are used after a direct
// check, until the registry answers (S-22, S-47).
func (g *Guard) Restore(now time.Time, list []*config.Endpoint) {
	if g.answered || len(g.entries) > 0 {
		return
	}
	g.restored, g.unlisted = now, len(list)
	for _, ep := range list {
		g.entries = append(g.entries, &entry{endpoint: ep, seen: now, since: now, passed: true, why: FromDisk, check: check{due: now}})
	}
	g.peak.note(now, len(list))
}

// Answer takes in a full list of the registry, sorted by address, each once.
func (g *Guard) Answer(now time.Time, list []*config.Endpoint) {
	if g.silent { // what it said before is confirmed only from now on
		g.silent, g.below, g.above = false, now, time.Time{}
	}
	g.answered = true
	merged := make([]*entry, 0, max(len(list), len(g.entries)))
	i := 0
	for _, l := range list {
		for i < len(g.entries) && g.entries[i].address() < l.Address {
			merged = append(merged, g.entries[i].unlist(now))
			i++
		}
		var e *entry
		if i < len(g.entries) && g.entries[i].address() == l.Address {
			e = g.entries[i]
			i++
		} else {
			e = &entry{since: now}
		}
		e.list(now, l)
		merged = append(merged, e)
	}
	for ; i < len(g.entries); i++ {
		merged = append(merged, g.entries[i].unlist(now))
	}
	g.entries = merged
	n := 0
	for _, e := range g.entries {
		if e.listed && !e.goes() {
			n++
		}
	}
	g.peak.note(now, n)
}

func (e *entry) list(now time.Time, l *config.Endpoint) {
	if !e.listed { // it is back
		e.left = time.Time{}
		if e.why == Unlisted {
			e.passed = false // its going was believed: this is a new life
		}
		if e.check.state == Dead {
			e.suspect, e.check.due = true, now
		}
	}
	e.endpoint, e.listed = l, true
	switch {
	case l.Health != config.HealthCritical:
		if !e.failed.IsZero() {
			e.before, e.failed = e.failed, time.Time{}
		}
		e.out, e.passed = false, true
	case e.failed.IsZero():
		e.failed = now
	}
}

func (e *entry) unlist(now time.Time) *entry {
	if e.listed {
		e.listed, e.suspect, e.seen = false, false, now
		if now.Sub(e.left) > noticeHolds {
			e.left = time.Time{}
		}
	}
	return e
}

// noticeHolds is how long an endpoint's word that it goes is proof of intent.
const noticeHolds = 10 * time.Minute

// Failed tells that the registry could not be heard: its last list is not confirmed by that time goes by.
func (g *Guard) Failed() { g.silent = true }

// Left tells that an endpoint said itself that it will go (S-229): when it leaves the list it is not missed. Who gets no
// calls meanwhile is for the data plane to know.
func (g *Guard) Left(now time.Time, address string) {
	if e := g.find(address); e != nil && e.listed {
		e.left = now
	}
}

// Suspect tells that calls to an endpoint fail: if it is listed, it is checked directly.
func (g *Guard) Suspect(now time.Time, address string) {
	e := g.find(address)
	if e == nil || !e.listed || e.suspect {
		return
	}
	e.suspect = true
	if e.why == InList {
		e.check = check{due: now, running: e.check.running}
	} else {
		e.check.due = now
	}
}

// Checked tells how a direct check ended; an empty problem means that the endpoint lives and is who it should be.
func (g *Guard) Checked(now time.Time, address, problem string) {
	e := g.find(address)
	if e == nil {
		return
	}
	c := &e.check
	c.running, c.err = false, problem
	if problem == "" {
		c.state, c.failures, c.due = Alive, 0, now.Add(CheckEvery)
		e.suspect = false
		return
	}
	c.failures++
	c.due = now.Add(min(firstRetry<<min(c.failures-1, 10), lastRetry))
	if e.why != InList || c.failures >= deadAfter {
		c.state = Dead
	}
}
