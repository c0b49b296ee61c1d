package main

import (
	"fmt"
	"os"

	"github.com/sidecar-mesh/sidecar/admin"
	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// newGate makes the update gate. Two sidecars of one name would have their turn together, which is no harm.
func (p *process) newGate(c *config.Config) *discovery.Gate {
	id := c.Node.ID
	if id == "" {
		id, _ = os.Hostname() // without any name all such sidecars share their turn
	}
	gate := discovery.NewGate(c.Node.Service+"/"+id, func(s discovery.GateState) {
		e := telemetry.Event{Kind: telemetry.EventGate, To: "open", By: s.By, Detail: "all sidecars follow their registries"}
		if s.Closed {
			e.To = "closed"
			e.Detail = fmt.Sprintf("%g%% of all sidecars follow their registries, for %s each", 100*s.Share, config.Span(s.Epoch))
		}
		p.rec.Events().Add(e)
	})
	p.rec.Gate(func() int {
		switch s := gate.State(); {
		case !s.Closed:
			return 0
		case s.Turn:
			return 1
		}
		return 2
	})
	return gate
}

// Gate implements admin.Process.
func (v *view) Gate() admin.Gate {
	s := v.gate.State()
	g := admin.Gate{Closed: s.Closed, Share: s.Share, Epoch: config.Span(s.Epoch), By: s.By, Turn: s.Turn, Waiting: s.Waiting}
	if !s.Until.IsZero() {
		g.Until = &s.Until
	}
	return g
}

// SetGate implements admin.Process.
func (v *view) SetGate(closed bool, share float64) admin.Gate {
	s := v.gate.State().Gate
	s.Closed, s.Share = closed, share
	v.gate.Set(s, "admin")
	return v.Gate()
}
