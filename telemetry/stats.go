package telemetry

import (
	"cmp"
	"slices"

	"github.com/sidecar-mesh/sidecar/resilience"
)

// SeriesStats are the counters of one series since it was made.
type SeriesStats struct {
	Direction Direction
	Service   string
	Route     string

	Requests    uint64 // that ended
	Connections uint64 // TCP, that ended
	InFlight    int64
	Status      [6]uint64 // none, 1xx … 5xx
	Reasons     [resilience.Reasons]uint64
	Attempts    uint64
	Retries     uint64
	Replays     uint64
	Backups     uint64
	BackupsWon  uint64
	BytesIn     uint64 // TCP included
	BytesOut    uint64
	Breaker     string // closed, half_open, open; "": never changed
}

// TimedOut is how many exchanges ran into a time limit.
func (v *SeriesStats) TimedOut() uint64 { return v.Reasons[resilience.Timeout] }

// Stats returns the counters of all series that were used, ordered by direction, service and route.
func (r *Recorder) Stats() []SeriesStats {
	used := r.registry.used()
	list := make([]SeriesStats, len(used))
	for i, s := range used {
		list[i] = s.Stats()
	}
	slices.SortFunc(list, func(a, b SeriesStats) int {
		return cmp.Or(cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Route, b.Route))
	})
	return list
}

// Stats returns the counters of s.
func (s *Series) Stats() SeriesStats {
	v := SeriesStats{Direction: s.dir, Service: s.svc.name, Route: s.route}
	c := s.inner.Load()
	if c == nil {
		return v
	}
	c.cells.each(func(key uint32, n uint64) {
		method, status, reason := unpack(key)
		if method == methodTCP {
			v.Connections += n
		} else {
			v.Requests += n
			v.Status[status] += n
		}
		v.Reasons[reason] += n
	})
	v.InFlight = max(c.inFlight.Load(), 0)
	v.Attempts, v.Retries, v.Replays = c.attempts.Load(), c.retries.Load(), c.replays.Load()
	v.Backups, v.BackupsWon = c.backups.Load(), c.won.Load()
	v.BytesIn, v.BytesOut = c.in.Load()+c.tcpIn.Load(), c.out.Load()+c.tcpOut.Load()
	if state := c.breaker.Load(); state > 0 {
		v.Breaker = breakerName(int(state) - 1)
	}
	return v
}

// Latency returns the recent latency quantiles of a service.
func (r *Recorder) Latency(dir Direction, service string) Quantiles {
	if s := r.registry.lookup(service); s != nil {
		if l := s.latency[dir&1].Load(); l != nil {
			return l.quantiles(r.now())
		}
	}
	return Quantiles{}
}

// MergeLatency adds the recent latencies of a service to g.
func (r *Recorder) MergeLatency(dir Direction, service string, g *Digest) {
	if s := r.registry.lookup(service); s != nil {
		if l := s.latency[dir&1].Load(); l != nil {
			l.window.sum(r.now().Unix()/60, g)
		}
	}
}

// UpstreamStats are the counters of the connections of one service.
type UpstreamStats struct {
	Open, Idle    int64
	Known, Usable int64 // endpoints; Known is -1 when nobody told
	Connects      uint64
	Failures      uint64
	Ejections     uint64
	Readmissions  uint64
}

// UpstreamStats returns the counters of a service's connections; zero when there were none.
func (r *Recorder) UpstreamStats(service string) UpstreamStats {
	v := UpstreamStats{Known: -1}
	s := r.registry.lookup(service)
	if s == nil || s.up.Load() == nil {
		return v
	}
	u := s.up.Load()
	v.Open, v.Idle = max(u.open.Load(), 0), max(u.idle.Load(), 0)
	v.Known, v.Usable = u.known.Load()-1, u.usable.Load()
	v.Connects, v.Readmissions = u.connects.Load(), u.readmitted.Load()
	for i := range u.failures {
		v.Failures += u.failures[i].Load()
	}
	u.ejections.each(func(_ string, n uint64) { v.Ejections += n })
	return v
}
