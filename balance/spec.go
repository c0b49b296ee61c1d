package balance

import "time"

// Kind names a balancer. Weights other than 0 count where the kind says so; random and round_robin are for endpoints
// that are alike (S-107: the simplest that fits).
type Kind uint8

// The balancers.
const (
	RoundRobin         Kind = iota // each in turn, from a random start (S-100)
	Random                         // any, all alike (S-99)
	WeightedRoundRobin             // each in turn, in proportion to its weight, evenly mixed (S-101)
	LeastActive                    // fewest attempts in flight for its weight; two choices on large sets (S-102)
	ConsistentHash                 // by the key of the request, on a ring (S-103)
	PeakEWMA                       // lowest decayed latency times load of two choices
	Adaptive                       // each in turn, the slowest fifth less often (S-105)
)

// Learns reports whether a balancer of kind k goes by the latency of attempts, so that the meters must be told.
func (k Kind) Learns() bool { return k == PeakEWMA || k == Adaptive }

// turns reports whether a balancer of kind k leaves nothing to chance.
func (k Kind) turns() bool { return k == RoundRobin || k == WeightedRoundRobin || k == Adaptive }

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

var kindNames = [...]string{
	RoundRobin: "round_robin", Random: "random", WeightedRoundRobin: "weighted_round_robin",
	LeastActive: "least_active", ConsistentHash: "consistent_hash", PeakEWMA: "peak_ewma", Adaptive: "adaptive",
}

// ParseKind finds a kind by its name.
func ParseKind(name string) (Kind, bool) {
	for k, n := range kindNames {
		if n == name {
			return Kind(k), true
		}
	}
	return 0, false
}

// Panic says what is done when no endpoint is usable.
type Panic uint8

// The panic rules.
const (
	ServeAll Panic = iota // pick as if all were usable: a doubtful endpoint is better than a sure failure
	FailFast              // NoneUsable
)

func (p Panic) String() string {
	if p == FailFast {
		return "fail_fast"
	}
	return "serve_all"
}

// Spec says how to pick. The zero Spec is round_robin over all, without locality and slow start, serve_all.
type Spec struct {
	Kind       Kind
	PreferNear bool          // near endpoints first
	SpillBelow float64       // 0 … 1: the usable share of near weight below which far endpoints get a part
	Warmup     time.Duration // slow start: an endpoint's share grows from 10 % to all of it within this; 0: none
	Panic      Panic
	Seed       uint64        // random, different on each sidecar: where round robins start
	Adaptive   Pacing        // adaptive
	Decay      time.Duration // peak_ewma: a latency's weight falls to 1/e within this; 0: 10 s
}

var whyNames = [...]string{
	Picked: "picked", PickedFar: "picked_far", PickedAgain: "picked_again", PickedPanic: "picked_panic",
	NoEndpoints: "no_endpoints", NoneUsable: "none_usable",
}

// String is the name for logs and metrics.
func (w Why) String() string {
	if int(w) < len(whyNames) {
		return whyNames[w]
	}
	return "unknown"
}

// Chosen tells whether an endpoint was picked.
func (w Why) Chosen() bool { return w <= PickedPanic }

// StateText lists the state bits by name, as in "ejected,draining"; "usable" for none.
func StateText(state uint32) string {
	if state == 0 {
		return "usable"
	}
	s := ""
	for i, n := range [...]string{"ejected", "unhealthy", "draining", "probe", "breaker_open"} {
		if state>>i&1 == 1 {
			if s != "" {
				s += ","
			}
			s += n
		}
	}
	return s
}
