package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/admin"
	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/consul"
	"github.com/sidecar-mesh/sidecar/discovery/registrar"
	"github.com/sidecar-mesh/sidecar/discovery/registration"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

func openRegistrations(r *config.Registry) (registrar.Registry, error) {
	if r.Consul != nil {
		return consul.NewRegistry(r)
	}
	return nil, fmt.Errorf("nothing can be registered with the registry %q", r.Name)
}

// publishPolicy writes the document of a service of ours into the config centre.
func publishPolicy(ctx context.Context, p *registrar.Publication) (written bool, err error) {
	kv, err := consul.NewKV(p.Registry, p.Prefix)
	if err != nil {
		return false, err
	}
	defer kv.Close()
	return publish(ctx, kv, p.Service, p.Text)
}

// registrations tells metrics and events what becomes of the services of our own app in registries.
type registrations process

// Changed implements registrar.Observer.
func (o *registrations) Changed(service, registry string, from, to registration.State, why string) {
	o.rec.RegistrationChanged(service, registry, from.String(), to.String(), why)
	if to == registration.Passing {
		o.leases.well(service, registry)
	}
}

// Forgotten implements registrar.Observer.
func (o *registrations) Forgotten(service, registry string) {
	o.rec.RegistrationForgotten(service, registry)
}

// Tried implements registrar.Observer.
func (o *registrations) Tried(registry string, verb registration.Verb, result registration.Kind) {
	o.rec.RegistrationTried(registry, verb.String(), result.String())
}

// Published implements registrar.Observer.
func (o *registrations) Published(service, registry string, written bool, err error, again bool) {
	o.rec.PolicyPublished(service, registry, written, err, again)
}

// Swept implements registrar.Observer.
func (o *registrations) Swept(registry string, ids []string) {
	slices.Sort(ids)
	o.rec.Events().Add(telemetry.Event{
		Kind: telemetry.EventRegistration, To: registration.Left.String(), By: registry,
		Detail: "left behind by an earlier life: " + strings.Join(ids, " "),
	})
}

// Apps implements admin.Process.
func (v *view) Apps() []admin.App {
	list := v.proxy.Apps()
	out := make([]admin.App, len(list))
	for i, a := range list {
		out[i] = admin.App{Service: a.Service, State: "unknown", Reason: a.Why, Since: a.Since}
		switch {
		case a.Known && a.Well:
			out[i].State = "well"
		case a.Known:
			out[i].State = "ill"
		}
	}
	return out
}

// Registrations implements admin.Process.
func (v *view) Registrations() []admin.Registration {
	list := v.own.Status()
	out := make([]admin.Registration, len(list))
	for i, s := range list {
		out[i] = admin.Registration{
			Service: s.Service, Registry: s.Registry, ID: s.ID, State: s.State.String(), Reason: s.Why, Since: s.Since,
		}
	}
	return out
}

// refused says why a service of our own must not be registered; empty if all may (S-18).
func (v *view) refused() string {
	for _, s := range v.own.Status() {
		if s.Refused {
			return "service " + s.Service + " is refused by registry " + s.Registry + ": " + s.Why
		}
	}
	return ""
}

const (
	leaveBound = 10 * time.Second // for registries to take our services away
	quietTime  = time.Second      // without a call from outside, before we count as forgotten
)

// leave takes our services out of all registries and then waits until nobody calls any more: whoever has not heard of it yet is
// served. It ends at until at the latest, when ctx ends, or when the process is told to quit.
func (l *life) leave(ctx context.Context, until time.Time) {
	if !l.p.own.Any() {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	bounded, stop := context.WithTimeout(ctx, leaveBound)
	err := l.p.own.Leave(bounded)
	stop()
	if err != nil {
		l.p.log.Warn("registries may list us still", "err", err)
	}
	l.awaitQuiet(ctx, telemetry.Inbound, quietTime, quietTime/10, func() bool { return false })
}
