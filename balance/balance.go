// Package balance decides who: it picks one endpoint out of a set. It is pure: time and randomness are arguments, sets
// are immutable once built, and only meters (load, state) change, by atomics. It imports nothing of the project. Tests:
// scripts and property tests per balancer, distribution tests with a seeded source, and allocation tests.
package balance

import (
	"sync/atomic"
	"time"
)

// State bits say why an endpoint is not usable; zero is usable. An endpoint is usable by
// registry × outlier × drain notice × active probe.
const (
	StateEjected   uint32 = 1 << iota // by outlier detection
	StateUnhealthy                    // by its registry
	StateDraining                     // said so itself
	StateProbe                        // failed an active probe
	StateOpen                         // its breaker is open
)

// Meter is the shared, changing part of an endpoint. It survives configuration changes by the endpoint's identity.
type Meter struct {
	State     atomic.Uint32 // bits above
	Active    atomic.Int64  // attempts in flight, those still connecting included
	Since     atomic.Int64  // Unix nanoseconds when it became usable, for slow start; 0: always was
	Leaves    atomic.Int64  // Unix nanoseconds until when StateDraining holds
	OpenUntil atomic.Int64  // Unix nanoseconds until when StateOpen holds; then its breaker may let a call through

	ewma atomic.Uint64 // bits of a float64: decayed latency in nanoseconds
	seen atomic.Int64  // Unix nanoseconds of the last sample

	calls, spent atomic.Uint64 // attempts observed so far, and the nanoseconds they took; for adaptive
}

// barred tells whether one of the state bits of mask keeps calls away at now, in Unix nanoseconds. An open breaker does for
// its time only: then one is picked again, and who asks its breaker learns whether that is the probe (S-150).
func (m *Meter) barred(mask uint32, now int64) bool {
	bits := m.State.Load() & mask
	return bits != 0 && (bits != StateOpen || now < m.OpenUntil.Load())
}

// Endpoint is what a picker may know of one address. It is immutable but for its Meter.
type Endpoint struct {
	Key    uint64 // hash of the address; equal on every sidecar
	Weight uint32 // 0: never picked unless nothing else is left
	Near   bool   // in our own zone or region, as the locality rule says
	Meter  *Meter
}

// Hint carries the arguments of one pick.
type Hint struct {
	Now     time.Time
	Rand    uint64 // random bits, fresh for each pick
	Hash    uint64 // for consistent hashing
	HasHash bool   // false: the request has no key; hash balancers then use Rand
	Tried   []int  // indexes to avoid, not to forbid
}

// Why is the reason of a pick.
type Why uint8

// The reasons.
const (
	Picked      Why = iota
	PickedFar       // locality spilled over
	PickedAgain     // every usable endpoint was tried before
	PickedPanic     // nothing is usable: panic rule serve_all
	NoEndpoints     // the set is empty
	NoneUsable      // nothing is usable: panic rule fail_fast
)
