package main

import (
	"fmt"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/disk"
	"github.com/sidecar-mesh/sidecar/discovery/guard"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// Guarded implements discovery.Observer.
func (o *observer) Guarded(source, service string, was, is guard.Decision) {
	v := telemetry.Protection{Source: source, Service: service}
	for _, n := range is.Notes {
		if v.Endpoints == nil {
			v.Endpoints = make(map[string]int)
		}
		v.Endpoints[noted(&n)]++
	}
	if is.Mode != guard.Believed {
		v.Mode = is.Mode.String()
	}
	o.p.rec.Protected(v)
	o.zombies(source, service, was.Notes, is.Notes)
	if was.Mode != is.Mode {
		o.p.rec.Events().Add(protectionEvent(source, service, was, is))
	}
}

// Forgot implements discovery.Observer.
func (o *observer) Forgot(source, service string, err error) {
	o.p.rec.SnapshotFailed()
	o.p.rec.Events().Add(telemetry.Event{
		Kind: telemetry.EventSnapshot, Service: service, By: source, To: "failing", Detail: err.Error(),
	})
}

// newDisk makes what keeps endpoints on disk. A folder that cannot be written is told once, and no reason not to start.
func (p *process) newDisk(c *config.Config) *disk.Store {
	failing := false // Run is one goroutine
	return disk.New(disk.Options{
		Dir: c.Discovery.SnapshotDir, Scope: c.Node.Tenant + "/" + c.Node.Environment,
		Failed: func(err error) {
			p.rec.SnapshotFailed()
			if !failing {
				p.rec.Events().Add(telemetry.Event{Kind: telemetry.EventSnapshot, To: "failing", Detail: err.Error()})
			}
			failing = true
		},
		Well: func() {
			failing = false
			p.rec.Events().Add(telemetry.Event{Kind: telemetry.EventSnapshot, To: "ok", Detail: "endpoints are kept on disk again"})
		},
	})
}

// noted is the reason of a note, and whether the endpoint is used all the same where that is not a matter of course.
func noted(n *guard.Note) string {
	why := n.Why.String()
	switch {
	case n.Why >= guard.Retained && n.Why != guard.Unreachable && !n.Used:
		return why + "_unused"
	case n.Why == guard.Unreachable && n.Used:
		return why + "_used"
	}
	return why
}

// protectionEvent tells that a protection began or ended, and on what grounds.
func protectionEvent(source, service string, was, is guard.Decision) telemetry.Event {
	e := telemetry.Event{Kind: telemetry.EventProtection, Service: service, From: was.Mode.String(), By: source}
	numbers := fmt.Sprintf("%d listed of %d known, %d used", is.Listed, is.Known, len(is.Use))
	switch is.Mode {
	case guard.Believed:
		e.To, e.Detail = "released", "the list of "+source+" is used as it is: "+numbers
		return e
	case guard.Capped:
		e.Detail = "more endpoints failed health than removal_protection lets go"
	case guard.HalfDead:
		e.Detail = "the list of " + source + " is too short to be true (half_dead)"
	case guard.Restored:
		e.Detail = source + " has not answered since the start: endpoints are those of the disk"
	}
	e.To = "holding"
	e.Detail += ": " + numbers
	if !is.Until.IsZero() {
		e.Detail += ", until " + is.Until.Format(time.TimeOnly)
	}
	return e
}

// zombies tells which endpoints are listed as well and cannot be reached, and which can be again (S-28).
func (o *observer) zombies(source, service string, was, is []guard.Note) {
	before, after := unreachable(was), unreachable(is)
	for address, problem := range after {
		if _, told := before[address]; !told {
			o.p.rec.Events().Add(telemetry.Event{
				Kind: telemetry.EventZombie, Service: service, Endpoint: address, By: source, To: "unreachable",
				Detail: "listed as well, and a direct check fails: " + problem,
			})
		}
	}
	for address := range before {
		if _, still := after[address]; !still {
			o.p.rec.Events().Add(telemetry.Event{
				Kind: telemetry.EventZombie, Service: service, Endpoint: address, By: source, To: "ok",
				Detail: "reachable again, or no longer listed",
			})
		}
	}
}

func unreachable(notes []guard.Note) map[string]string {
	var m map[string]string
	for _, n := range notes {
		if n.Why == guard.Unreachable {
			if m == nil {
				m = make(map[string]string)
			}
			m[n.Endpoint.Address] = n.Err
		}
	}
	return m
}
