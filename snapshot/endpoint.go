package snapshot

import (
	"time"

	"github.com/sidecar-mesh/sidecar/balance"
)

// Usable reports whether nothing speaks against the endpoint.
func (e *Endpoint) Usable() bool { return e.Meter.State.Load() == 0 }

// Eject keeps calls away from the endpoint, as outlier detection wants it.
func (e *Endpoint) Eject() { e.Meter.State.Or(balance.StateEjected) }

// Readmit ends what Eject began; slow start begins at now.
func (e *Endpoint) Readmit(now time.Time) {
	if e.Meter.State.And(^balance.StateEjected)&balance.StateEjected != 0 {
		e.Meter.Since.Store(now.UnixNano())
	}
}

// Leaves keeps calls away from the endpoint until a time, since it said itself that it leaves.
func (e *Endpoint) Leaves(until time.Time) {
	e.Meter.Leaves.Store(until.UnixNano())
	e.Meter.State.Or(balance.StateDraining)
}

// LeavesUntil returns how long Leaves holds.
func (e *Endpoint) LeavesUntil() time.Time { return time.Unix(0, e.Meter.Leaves.Load()) }

// Stays ends what Leaves began; slow start begins at now.
func (e *Endpoint) Stays(now time.Time) {
	if e.Meter.State.And(^balance.StateDraining)&balance.StateDraining != 0 {
		e.Meter.Since.Store(now.UnixNano())
	}
}

// Probed says whether the endpoint answers active probes; slow start begins at now when it does again.
func (e *Endpoint) Probed(now time.Time, well bool) {
	if !well {
		e.Meter.State.Or(balance.StateProbe)
	} else if e.Meter.State.And(^balance.StateProbe)&balance.StateProbe != 0 {
		e.Meter.Since.Store(now.UnixNano())
	}
}

// Usable returns how many endpoints of the service are usable.
func (s *Service) Usable() int {
	n := 0
	for _, e := range s.Endpoints {
		if e.Usable() {
			n++
		}
	}
	return n
}

// Available returns how many endpoints of the service nothing but outlier detection keeps out.
func (s *Service) Available() int {
	n := 0
	for _, e := range s.Endpoints {
		if e.Meter.State.Load()&^balance.StateEjected == 0 {
			n++
		}
	}
	return n
}
