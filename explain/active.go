package explain

import (
	"fmt"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// maxOut is how many endpoints that get no calls are named one by one.
const maxOut = 10

// Active says what protects a service at now, or what it is protected from, in words: breakers that are not closed, lists
// that are not believed, endpoints that are left out, switches that are not off, groups that are switched, limits that are
// reached. Nothing is active when it is empty.
func Active(s *snapshot.Snapshot, svc *snapshot.Service, now time.Time) []string {
	list := Switches(s, svc)
	seen := map[any]bool{}
	for _, r := range append([]*snapshot.Route{svc.Rest}, svc.Routes...) {
		if r.Breaker != nil && !seen[r.Breaker] && r.Breaker.State(now) != resilience.Closed {
			list = append(list, "breaker of "+called(r)+" is "+BreakerText(r, now))
		}
		seen[r.Breaker] = true
		limit, _ := Limits(r)
		if runs, waits := r.Limiter.InUse(); limit > 0 && runs >= limit && !seen[r.Limiter] {
			list = append(list, fmt.Sprintf("limit of %s is reached: %d in flight, %d wait", called(r), runs, waits))
		}
		seen[r.Limiter] = true
	}
	for _, src := range Sources(svc) {
		if p := src.Protection; p != nil {
			list = append(list, fmt.Sprintf("%s holds on to the list of %s: %d listed, %d known", p.Kind, src.Name, p.Listed, p.Known))
		}
	}
	out := 0
	all := svc.Rest.Targets[0]
	for i := range all.Endpoints {
		if all.Endpoints[i].Meter.State.Load() == 0 {
			continue
		}
		if out++; out <= maxOut {
			e := endpoint(all, i, now)
			line := "endpoint " + e.Address + " is left out: " + e.State
			if e.Reason != "" {
				line += " (" + e.Reason + ")"
			}
			if e.Asks != nil {
				line += ", its breaker is " + e.Breaker
			}
			list = append(list, line)
		}
	}
	if out > maxOut {
		list = append(list, fmt.Sprintf("and %d more endpoints are left out", out-maxOut))
	}
	for _, g := range groupSwitches(s, svc) {
		list = append(list, g.text())
	}
	return list
}

// Switches says which degradation switches of a service are not off.
func Switches(s *snapshot.Snapshot, svc *snapshot.Service) []string {
	var list []string
	for _, w := range s.Switches {
		if state := w.State.State(); state != resilience.SwitchOff && w.Config.Service == svc.Name && !svc.Inbound {
			of := ""
			if w.Config.Route != "" {
				of = " for route " + w.Config.Route
			}
			list = append(list, fmt.Sprintf("switch %s is %s%s (level %d, %s)", w.Name, state, of, w.Config.Level, w.Config.Mode))
		}
	}
	return list
}

func called(r *snapshot.Route) string {
	if r == r.Service.Rest {
		return "the service"
	}
	return "route " + r.Name
}
