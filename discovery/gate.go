package discovery

import (
	"context"
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/guard"
)

// Gated is a Source whose pulls can be suspended. The merger calls Gate before Run; the source then calls wait before each
// pull of a list that it has delivered before: it returns when it is this sidecar's turn, at once while the gate is open,
// or with the context's error.
type Gated interface {
	Gate(wait func(context.Context) error)
}

// Gate is the update gate of a process (S-40). Sources wait at it; the configuration, the admin API and a KV key may set it,
// and the latest word counts. Its methods may be called by any goroutine.
type Gate struct {
	instance string
	told     func(GateState) // may be nil

	mu      sync.Mutex
	gate    guard.Gate
	by      string
	changed chan struct{} // closed when gate is another
	waiting int
}

// GateState is what a Gate is like at one moment.
type GateState struct {
	guard.Gate
	By      string    // who set it last
	Turn    bool      // this sidecar may pull
	Until   time.Time // when Turn ends; zero: while the gate is as it is
	Waiting int       // pulls that are suspended
}

// NewGate returns an open gate. Instance is what this sidecar is known by, different from all others; told, which may be
// nil, hears of each change of the gate, one after the other, and must not block.
func NewGate(instance string, told func(GateState)) *Gate {
	return &Gate{instance: instance, told: told, changed: make(chan struct{})}
}

// Set closes or opens the gate. Those that wait go on when it is their turn by the new rule.
func (g *Gate) Set(v guard.Gate, by string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.gate
	g.gate, g.by = v, by
	if v == was {
		return
	}
	close(g.changed)
	g.changed = make(chan struct{})
	if g.told != nil && (v.Closed || was.Closed) {
		g.told(g.stateLocked(time.Now()))
	}
}

// State says what the gate is like.
func (g *Gate) State() GateState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stateLocked(time.Now())
}

func (g *Gate) stateLocked(now time.Time) GateState {
	s := GateState{Gate: g.gate, By: g.by, Waiting: g.waiting}
	s.Turn, s.Until = g.gate.Turn(now, g.instance)
	return s
}

// Wait returns when it is this sidecar's turn to pull, or with the context's error.
func (g *Gate) Wait(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		turn, until := g.gate.Turn(time.Now(), g.instance)
		if turn {
			return ctx.Err()
		}
		changed := g.changed
		g.waiting++
		g.mu.Unlock()
		t := time.NewTimer(time.Until(until))
		select {
		case <-t.C:
		case <-changed:
		case <-ctx.Done():
		}
		t.Stop()
		g.mu.Lock()
		g.waiting--
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// setGate lets the configuration set the gate, when it says something else than before.
func (m *Merger) setGate(was, is *config.Config) {
	v := gateOf(is)
	if m.o.Gate != nil && (was == nil || gateOf(was) != v) {
		m.o.Gate.Set(v, "configuration")
	}
}

// gateOf is what the configuration says of the gate.
func gateOf(c *config.Config) guard.Gate {
	v := &c.Discovery.UpdateGate
	return guard.Gate{Closed: v.Enabled.Value, Share: v.Percent.Value, Epoch: v.Epoch.Value}
}
