// Package resilience decides whether, when and how often: the plan of one call (attempts, time limits, retry), circuit
// breaker, outlier detection, retry budget, concurrency limits. It is pure: time is an argument, nothing blocks, logs or
// counts, and every decision returns a verdict, its reason and when it could change. Policies are immutable and shared;
// meters (Breaker, Outlier, Budget, Limiter) are shared and guard themselves; a Call belongs to one goroutine. It
// imports nothing of the project. Tests: text scripts under testdata and fuzz tests of invariants.
package resilience

import "time"

// Reason names why a local answer was given or an exchange ended badly. The texts are promises: response header,
// log field and metric label.
type Reason uint8

// The reasons of config.md. None is an ordinary exchange.
const (
	None Reason = iota
	BadRequest
	NoRoute
	Forbidden
	NoEndpoints
	ConnectFailed
	ConnectTimeout
	UpstreamReset
	UpstreamProtocol
	Timeout
	RateLimited
	Quota
	Overloaded
	Concurrency
	PriorityShed
	BreakerOpen
	Degraded
	Draining
	CallerGone
	Reasons // how many there are
)

// String returns the name that operators see.
func (r Reason) String() string {
	return [...]string{
		"", "bad_request", "no_route", "forbidden", "no_endpoints", "connect_failed", "connect_timeout",
		"upstream_reset", "upstream_protocol", "timeout", "rate_limited", "quota", "overloaded", "concurrency",
		"priority_shed", "breaker_open", "degraded", "draining", "caller_gone",
	}[r]
}

// Kind is how one attempt ended, as far as the plan cares.
type Kind uint8

// The kinds of end of an attempt.
const (
	Answered     Kind = iota // a final response head arrived: Status says which
	Refused                  // the connect failed: nothing was sent
	ConnectTimed             // the connect took too long: nothing was sent
	Reset                    // the connection ended before a final response head
	TimedOut                 // no head in time
	Malformed                // the answer broke the protocol
	Gone                     // our caller left; not the endpoint's fault
	NoEndpoint               // there was none to try
	Saturated                // a connection limit was reached and waiting was over
	Unfit                    // the request is larger than the endpoint takes: nothing was sent
	TooBusy                  // the endpoint gave the request up since we ask too much of it (HTTP/2's ENHANCE_YOUR_CALM)
)

// Outcome is how one attempt ended.
type Outcome struct {
	Kind   Kind
	Status int  // of the final response head; 0 without one
	Sent   bool // any byte of the request left us; false for a stream that HTTP/2 refused unprocessed
	Reused bool // on a pooled connection that had served before, and no response byte had arrived
	// Replayable says that the whole request is still at hand: no body, or none of it was consumed, or all of it is kept.
	Replayable bool
	// Untried says that a usable endpoint is left that this call has not tried.
	Untried bool
	// Took is how long the attempt took, up to the head of its answer or its failure; 0: not known.
	Took time.Duration
	// GRPC is the status of a gRPC answer, as far as it is known when the attempt is judged.
	GRPC GRPC
	// Pushback is how long the endpoint asks to be left alone before a retry; negative: it wants none. 0: it said nothing.
	Pushback time.Duration
	// Broken says that the breaker of the call is open or half-open now: no retry by the policy (S-149).
	Broken bool
}

// Failed reports whether outlier detection and breaker count o against the endpoint: connect, reset, timeout, protocol
// error, any 5xx, and the gRPC statuses UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL and UNAVAILABLE. 4xx and a
// caller who left never count.
func (o Outcome) Failed() bool {
	switch o.Kind {
	case Answered:
		return o.Status >= 500 || o.GRPC.failed()
	case Gone, NoEndpoint, Saturated, Unfit:
		return false
	}
	return true
}

// Policy is the compiled plan of a route: immutable and shared by all its calls.
type Policy struct {
	Timeout     time.Duration // whole call until the response head; 0: 15 s, since every call ends (S-140)
	PerTry      time.Duration // one attempt; 0: only Timeout bounds it
	Retries     int           // after the first attempt; 0 … 100
	On          Conditions    // what is retried (S-142, S-143)
	BackoffBase time.Duration // ceiling of the first wait before a retry; doubles with each; 0: no waiting
	BackoffMax  time.Duration // bound of the ceiling; 0: none
	DualSend    bool          // two attempts at once, on different endpoints (S-144)
}

// Longest is how long one attempt may take.
func (p *Policy) Longest() time.Duration {
	if p.PerTry > 0 {
		return p.PerTry
	}
	return p.Timeout
}

// Conditions says which outcomes are retried.
type Conditions struct {
	Connect, Refused, Reset, Timeout bool
	Status                           [10]uint64 // bit set of statuses 0 … 639
	GRPC                             uint32     // bit set of GRPC
}

// Verb is what the engine must do next.
type Verb uint8

// The verbs.
const (
	Wait   Verb = iota // nothing to do until Action.Until or an event
	Try                // start attempt Action.Attempt, which must end by Action.Until
	Finish             // relay the answer of attempt Action.Attempt; cancel the others
	Fail               // no attempt can succeed: answer locally with Action.Reason
)

// Why is the reason of a decision, for logs and metrics.
type Why uint8

// The reasons of an Action.
const (
	WhyNone Why = iota
	WhyFirst
	WhyRetry        // by the retry policy
	WhyStale        // replay on a fresh connection, outside the policy: the old one was dead before we used it
	WhyExhausted    // no attempt left
	WhyBudget       // the retry budget refused
	WhyNotRetryable // outcome or method is not covered by the policy
	WhyBody         // the body was too large to keep
	WhyDeadline     // the overall time is over
	WhyCaller       // the caller left
	WhyBreaker      // an open breaker suppresses retries (S-149)
	WhyPushback     // the endpoint asked not to be tried again
	WhyBackup       // a second attempt beside one that takes long (S-145)
	WhyDual         // a second attempt at once (S-144)
	WhyCap          // too many backups already (S-147)
	WhyNoOther      // there is no other endpoint
)

// MaxSlots bounds the attempts of one call that run at the same time.
const MaxSlots = 4

// Action is a decision.
type Action struct {
	Verb    Verb
	Attempt int       // number of the attempt, from 0
	Slot    int       // where it runs: attempts in flight at once have different slots, 0 … MaxSlots-1
	Cancel  uint8     // bit i: abandon what runs in slot i, its result no longer matters
	Fresh   bool      // Try: use a new connection, not a pooled one; same endpoint as before where it can be
	Until   time.Time // Wait: when to call Tick; Try: when the attempt must have ended
	Reason  Reason    // Fail
	Why     Why
}
