package resilience

import (
	"sync"
	"time"
)

// Failures says which ends of a call a fallback answers (S-162).
type Failures struct {
	reasons uint32 // bit set of Reason: answers of our own
	answers Conditions
}

// ParseFailures reads the words of `fallback.when`: classes of failure of the call itself (timeout, connect, reset, protocol,
// no_endpoints, breaker_open, rate_limited, overloaded), and answers (5xx, a status, grpc:STATUS). The error is a
// *ConditionError.
func ParseFailures(words []string) (Failures, error) {
	var f Failures
	var rest []string
	for _, w := range words {
		switch w {
		case "timeout":
			f.refusals(Timeout)
			f.answer(504, GRPCDeadlineExceeded)
		case "connect":
			f.refusals(ConnectFailed, ConnectTimeout)
		case "reset":
			f.refusals(UpstreamReset)
		case "protocol":
			f.refusals(UpstreamProtocol)
		case "no_endpoints":
			f.refusals(NoEndpoints)
		case "breaker_open":
			f.refusals(BreakerOpen)
		case "rate_limited":
			f.refusals(RateLimited, Quota)
			f.answer(429, GRPCResourceExhausted)
		case "overloaded":
			f.refusals(Overloaded, Concurrency, PriorityShed)
			f.answer(503, GRPCUnavailable)
		default:
			rest = append(rest, w)
		}
	}
	more, err := ParseConditions(rest)
	if err != nil {
		return Failures{}, err
	}
	for i := range more.Status {
		f.answers.Status[i] |= more.Status[i]
	}
	f.answers.GRPC |= more.GRPC
	return f, nil
}

func (f *Failures) refusals(list ...Reason) {
	for _, r := range list {
		f.reasons |= 1 << r
	}
}

func (f *Failures) answer(status int, g GRPC) {
	f.answers.set(status, status)
	f.answers.GRPC |= 1 << g
}

// Refusal reports whether an answer of our own with that reason is replaced.
func (f *Failures) Refusal(r Reason) bool { return f.reasons>>r&1 == 1 }

// Answer reports whether an endpoint's answer is replaced.
func (f *Failures) Answer(o Outcome) bool {
	return o.Kind == Answered && (f.answers.Answer(o.Status) || o.GRPC != NotGRPC && f.answers.GRPC>>o.GRPC&1 == 1)
}

// GRPC reports whether some status of gRPC is replaced.
func (f *Failures) GRPC() bool { return f.answers.GRPC != 0 }

// Bounds of a Stale.
const (
	staleEntries = 256
	staleBytes   = 4 << 20
	// StaleBody bounds one body that is remembered.
	StaleBody = 64 << 10
	// staleRefresh is how old what is remembered may be before a newer answer takes its place: remembering each answer would
	// cost each call.
	staleRefresh = time.Second
)

// StaleAnswer is an answer that was good once. It is not changed once it is remembered.
type StaleAnswer struct {
	Status int
	Fields [][2]string
	Body   []byte
	At     time.Time
}

// Stale remembers the last good answers of a route, a bounded number of them; the oldest goes first. Keys are whole, not
// hashes: an answer to another request would be worse than none. A nil Stale remembers nothing.
type Stale struct {
	mu    sync.Mutex
	known map[string]*StaleAnswer // guarded by mu, as the rest
	order []string                // as they came in
	bytes int
}

// NewStale returns an empty memory.
func NewStale() *Stale { return &Stale{known: map[string]*StaleAnswer{}} }

// Adopt returns prev where there is one.
func (s *Stale) Adopt(prev *Stale) *Stale {
	if s != nil && prev != nil {
		return prev
	}
	return s
}

// Wants reports whether an answer to key would be remembered.
func (s *Stale) Wants(now time.Time, key []byte) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.known[string(key)]
	return a == nil || now.Sub(a.At) >= staleRefresh
}

// Get returns the last good answer to key that is at most as old as most, or nil.
func (s *Stale) Get(now time.Time, key []byte, most time.Duration) *StaleAnswer {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.known[string(key)]; a != nil && now.Sub(a.At) <= most {
		return a
	}
	return nil
}

// Put remembers a. Its strings and bytes belong to the memory from here on.
func (s *Stale) Put(key []byte, a *StaleAnswer) {
	size := a.size() + len(key)
	if s == nil || size > staleBytes {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.known[string(key)]; old != nil {
		s.bytes += a.size() - old.size()
		s.known[string(key)] = a
	} else {
		s.bytes += size
		s.known[string(key)] = a
		s.order = append(s.order, string(key))
	}
	for len(s.order) > staleEntries || s.bytes > staleBytes {
		oldest := s.order[0]
		s.order = s.order[1:]
		s.bytes -= s.known[oldest].size() + len(oldest)
		delete(s.known, oldest)
	}
}

func (a *StaleAnswer) size() int {
	n := len(a.Body) + 64
	for _, f := range a.Fields {
		n += len(f[0]) + len(f[1]) + 32
	}
	return n
}
