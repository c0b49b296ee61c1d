package config

import "time"

// Switch degrades calls to a service, or to one route of it, while it is on (S-156 … S-165). Whether it is on is decided at
// run time; Enabled is the initial value, and changing it is a write like any other.
type Switch struct {
	Name        string
	From        Origin
	Service     string
	Route       string // empty: the whole service
	Level       int    // 1 may be automatic, 3 needs a confirmation
	Mode        string // shield: no call is made · fallback: the call is made, the answer stands in when it fails
	Answer      StandIn
	Enabled     Opt[bool]
	Auto        *AutoSwitch
	Description string
	Owner       string
	Reason      string // why Enabled is what it is

	// Below is the switch of this name in a source of lower rank, if that says Enabled: nothing else of it counts, but a write is
	// one whoever made it. Nil: there is none.
	Below *Switch

	claims []claim
}

// Initial is the switch that says whether it begins as on: the one of the config centre, where there is one, since what was
// written to all must hold in a process that was started later.
func (s *Switch) Initial() *Switch {
	if s.Below != nil {
		return s.Below
	}
	return s
}

// The modes of a Switch.
const (
	ModeShield   = "shield"
	ModeFallback = "fallback"
)

// AutoSwitch turns a switch of level 1 on and off by itself.
type AutoSwitch struct {
	When, Until Ratio
	Ramp        time.Duration
}

// Ratio is a share of failed calls, and for how long.
type Ratio struct {
	ErrorRatio float64
	For        time.Duration
}

// StandIn is what is answered in place of a service.
type StandIn struct {
	Kind     string // KindAnswer …; empty: none
	Status   int    // of HTTP
	GRPC     string // of KindError: the status of a gRPC call
	Message  string // of KindError
	Headers  []Header
	Body     string        // of KindAnswer; for gRPC the bytes of one message
	Template bool          // Body has {{…}} in it
	Local    string        // of KindLocal: http://127.0.0.1:PORT/PATH
	Stale    time.Duration // of KindStale: how old the last good answer may be
}

// The kinds of a StandIn.
const (
	KindAnswer = "answer" // a fixed or templated answer (mock)
	KindEmpty  = "empty"  // the empty answer of the protocol (null)
	KindError  = "error"  // the failure of the protocol (exception)
	KindLocal  = "local"  // an endpoint of our own app
	KindStale  = "stale"  // the last good answer
)

// Fallback answers when a call has failed (S-162, S-166). A zero Answer says that there is none.
type Fallback struct {
	When   []string // classes of failure
	Answer StandIn
}
