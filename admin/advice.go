package admin

import (
	"fmt"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// Advice compares what is configured with what was observed (S-141).
type Advice struct {
	Service    string `json:"service"`
	Direction  string `json:"direction"`
	Route      string `json:"route,omitempty"`
	Field      string `json:"field"`
	Configured string `json:"configured"`
	Observed   string `json:"observed,omitempty"`
	Suggested  string `json:"suggested,omitempty"`
	Text       string `json:"text"`
}

// adviceSamples is how many exchanges must have been seen before quantiles so far out say anything.
const adviceSamples = 1000

// advise looks at the time limits of a service and its routes. q is what was observed of the service as a whole, of the last
// one to two minutes; inbound is the time limit of our own app, 0 if there is none.
func advise(dir telemetry.Direction, s *snapshot.Service, q telemetry.Quantiles, inbound time.Duration) []Advice {
	var list []Advice
	if s.Protocol == "tcp" {
		return nil // its time limit is about connecting, what was observed about connections
	}
	base := Advice{Service: s.Name, Direction: dir.String()}
	seen, late := map[*config.Policy]bool{}, map[*config.Policy]bool{}
	routes := append([]*snapshot.Route{s.Rest}, s.Routes...)
	for _, r := range routes {
		late[r.Policy] = late[r.Policy] || timedOut(r)
	}
	for _, r := range routes {
		if seen[r.Policy] || r.Respond != nil || r.Redirect != nil {
			continue
		}
		seen[r.Policy] = true
		a := base
		a.Route = r.Name
		list = append(list, timeLimits(a, r.Policy, q, late[r.Policy], inbound)...)
	}
	return list
}

// timedOut reports whether calls of a route ran into its time limit; where nobody counts, it may be. Quantiles are those of the
// whole service, and a limit that is shorter than those of its neighbours need not cut anything.
func timedOut(r *snapshot.Route) bool {
	s, counted := r.Meters.(*telemetry.Series)
	if !counted {
		return true
	}
	stats := s.Stats()
	return stats.TimedOut() > 0
}

func timeLimits(a Advice, p *config.Policy, q telemetry.Quantiles, late bool, inbound time.Duration) []Advice {
	var list []Advice
	say := func(field string, configured time.Duration, observed, suggested, format string, args ...any) {
		a.Field, a.Configured, a.Observed, a.Suggested = field, "none", observed, suggested
		if configured > 0 {
			a.Configured = config.Span(configured)
		}
		a.Text = fmt.Sprintf(format, args...)
		list = append(list, a)
	}
	timeout, perTry, retries := p.Timeout.Value, p.PerTryTimeout.Value, p.Retry.Count.Value
	known := q.Count >= adviceSamples
	observed := "P999 " + config.Span(rounded(q.P999)) + ", P9999 " + config.Span(rounded(q.P9999))
	switch {
	case timeout == 0:
		say("timeout", 0, "", "", "there is no time limit: a dependency that hangs holds its callers for ever (S-140)")
	case late && reached(q, timeout) != "":
		say("timeout", timeout, observed, "", "at least %s runs into it: it cuts work that would have come to an end, or the service is sick", reached(q, timeout))
	case known && timeout > 10*q.P9999 && timeout > time.Second:
		want := roomy(q.P9999)
		say("timeout", timeout, observed, config.Span(want), "no call takes nearly as long: one that hangs holds its place for %s longer than it need", config.Span(timeout-want))
	}
	switch {
	case perTry == 0 && p.PerTryAuto.Value.Quantile == "" && retries > 0:
		suggested := "auto"
		if known {
			suggested = config.Span(roomy(q.P999))
		}
		say("per_try_timeout", 0, "", suggested, "an attempt that hangs uses up the whole timeout, and leaves nothing for retry.count %d", retries)
	case perTry > 0 && timeout > 0 && perTry*time.Duration(retries+1) > timeout && retries > 0:
		say("per_try_timeout", perTry, "", config.Span(shorter(timeout/time.Duration(retries+1))), "%d attempts of it do not fit into timeout %s", retries+1, config.Span(timeout))
	case perTry > 0 && reached(q, perTry) != "":
		say("per_try_timeout", perTry, observed, config.Span(roomy(q.P999)), "at least %s takes about as long: set it above P999 (S-141)", reached(q, perTry))
	}
	if inbound > 0 && timeout > inbound {
		say("timeout", timeout, "", config.Span(inbound), "our own callers wait %s at most (inbound timeout): what takes longer is worked out for nobody (S-241)", config.Span(inbound))
	}
	return list
}

// reached says how many calls stand at a limit at least, as far as enough were seen to tell; "" where it is less than one in a
// thousand.
func reached(q telemetry.Quantiles, limit time.Duration) string {
	for _, c := range []struct {
		quantile time.Duration
		samples  uint64
		share    string
	}{
		{q.P50, 20, "every second call"},
		{q.P90, 100, "one call in ten"},
		{q.P99, adviceSamples, "one call in a hundred"},
		{q.P999, adviceSamples, "one call in a thousand"},
	} {
		if q.Count >= c.samples && near(c.quantile, limit) {
			return c.share
		}
	}
	return ""
}

// near reports whether a quantile stands at a limit: what was cut there counts as having taken as long.
func near(q, limit time.Duration) bool { return q >= limit-limit/20 }

// roomy is twice a quantile, in round numbers.
func roomy(q time.Duration) time.Duration {
	d := 2 * q
	switch {
	case d < 10*time.Millisecond:
		return 10 * time.Millisecond
	case d < 100*time.Millisecond:
		return d.Round(10 * time.Millisecond)
	case d < time.Second:
		return d.Round(50 * time.Millisecond)
	}
	return d.Round(500 * time.Millisecond)
}

// shorter is a time that is not longer, in round numbers.
func shorter(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Truncate(time.Millisecond)
	}
	return d.Truncate(10 * time.Microsecond)
}

func rounded(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

// inboundTimeout is the longest time limit of what our own app offers, 0 if it has none.
func inboundTimeout(s *snapshot.Snapshot) time.Duration {
	var most time.Duration
	for _, svc := range s.Inbound.List {
		if svc.Policy.Timeout.Value == 0 {
			return 0
		}
		most = max(most, svc.Policy.Timeout.Value)
	}
	return most
}

// outboundOnly is d for calls that we make: those of others to us are not ours to compare with.
func outboundOnly(dir telemetry.Direction, d time.Duration) time.Duration {
	if dir == telemetry.Inbound {
		return 0
	}
	return d
}
