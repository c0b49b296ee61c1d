package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// observer tells metrics and events what discovery does. The merger's goroutine owns it.
type observer struct {
	p    *process
	last *config.Mesh
}

func newObserver(p *process) *observer { return &observer{p: p} }

// Updated implements discovery.Observer.
func (o *observer) Updated(source, _ string, _ int, changed bool) {
	if s := o.p.rec.Source(source); changed {
		s.Updated()
	} else {
		s.Confirmed()
	}
}

// Failed implements discovery.Observer.
func (o *observer) Failed(source, service string, err error) {
	text := err.Error()
	if service != "" {
		text = service + ": " + text
	}
	o.p.rec.Source(source).Failed(failureReason(err), text)
}

// Well implements discovery.Observer.
func (o *observer) Well(source string) { o.p.rec.Source(source).Well() }

// Closed implements discovery.Observer.
func (o *observer) Closed(source string) { o.p.rec.SourceClosed(source) }

// failureReason is the kind of a source's failure, in one word.
func failureReason(err error) string {
	if reason := discovery.Reason(err); reason != "" {
		return reason
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return "failed"
}

// Applied implements discovery.Observer.
func (o *observer) Applied(mesh *config.Mesh, _ int, took time.Duration) {
	if hash, err := strconv.ParseUint(mesh.Revision, 16, 64); err == nil {
		o.p.rec.Revision(hash)
	}
	if o.last == nil {
		o.p.own.Listening()
	}
	if o.last == nil || o.last.Config != mesh.Config {
		if err := o.p.own.SetConfig(mesh.Config); err != nil {
			o.p.log.Error("registrations stay as they were", "err", err)
		}
	}
	if o.last == nil {
		o.p.rec.Reload(true, took, "start: "+strings.Join(o.p.reload.paths, " "))
	} else {
		for name, set := range mesh.Endpoints {
			if was := o.last.Endpoints[name]; was != nil && was != set {
				o.moved(name, was.List, set.List)
			}
		}
	}
	if o.last == nil || o.last.Config != mesh.Config {
		o.p.rec.Inherited(inherited(mesh.Config))
	}
	o.last = mesh
}

// inherited lists the policies of which a provider decided something.
func inherited(c *config.Config) []telemetry.InheritedCount {
	var list []telemetry.InheritedCount
	add := func(s *config.Service, route string, p config.Policy) {
		if n := config.InheritedFields(&p); n > 0 {
			list = append(list, telemetry.InheritedCount{Service: s.Name, Route: route, Fields: n})
		}
	}
	for _, s := range c.Services {
		if s.Inherited == nil {
			continue
		}
		add(s, "", c.ServicePolicy(s))
		for _, r := range s.Routes {
			add(s, r.Name, c.RoutePolicy(s, r))
		}
	}
	return list
}

// Refused implements discovery.Observer. The failure of a reload is told by the reload.
func (o *observer) Refused(err error) {
	if !o.p.reload.busy.Load() {
		o.p.log.Error("what discovery found was refused", "err", err)
	}
}

// shown is how many addresses an event names.
const shown = 5

// moved tells which endpoints came and went.
func (o *observer) moved(service string, was, is []*config.Endpoint) {
	came, went := missing(is, was), missing(was, is)
	if len(came)+len(went) == 0 {
		return
	}
	var parts []string
	for _, p := range []struct {
		word string
		list []string
	}{{"came", came}, {"went", went}} {
		if n := len(p.list); n > shown {
			parts = append(parts, fmt.Sprintf("%d %s: %s …", n, p.word, strings.Join(p.list[:shown], " ")))
		} else if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s: %s", n, p.word, strings.Join(p.list, " ")))
		}
	}
	o.p.rec.Events().Add(telemetry.Event{Kind: telemetry.EventEndpoints, Service: service, Detail: strings.Join(parts, "; ")})
}

// missing lists the addresses of a that b does not have.
func missing(a, b []*config.Endpoint) []string {
	have := make(map[string]struct{}, len(b))
	for _, e := range b {
		have[e.Address] = struct{}{}
	}
	var list []string
	for _, e := range a {
		if _, ok := have[e.Address]; !ok {
			list = append(list, e.Address)
		}
	}
	return list
}
