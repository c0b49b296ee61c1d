package h2

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// A client that is thrown out can come again at once, with a budget like new, and many can come together. So what connections
// spend is counted for their address as well: as much as two connections may. Beyond that, oddities are not refused but slowed
// down, which costs nobody anything but who makes them: many callers may share an address. What an address may owe is bounded,
// so that it is as before 15 s after the last oddity.
const (
	addressShare = 2 // connections' budgets that an address has
	mostDebt     = 1.5 * bucketSize
	costEnded    = 100 // a connection that ends in an error of its client's

	ownTrouble  = 250                    // points that a connection may have spent itself before it is slowed down
	pauseEach   = 4 * time.Millisecond   // of its reader, for each point; at least twice the last one
	mostPause   = 500 * time.Millisecond // of its reader
	mostPenance = 800 * time.Millisecond // of its reader, all together, before it is thrown out
	closeAfter  = 3 * time.Second        // when it was told so

	holdEach  = 25 * time.Millisecond  // of a new connection, for each that waits already
	leastHold = 250 * time.Millisecond // of a new connection
	mostHold  = 1500 * time.Millisecond

	manyDebts   = 1024 // addresses from which on those that owe nothing are forgotten
	prefixBits6 = 64   // of an IPv6 address: one host has them all
)

// debts is what addresses have spent.
type debts struct {
	mu sync.Mutex
	of map[netip.Prefix]*debt // guarded by mu
}

// debt is what the connections of one address have spent together.
type debt struct {
	conns   int          // guarded by the mu of debts
	waiting atomic.Int64 // connections that wait until they are served

	mu     sync.Mutex
	bucket bucket // guarded by mu; each of its points stands for addressShare
}

// join returns the debt of an address for one more connection, until it leaves.
func (d *debts) join(a netip.Addr, now time.Time) *debt {
	bits := a.BitLen()
	if a.Is6() {
		bits = prefixBits6
	}
	p, _ := a.Prefix(bits) // of what has no address, like a unix socket: the zero one
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = make(map[netip.Prefix]*debt)
	}
	b := d.of[p]
	if b == nil {
		if len(d.of) >= manyDebts {
			d.forgetLocked(now)
		}
		b = new(debt)
		d.of[p] = b
	}
	b.conns++
	return b
}

// leave ends what join began.
func (d *debts) leave(b *debt) {
	d.mu.Lock()
	b.conns--
	d.mu.Unlock()
}

// forgetLocked forgets addresses without connections: those that owe nothing, or all where that is not enough.
func (d *debts) forgetLocked(now time.Time) {
	for _, all := range []bool{false, true} {
		for p, b := range d.of {
			if b.conns == 0 && (all || b.owes(now) == 0) {
				delete(d.of, p)
			}
		}
		if len(d.of) < manyDebts {
			return
		}
	}
}

// charge adds a cost, or what is given back, and reports whether the address has spent more than it may.
func (b *debt) charge(now time.Time, cost int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bucket.add(now, float64(cost)/addressShare)
	b.bucket.used = min(b.bucket.used, mostDebt)
	return b.bucket.used > bucketSize
}

// owes returns how much of its budget an address has spent.
func (b *debt) owes(now time.Time) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bucket.add(now, 0)
	return b.bucket.used
}

// spread varies a pause, on average the same: what comes together does not go on together.
func spread(d time.Duration) time.Duration { return time.Duration(float64(d) * (0.5 + jitter())) }

// hold returns how long a new connection of the address waits until it is served: the longer, the more of them wait, so
// that the rate at which they come in is bounded.
func (b *debt) hold(now time.Time) time.Duration {
	if b.owes(now) <= bucketSize {
		return 0
	}
	return min(max(leastHold, time.Duration(b.waiting.Load())*holdEach), mostHold)
}

// admit has a new connection of an address that made too much trouble wait for a moment: else whoever is thrown out would be
// back at once. It reports whether the connection is still wanted, and how much it may spend before it is slowed down: nothing
// where it had to wait.
func (s *Server) admit(nc *netio.Conn, owed *debt, address string) (leeway int, wanted bool) {
	d := owed.hold(time.Now())
	if d == 0 {
		return ownTrouble, true
	}
	s.held.Add(1)
	owed.waiting.Add(1)
	defer func() {
		owed.waiting.Add(-1)
		s.held.Add(-1)
	}()
	s.abuse(telemetry.AbuseHeld, address)
	return 0, nc.Doze(spread(d)) && !s.aborted.Load()
}

func (s *Server) abuse(what, address string) {
	s.Pipeline.Recorder.Abuse(s.Pipeline.Direction, what, address)
}
