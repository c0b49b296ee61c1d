// Package registration decides what to do about one instance of one service in one registry: check whether it may be
// there, register it as critical, report how its app is doing, register it again as it was when it was lost, and take it away for
// good (S-3, S-18 … S-20, S-39, S-52, S-208). It is pure: time and chance are arguments, Next says what to do now or when to
// ask again, and Done is told how it went. It owns no connection and no clock; discovery/registrar does what it says. Tests:
// whole lives as text, in testdata.
package registration

import "time"

// Instance is what a registry is told.
type Instance struct {
	ID      string // unique among all instances of the agent
	Service string
	Address string // empty: that of the agent's node
	Port    int
	Tags    []string
	Meta    map[string]string
	Weight  int

	Node  string // who registers, by node.id: what it left behind is found by it
	IP    string // its own address, for the list of who may register
	Group string

	TTL             time.Duration // so long after the last report the registry counts it as dead
	DeregisterAfter time.Duration // and so long after that it is removed; 0: never
	Rules           string        // prefix of keys with rules; empty: everybody may register
	// Probe is what the agent asks by itself; empty: we report.
	Probe Probe
}

// Probe is a check that the registry's agent makes: one of the ways is given.
type Probe struct {
	TCP, HTTP, GRPC   string // host:port, a URL, host:port/service
	Interval, Timeout time.Duration
}

// Own reports whether the agent asks by itself, so that we do not report.
func (p *Probe) Own() bool { return p.TCP != "" || p.HTTP != "" || p.GRPC != "" }

// Verb is what to do.
type Verb uint8

// The verbs.
const (
	Wait       Verb = iota // nothing before Until, or before something happens
	Check                  // ask whether the instance may be there
	Register               // as critical, or in the state it had when the registry has forgotten it
	Report                 // that the app is well, or not
	Deregister             // take it away
	Verify                 // that it is gone, for everybody
)

// String returns the name of v.
func (v Verb) String() string {
	return [...]string{"wait", "check", "register", "report", "deregister", "verify"}[v]
}

// Action is what to do.
type Action struct {
	Verb  Verb
	Until time.Time // Wait; zero: until something happens
	Well  bool      // Report, Register
	Note  string    // Report: why not
}

// Kind is how an action ended.
type Kind uint8

// The kinds.
const (
	OK             Kind = iota
	Failed              // could not be done; it is tried again
	Lost                // Report: the registry does not know the instance (any more)
	There               // Verify: somebody still lists it
	Offline             // Check: an operator wants it away
	NotAllowed          // Check: this node may not register
	UnknownService      // Check: the catalogue has no such service
	UnknownGroup        // Check: or not this group of it
)

// String returns the name of k in metrics and states.
func (k Kind) String() string {
	return [...]string{"ok", "failed", "lost", "there", "offline", "not_allowed", "unknown_service", "unknown_group"}[k]
}

// Refusal reports whether k says that the instance must not be there.
func (k Kind) Refusal() bool { return k >= NotAllowed }

// Result is how an action ended.
type Result struct {
	Kind Kind
	Text string // for a person
}

// State is where an instance stands.
type State uint8

// The states.
const (
	Checking    State = iota // whether it may be there is not known yet
	Refused                  // it may not
	Registering              // it is not there yet, or not any more
	Critical                 // it is there, and gets no calls
	Passing                  // it is there
	Away                     // an operator wants it away
	Leaving                  // it is being taken away for good
	Left                     // it is gone
)

// String returns the name of s in metrics, events and states.
func (s State) String() string {
	return [...]string{"checking", "refused", "registering", "critical", "passing", "offline", "leaving", "left"}[s]
}
