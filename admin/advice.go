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
	base := Advice{Service: s.Name, Direction: dir.String()}
	seen := map[*config.Policy]bool{}
	for _, r := range append([]*snapshot.Route{s.Rest}, s.Routes...) {
		if seen[r.Policy] || r.Respond != nil || r.Redirect != nil {
			continue
		}
		seen[r.Policy] = true
		a := base
		a.Route = r.Name
		list = append(list, timeLimits(a, r.Policy, q, inbound)...)
	}
	return list
}

func timeLimits(a Advice, p *config.Policy, q telemetry.Quantiles, inbound time.Duration) []Advice {
	var list []Advice
	say := func(field string, configured time.Duration, observed, suggested, format string, args ...any) {
		a.Field, a.Configured, a.Observed, a.Suggested = field, config.Span(configured), observed, suggested
		a.Text = fmt.Sprintf(format, args...)
		list = append(list, a)
	}
	timeout, perTry, retries := p.Timeout.Value, p.PerTryTimeout.Value, p.Retry.Count.Value
	known := q.Count >= adviceSamples
	observed := "P999 " + config.Span(rounded(q.P999)) + ", P9999 " + config.Span(rounded(q.P9999))
	switch {
	case timeout == 0:
		say("timeout", 0, "", "", "there is no time limit: a dependency that hangs holds its callers for ever (S-140)")
	case known && near(q.P999, timeout):
		say("timeout", timeout, observed, "", "at least one call in a thousand runs into it: it cuts work that would have come to an end, or the service is sick")
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
		say("per_try_timeout", perTry, "", config.Span(timeout/time.Duration(retries+1)), "%d attempts of it do not fit into timeout %s", retries+1, config.Span(timeout))
	case perTry > 0 && known && near(q.P999, perTry):
		say("per_try_timeout", perTry, observed, config.Span(roomy(q.P999)), "at least one call in a thousand takes about as long: set it above P999 (S-141)")
	}
	if inbound > 0 && timeout > inbound {
		say("timeout", timeout, "", config.Span(inbound), "our own callers wait %s at most (inbound timeout): what takes longer is worked out for nobody (S-241)", config.Span(inbound))
	}
	return list
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
