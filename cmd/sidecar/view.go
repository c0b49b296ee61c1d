package main

import (
	"errors"
	"fmt"

	"github.com/sidecar-mesh/sidecar/admin"
	"github.com/sidecar-mesh/sidecar/proxy"
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
		if why := v.refused(); why != "" {
			return admin.Readiness{Reason: "registration", Detail: why}
		}
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
	}
	if !v.life.began.Load() {
		return admin.Drain{State: "waiting"}
	}
	return admin.Drain{State: "draining"}
}

// Switches implements admin.Process.
func (v *view) Switches() ([]admin.Switch, []admin.SwitchChange) {
	states, entries := v.proxy.Switches()
	list := make([]admin.Switch, 0, len(states))
	for _, s := range states {
		list = append(list, switchOf(s))
	}
	journal := make([]admin.SwitchChange, 0, len(entries))
	for _, e := range entries {
		journal = append(journal, changeOf(e))
	}
	return list, journal
}

// SetSwitch implements admin.Process.
func (v *view) SetSwitch(name string, w admin.SwitchWrite) (admin.Switch, error) {
	s, err := v.proxy.SetSwitch(name, proxy.SwitchWrite{On: *w.Enabled, By: w.By, Reason: w.Reason, Confirm: w.Confirm})
	switch {
	case errors.Is(err, proxy.ErrNoSwitch):
		return admin.Switch{}, fmt.Errorf("%w: %w", admin.ErrNoSwitch, err)
	case errors.Is(err, proxy.ErrUnconfirmed):
		return admin.Switch{}, fmt.Errorf("%w: %w", admin.ErrUnconfirmed, err)
	case err != nil:
		return admin.Switch{}, err
	}
	return switchOf(s), nil
}

func switchOf(s proxy.SwitchStatus) admin.Switch {
	c := s.Config
	v := admin.Switch{
		Name: s.Name, Service: c.Service, Route: c.Route, Level: c.Level, Mode: c.Mode, Answer: c.Answer.Kind,
		State: s.State.State().String(), Auto: c.Auto != nil, Description: c.Description, Owner: c.Owner, From: c.From.String(),
	}
	if !s.Last.Time.IsZero() {
		last := changeOf(s.Last)
		v.Last = &last
	}
	return v
}

func changeOf(e proxy.SwitchEntry) admin.SwitchChange {
	return admin.SwitchChange{
		Time: e.Time, Switch: e.Switch, Service: e.Service, Level: e.Level, Old: e.From, New: e.To, By: e.By, Reason: e.Reason,
	}
}
