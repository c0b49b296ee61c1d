package explain

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// Field is one field of a policy: its value, and where it comes from.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"`  // file:line:col, "built in", or "not set"
	Layer string `json:"layer"` // whose: route NAME, service NAME, policies.NAME, defaults; empty for what is built in
}

// layer is one of the policies that lie over each other.
type layer struct {
	name   string
	policy *config.Policy
}

// Policy lists the fields of the policy that holds for a route, in the order of the documentation.
func Policy(c *config.Config, r *snapshot.Route) []Field {
	fields := spelled(r.Policy)
	layers := layersOf(c, r)
	given := make([][]spelledField, len(layers))
	for i, l := range layers {
		given[i] = spelled(l.policy)
	}
	list := make([]Field, 0, len(fields))
	for n, f := range fields {
		if f.hidden {
			continue
		}
		v := Field{Name: f.name, Value: f.value, From: f.from.String()}
		if !f.set {
			v.Value, v.From = "", "not set"
		}
		for i := range layers {
			if f.set && f.from.Source != nil && given[i][n].set && given[i][n].from == f.from {
				v.Layer = layers[i].name
				break
			}
		}
		list = append(list, v)
	}
	return list
}

// layersOf returns the policies that lie over each other for a route, the strongest first.
func layersOf(c *config.Config, r *snapshot.Route) []layer {
	var list []layer
	add := func(name string, p *config.Policy) {
		for n := 0; p != nil && n <= len(c.Policies); n++ {
			list = append(list, layer{name, p})
			if !p.Use.Set {
				return
			}
			name, p = "policies."+p.Use.Value, c.Policies[p.Use.Value]
		}
	}
	if r.Config != nil {
		add("route "+r.Name, &r.Config.Policy)
	}
	if s := r.Service; s.Inbound {
		add("inbound "+s.Name, &s.InboundConfig.Policy)
	} else {
		add("service "+s.Name, &s.Config.Policy)
	}
	add("defaults", &c.Defaults)
	return list
}

// originOf is where a service is written.
func originOf(s *snapshot.Service) config.Origin {
	if s.Inbound {
		return s.InboundConfig.From
	}
	return s.Config.From
}

// spelledField is a field of a policy in the words of the configuration.
type spelledField struct {
	name, value string
	set, hidden bool
	from        config.Origin
}

// spelled lists the fields of a policy, always the same ones in the same order. Those of something that is off are
// hidden.
func spelled(p *config.Policy) []spelledField {
	list := []spelledField{
		spell("timeout", p.Timeout, config.Span), perTryField(p),
		spell("connect_timeout", p.ConnectTimeout, config.Span), spell("idle_timeout", p.IdleTimeout, config.Span),
		spell("tell_deadline", p.TellDeadline, strconv.FormatBool),
		spell("idempotent", p.Idempotent, strconv.FormatBool),
		spell("retry.count", p.Retry.Count, strconv.Itoa), spell("retry.when", p.Retry.When, words),
		spell("retry.backoff.base", p.Retry.BackoffBase, config.Span), spell("retry.backoff.max", p.Retry.BackoffMax, config.Span),
		spell("retry.budget.ratio", p.Retry.BudgetRatio, share),
		spell("retry.budget.min_per_second", p.Retry.BudgetMinPerSecond, strconv.Itoa),
		backupField(&p.Backup), spell("backup.max_ratio", p.Backup.MaxRatio, share),
		spell("dual_send", p.DualSend, strconv.FormatBool), spell("fallback", p.Fallback, fallback),
		spell("mirror", p.Mirror, mirror),
		spell("lb", p.LB, balancer),
		spell("locality.prefer", p.Locality.Prefer, same), spell("locality.spill_below", p.Locality.SpillBelow, share),
		spell("warmup", p.Warmup, config.Span),
	}
	list = append(list, spelledBreaker(&p.Breaker)...)
	list = append(list, spelledOutlier(&p.Outlier)...)
	return append(
		list,
		spell("limit.connections", p.Limit.Connections, strconv.Itoa), spell("limit.in_flight", p.Limit.InFlight, strconv.Itoa),
		spell("limit.waiting", p.Limit.Waiting, strconv.Itoa), spell("limit.priorities", p.Limit.Priorities, words), spell("limit.bulkhead", p.Limit.Bulkhead, same), spell("panic", p.Panic, same),
	)
}

// perTryField is the time limit of one attempt, or what it follows from.
func perTryField(p *config.Policy) spelledField {
	if p.PerTryAuto.Value.Quantile != "" {
		return spell("per_try_timeout", p.PerTryAuto, config.PerTryAuto.String)
	}
	return spell("per_try_timeout", p.PerTryTimeout, config.Span)
}

// backupField is when a backup begins, or that there is none.
func backupField(b *config.Backup) spelledField {
	if b.Off.Value {
		return spell("backup.after", b.Off, none)
	}
	return spell("backup.after", b.After, config.BackupAfter.String)
}

func mirror(m config.Mirror) string {
	if m.Service == "" {
		return "none"
	}
	return share(m.Ratio) + " to " + m.Service + ", " + strconv.Itoa(m.InFlight) + " at one time"
}

func fallback(f config.Fallback) string {
	if f.Answer.Kind == "" {
		return "none"
	}
	return f.Answer.Kind + " when " + strings.Join(f.When, " ")
}

func spelledBreaker(b *config.Breaker) []spelledField {
	slow := b.SlowRatio
	slow.Set = b.SlowOver.Set // the ratio says nothing by itself
	return onOrOff(
		spell("breaker", b.Off, none), spell("breaker.per", b.Per, same),
		spell("breaker.error_threshold", b.ErrorThreshold, share),
		spell("breaker.request_volume", b.RequestVolume, strconv.Itoa), spell("breaker.window", b.Window, config.Span),
		spell("breaker.buckets", b.Buckets, strconv.Itoa), spell("breaker.sleep_window", b.SleepWindow, config.Span),
		spell("breaker.half_open_probes", b.HalfOpenProbes, strconv.Itoa),
		spell("breaker.slow.over", b.SlowOver, config.Span), spell("breaker.slow.ratio", slow, share),
	)
}

func spelledOutlier(o *config.Outlier) []spelledField {
	return onOrOff(
		spell("outlier", o.Off, none),
		spell("outlier.consecutive_failures", o.ConsecutiveFailures, strconv.Itoa),
		spell("outlier.error_ratio", o.ErrorRatio, share), spell("outlier.timeout_ratio", o.TimeoutRatio, share),
		spell("outlier.request_volume", o.RequestVolume, strconv.Itoa), spell("outlier.window", o.Window, config.Span),
		spell("outlier.eject_for", o.EjectFor, config.Span), spell("outlier.eject_max", o.EjectMax, config.Span),
		spell("outlier.max_ejected", o.MaxEjected, share), spell("outlier.probe", o.Probe, probe),
		spell("outlier.slow_node", o.SlowNode, slowNode),
	)
}

// onOrOff hides either that something is off, or its fields.
func onOrOff(off spelledField, fields ...spelledField) []spelledField {
	isOff := off.value == "none"
	off.hidden = !isOff
	for i := range fields {
		fields[i].hidden = isOff
	}
	return append([]spelledField{off}, fields...)
}

func spell[T any](name string, o config.Opt[T], text func(T) string) spelledField {
	return spelledField{name: name, value: text(o.Value), set: o.Set, from: o.From}
}

func same(s string) string { return s }

func words(list []string) string { return strings.Join(list, " ") }

func none(off bool) string {
	if off {
		return "none"
	}
	return ""
}

func share(f float64) string { return strconv.FormatFloat(f*100, 'g', 6, 64) + "%" }

func slowNode(s config.SlowNode) string {
	return fmt.Sprintf("average over %s in %d of %d samples of %s", config.Span(s.AverageOver), s.Exceed, s.Points, config.Span(s.Every))
}

func balancer(b config.LB) string {
	switch {
	case b.Kind == "adaptive":
		a := b.Adaptive
		return fmt.Sprintf("adaptive: each %s the slowest %g%% get weight %d, the others %d", config.Span(a.Interval), a.SlowFraction*100, a.SlowWeight, a.NormalWeight)
	case b.HashOn == "":
		return b.Kind
	case b.HashName == "":
		return b.Kind + " by " + b.HashOn
	}
	return b.Kind + " by " + b.HashOn + " " + b.HashName
}

func probe(p config.Probe) string {
	what := "connect"
	if p.HTTP != "" {
		what = "GET " + p.HTTP
	}
	if p.GRPC {
		what = strings.TrimSuffix("gRPC health of "+p.Service, " of ")
	}
	return what + " every " + config.Span(p.Interval) + ", timeout " + config.Span(p.Timeout)
}
