package main

import (
	"fmt"

	"github.com/sidecar-mesh/sidecar/admin"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// view is the process as the admin API sees it.
type view process

// Snapshot implements admin.Process.
func (v *view) Snapshot() *snapshot.Snapshot { return v.proxy.Snapshot() }

// Readiness implements admin.Process.
func (v *view) Readiness() admin.Readiness {
	if v.life.began.Load() {
		return admin.Readiness{Reason: "draining", Detail: "draining since the process was told to end"}
	}
	select {
	case <-v.merger.Ready():
		return admin.Readiness{Ready: true}
	default:
	}
	r := admin.Readiness{Reason: "starting", Detail: "waiting for the first configuration to be in force and listeners to be open"}
	for _, w := range v.merger.Waiting() {
		r.Waiting = append(r.Waiting, admin.Waiting{Service: w.Service, Source: w.Source, Error: w.Err})
	}
	if n := len(r.Waiting); n > 0 {
		w := r.Waiting[0]
		r.Detail = fmt.Sprintf("waiting for %s to answer for service %s", w.Source, w.Service)
		if n > 1 {
			r.Detail += fmt.Sprintf(", and %d more", n-1)
		}
	}
	return r
}

// Reloads implements admin.Process.
func (v *view) Reloads() admin.Reloads { return v.reload.state() }

// Connections implements admin.Process.
func (v *view) Connections() admin.Connections {
	var c admin.Connections
	for _, l := range v.proxy.Listeners() {
		c.Downstream = append(c.Downstream, admin.Listener{
			Direction: l.Direction.String(), Name: l.Name, Address: l.Address,
			Open: l.Open, Active: l.Open - l.Idle, Idle: l.Idle,
		})
	}
	for _, p := range v.proxy.Pools() {
		c.Upstream = append(c.Upstream, admin.Pool{
			Direction: p.Direction.String(), Service: p.Service, Endpoint: p.Endpoint,
			Open: p.Open, Active: p.Open - p.Idle, Idle: p.Idle, Waiting: p.Waiting,
		})
	}
	return c
}

// Drain implements admin.Process.
func (v *view) Drain() admin.Drain {
	v.life.begin("asked for by the admin API")
	return v.drained()
}

// Drained implements admin.Process.
func (v *view) Drained() <-chan struct{} { return v.life.done }

// Quit implements admin.Process.
func (v *view) Quit() admin.Drain {
	v.life.quit()
	return v.drained()
}

func (v *view) drained() admin.Drain {
	select {
	case <-v.life.done:
		return admin.Drain{State: "drained", Cut: int(v.life.cut.Load())}
	default:
		return admin.Drain{State: "draining"}
	}
}
