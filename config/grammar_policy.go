package config

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

func policyValue() value[Policy] {
	return object(
		opt("use", "start from this named policy; own fields win", func(p *Policy) *Opt[string] { return &p.Use }, claimed(claimPolicy, line())),
		opt("timeout", "the whole call until the head of the answer, retries included; 0: none (15s)", func(p *Policy) *Opt[time.Duration] { return &p.Timeout }, duration(0, longest)),
		perTry(),
		opt("tell_deadline", "the next hop is told how much time is left, also where our caller did not say (false)", func(p *Policy) *Opt[bool] { return &p.TellDeadline }, boolean()),
		opt("connect_timeout", "opening a connection (1s)", func(p *Policy) *Opt[time.Duration] { return &p.ConnectTimeout }, duration(time.Millisecond, longest)),
		opt("idle_timeout", "no byte in either direction on a stream; 0: none (5m)", func(p *Policy) *Opt[time.Duration] { return &p.IdleTimeout }, duration(0, longest)),
		opt("idempotent", "may be sent twice; left out: what the HTTP method says", func(p *Policy) *Opt[bool] { return &p.Idempotent }, boolean()),
		in("retry", "what is tried again: a count, or a map", func(p *Policy) *Retry { return &p.Retry }, retryValue()),
		in("backup", "a second attempt beside one that takes long: a time or a map; none: off", func(p *Policy) *Backup { return &p.Backup }, backupValue()),
		opt("dual_send", "two attempts at once, on different endpoints; the first good answer counts (false)", func(p *Policy) *Opt[bool] { return &p.DualSend }, boolean()),
		opt("fallback", "what is answered when a call has failed; none: the failure", func(p *Policy) *Opt[Fallback] { return &p.Fallback }, fallbackValue()),
		opt("mirror", "a share of the requests is copied to another service; answers are dropped", func(p *Policy) *Opt[Mirror] { return &p.Mirror }, mirrorValue()),
		opt("lb", "how an endpoint is picked (round_robin)", func(p *Policy) *Opt[LB] { return &p.LB }, lbValue()),
		in("locality", "prefer near endpoints", func(p *Policy) *Locality { return &p.Locality }, object(
			opt("prefer", "zone, region or group", func(l *Locality) *Opt[string] { return &l.Prefer }, word("zone", "region", "group")),
			opt("spill_below", "usable share of the near endpoints below which others are used too", func(l *Locality) *Opt[float64] { return &l.SpillBelow }, ratio()),
		)),
		opt("warmup", "a new endpoint reaches its full share after so long; 0: at once", func(p *Policy) *Opt[time.Duration] { return &p.Warmup }, duration(0, longest)),
		in("breaker", "stops calls to a failing service; none: off", func(p *Policy) *Breaker { return &p.Breaker }, breakerValue()),
		in("outlier", "leaves failing endpoints out for a while; none: off", func(p *Policy) *Outlier { return &p.Outlier }, outlierValue()),
		in("limit", "what one service takes at one time", func(p *Policy) *Limit { return &p.Limit }, object(
			opt("connections", "to each service (1024)", func(l *Limit) *Opt[int] { return &l.Connections }, number(1, most)),
			opt("in_flight", "requests (1024)", func(l *Limit) *Opt[int] { return &l.InFlight }, number(1, most)),
			opt("waiting", "requests that wait for a connection (1024)", func(l *Limit) *Opt[int] { return &l.Waiting }, number(0, most)),
			opt("priorities", "values of the header "+PriorityHeader+", most important first: who waits is admitted in this order, and in a full queue the last give way; * is all others", func(l *Limit) *Opt[[]string] { return &l.Priorities }, priorities()),
			opt("bulkhead", "share the bounds of this bulkhead with others instead of in_flight and waiting; own: do not", func(l *Limit) *Opt[string] { return &l.Bulkhead }, claimed(claimBulkhead, line())),
		)),
		opt("panic", "when no endpoint is usable: serve_all or fail_fast (serve_all)", func(p *Policy) *Opt[string] { return &p.Panic }, word("serve_all", "fail_fast")),
	)
}

func retryValue() value[Retry] {
	count := number(0, 100)
	whole := opt("", "", func(r *Retry) *Opt[int] { return &r.Count }, count)
	return either(value[Retry]{read: whole.read, schema: count.schema}, object(
		opt("count", "attempts after the first (0)", func(r *Retry) *Opt[int] { return &r.Count }, count),
		opt("when", "failures that are tried again: connect, refused, reset, timeout, a status, 5xx, grpc:STATUS", func(r *Retry) *Opt[[]string] { return &r.When }, list(retryReason())),
		in("backoff", "the wait from the second retry on", func(r *Retry) *Retry { return r }, object(
			opt("base", "the first wait (25ms)", func(r *Retry) *Opt[time.Duration] { return &r.BackoffBase }, duration(0, longest)),
			opt("max", "the longest wait (250ms)", func(r *Retry) *Opt[time.Duration] { return &r.BackoffMax }, duration(0, longest)),
		)),
		in("budget", "how many retries all calls together may have", func(r *Retry) *Retry { return r }, object(
			opt("ratio", "of the calls (20%)", func(r *Retry) *Opt[float64] { return &r.BudgetRatio }, ratio()),
			opt("min_per_second", "and always so many (3)", func(r *Retry) *Opt[int] { return &r.BudgetMinPerSecond }, number(0, most)),
		)),
	))
}

// grpcStatuses are the failures that gRPC has names for, as retries name them.
func grpcStatuses() []string {
	names := []string{
		"cancelled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists", "permission_denied",
		"resource_exhausted", "failed_precondition", "aborted", "out_of_range", "unimplemented", "internal", "unavailable",
		"data_loss", "unauthenticated",
	}
	for i := range names {
		names[i] = "grpc:" + names[i]
	}
	return names
}

// retryReason is a kind of failure or a status.
func retryReason() value[string] { return failureWord("connect", "refused", "reset", "timeout", "5xx") }

// failureWord is one of some kinds of failures, a status from 400 to 599, or a failure of gRPC.
func failureWord(kinds ...string) value[string] {
	known := append(slices.Clone(kinds), grpcStatuses()...)
	what := strings.Join(kinds, ", ") + ", a status from 400 to 599 or a gRPC status (like grpc:unavailable)"
	return value[string]{
		schema: schema{"anyOf": []any{
			schema{"enum": anys(known)},
			schema{"type": "integer", "minimum": 400, "maximum": 599},
			schema{"type": "string", "pattern": "^[45][0-9][0-9]$"},
			schema{"$ref": "#/$defs/variable"},
		}},
		read: func(d *decoder, n *yaml.Node, out *string) bool {
			s, n, ok := d.scalar(n, what)
			if !ok {
				return false
			}
			if slices.Contains(known, s.text) {
				*out = s.text
				return true
			}
			if code, err := strconv.Atoi(s.text); err == nil && code >= 400 && code <= 599 {
				*out = strconv.Itoa(code)
				return true
			}
			if near := nearest(s.text, known); near != "" {
				return d.fail(n, "%s is expected, got %q: did you mean %s?", what, s.text, near)
			}
			return d.fail(n, "%s is expected, got %s", what, quoted(s))
		},
	}
}

// lbValue is the name of a balancer, or a map with the name as its only key.
func lbValue() value[LB] {
	plain := []string{"random", "round_robin", "weighted_round_robin", "least_active", "peak_ewma"}
	name := then(convert(word(append(plain, "adaptive", "consistent_hash")...), func(kind string) (LB, string) { return LB{Kind: kind}, "" }),
		func(d *decoder, n *yaml.Node, out *LB) bool {
			switch out.Kind {
			case "adaptive":
				out.Adaptive = defaultAdaptive()
			case "consistent_hash":
				return d.fail(n, "consistent_hash needs what it hashes, like {consistent_hash: {header: x-user}}")
			}
			return true
		})
	name.schema = orVariable(schema{"enum": anys(append(plain, "adaptive"))})
	var fields []field[LB]
	for _, kind := range plain {
		empty := object[LB]()
		fields = append(fields, field[LB]{name: kind, schema: empty.schema, read: func(d *decoder, n *yaml.Node, out *LB) bool {
			out.Kind = kind
			return empty.read(d, n, out)
		}})
	}
	fields = append(fields, in("consistent_hash", "one endpoint for each value of what is hashed", func(l *LB) *LB { return l }, hashValue()),
		in("adaptive", "in turn, the slowest less often", func(l *LB) *LB { return l }, adaptiveValue()))
	return either(name, choice(fields...))
}

func adaptiveValue() value[LB] {
	v := object(
		in("slow_fraction", "share of the endpoints that counts as slow (20%)", func(l *LB) *float64 { return &l.Adaptive.SlowFraction }, checked(ratio(), func(r float64) string {
			if r == 0 {
				return "more than 0 is expected; round_robin treats all alike"
			}
			return ""
		})),
		in("slow_weight", "of a slow endpoint (3)", func(l *LB) *int { return &l.Adaptive.SlowWeight }, number(1, 100)),
		in("normal_weight", "of the others (5)", func(l *LB) *int { return &l.Adaptive.NormalWeight }, number(1, 100)),
		in("interval", "between two rankings (1m)", func(l *LB) *time.Duration { return &l.Adaptive.Interval }, duration(time.Second, longest)),
	)
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *LB) bool {
		out.Kind, out.Adaptive = "adaptive", defaultAdaptive()
		if !read(d, n, out) {
			return false
		}
		if a := &out.Adaptive; a.SlowWeight > a.NormalWeight {
			return d.fail(n, "slow_weight %d is more than normal_weight %d", a.SlowWeight, a.NormalWeight)
		}
		return true
	}
	return v
}

func hashValue() value[LB] {
	by := func(on string, v value[string]) field[LB] {
		return in(on, "hash this "+on, func(l *LB) *string { l.Kind, l.HashOn = "consistent_hash", on; return &l.HashName }, v)
	}
	source := convert(word("source_ip"), func(on string) (LB, string) { return LB{Kind: "consistent_hash", HashOn: on}, "" })
	empty := object[LB]()
	yes := checked(boolean(), func(b bool) string {
		if !b {
			return "true is expected"
		}
		return ""
	})
	sourceMap := field[LB]{name: "source_ip", doc: "hash the caller's address", schema: schema{"anyOf": []any{yes.schema, empty.schema}}, read: func(d *decoder, n *yaml.Node, out *LB) bool {
		out.Kind, out.HashOn = "consistent_hash", "source_ip"
		if n.Kind == yaml.MappingNode {
			return empty.read(d, n, out)
		}
		var b bool
		return yes.read(d, n, &b)
	}}
	return either(source, choice(by("header", fieldName()), by("cookie", filledText()), by("query", filledText()), sourceMap))
}

// orNone reads the word none, which turns a thing off, or its map, which turns it on.
func orNone[T any](off func(*T) *Opt[bool], v value[T]) value[T] {
	none := value[T]{schema: schema{"const": "none"}, read: func(d *decoder, n *yaml.Node, out *T) bool {
		s, n, ok := d.scalar(n, "none or a map")
		if ok && s.text != "none" {
			return d.fail(n, "none or a map is expected, got %s", quoted(s))
		}
		*off(out) = Opt[bool]{Value: true, Set: true, From: d.origin(n)}
		return ok
	}}
	return either(none, value[T]{schema: v.schema, read: func(d *decoder, n *yaml.Node, out *T) bool {
		*off(out) = Opt[bool]{Set: true, From: d.origin(n)}
		return v.read(d, n, out)
	}})
}

func breakerValue() value[Breaker] {
	return orNone(func(b *Breaker) *Opt[bool] { return &b.Off }, object(
		opt("per", "service: one for all routes whose policy says the same; route: one for each route; endpoint: as service, and one for each endpoint (service)", func(b *Breaker) *Opt[string] { return &b.Per }, word("service", "route", "endpoint")),
		opt("error_threshold", "share of failed calls that opens it (50%)", func(b *Breaker) *Opt[float64] { return &b.ErrorThreshold }, ratio()),
		opt("request_volume", "calls in the window before it may open (20)", func(b *Breaker) *Opt[int] { return &b.RequestVolume }, number(1, most)),
		opt("window", "how far back it looks (10s)", func(b *Breaker) *Opt[time.Duration] { return &b.Window }, duration(100*time.Millisecond, longest)),
		opt("buckets", "parts of the window (10)", func(b *Breaker) *Opt[int] { return &b.Buckets }, number(1, 1000)),
		opt("sleep_window", "open for so long before it probes (5s)", func(b *Breaker) *Opt[time.Duration] { return &b.SleepWindow }, duration(time.Millisecond, longest)),
		opt("half_open_probes", "calls let through to find out (1)", func(b *Breaker) *Opt[int] { return &b.HalfOpenProbes }, number(1, 1000)),
		in("slow", "slow calls open it too", func(b *Breaker) *Breaker { return b }, object(
			opt("over", "a call that takes longer is slow, even if it succeeds", func(b *Breaker) *Opt[time.Duration] { return &b.SlowOver }, duration(time.Millisecond, longest)),
			opt("ratio", "share of slow calls that opens it (80%)", func(b *Breaker) *Opt[float64] { return &b.SlowRatio }, ratio()),
		)),
	))
}

func outlierValue() value[Outlier] {
	return orNone(func(o *Outlier) *Opt[bool] { return &o.Off }, object(
		opt("consecutive_failures", "failures in a row that eject; 0: not counted (5)", func(o *Outlier) *Opt[int] { return &o.ConsecutiveFailures }, number(0, most)),
		opt("error_ratio", "share of failures in the window that ejects (50%)", func(o *Outlier) *Opt[float64] { return &o.ErrorRatio }, ratio()),
		opt("timeout_ratio", "share of time-outs in the window that ejects (50%)", func(o *Outlier) *Opt[float64] { return &o.TimeoutRatio }, ratio()),
		opt("request_volume", "attempts in the window before a ratio counts (20)", func(o *Outlier) *Opt[int] { return &o.RequestVolume }, number(1, most)),
		opt("window", "how far back it looks (10s)", func(o *Outlier) *Opt[time.Duration] { return &o.Window }, duration(100*time.Millisecond, longest)),
		opt("eject_for", "out for so long, times the number of ejections (10s)", func(o *Outlier) *Opt[time.Duration] { return &o.EjectFor }, duration(time.Millisecond, longest)),
		opt("eject_max", "out for at most so long (5m)", func(o *Outlier) *Opt[time.Duration] { return &o.EjectMax }, duration(time.Millisecond, longest)),
		opt("max_ejected", "share of the endpoints that may be out at one time (20%)", func(o *Outlier) *Opt[float64] { return &o.MaxEjected }, ratio()),
		opt("probe", "how an ejected endpoint is tried before it is used again", func(o *Outlier) *Opt[Probe] { return &o.Probe }, probeValue()),
		opt("slow_node", "eject an endpoint that is slow for long", func(o *Outlier) *Opt[SlowNode] { return &o.SlowNode }, slowNodeValue()),
	))
}

func slowNodeValue() value[SlowNode] {
	v := object(
		must(in("average_over", "a sample is bad when its attempts took longer on average", func(s *SlowNode) *time.Duration { return &s.AverageOver }, duration(time.Millisecond, longest))),
		in("every", "a sample is taken so often (10s)", func(s *SlowNode) *time.Duration { return &s.Every }, duration(100*time.Millisecond, longest)),
		in("points", "so many samples are looked at (5)", func(s *SlowNode) *int { return &s.Points }, number(1, 64)),
		in("exceed", "so many bad ones of them eject (4)", func(s *SlowNode) *int { return &s.Exceed }, number(1, 64)),
	)
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *SlowNode) bool {
		*out = defaultSlowNode()
		if !read(d, n, out) {
			return false
		}
		if out.Exceed > out.Points {
			return d.fail(n, "exceed %d is more than points %d: it would never happen", out.Exceed, out.Points)
		}
		return true
	}
	return v
}

func probeValue() value[Probe] {
	v := object(append(probeWays(),
		in("interval", "between two tries (10s)", func(p *Probe) *time.Duration { return &p.Interval }, duration(10*time.Millisecond, longest)),
		in("timeout", "of one try (1s)", func(p *Probe) *time.Duration { return &p.Timeout }, duration(time.Millisecond, longest)),
	)...)
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *Probe) bool {
		*out = defaultProbe()
		return read(d, n, out) && oneWay(d, n)
	}
	return v
}

// probeWays are the ways to ask somebody whether he is well; oneWay sees to it that one is given at most.
func probeWays() []field[Probe] {
	tcp := object[Probe]()
	return []field[Probe]{
		{name: "tcp", doc: "open a connection", schema: tcp.schema, read: tcp.read},
		in("http", "GET this path, expect 2xx or 3xx", func(p *Probe) *string { return &p.HTTP }, requestPath()),
		{name: "grpc", doc: "ask the health service of gRPC; the name of a service of it, or {} for all", schema: schema{"type": []any{"string", "object"}}, read: readGRPCProbe},
	}
}

func oneWay(d *decoder, n *yaml.Node) bool {
	given := 0
	for _, way := range []string{"tcp", "http", "grpc"} {
		if has(n, way) {
			given++
		}
	}
	if given > 1 {
		return d.fail(n, "only one of tcp, http, grpc is expected")
	}
	return true
}

// readGRPCProbe reads the name of a service, or {}.
func readGRPCProbe(d *decoder, n *yaml.Node, p *Probe) bool {
	p.GRPC = true
	if n.Kind == yaml.MappingNode {
		nothing := object[Probe]()
		return nothing.read(d, n, p)
	}
	return checked(line(), func(s string) string {
		if len(s) > 127 {
			return "a service name of at most 127 bytes is expected"
		}
		return ""
	}).read(d, n, &p.Service)
}
