package config

import (
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// backupValue reads none, a time alone, or a map.
func backupValue() value[Backup] {
	after := backupAfter()
	atOnce := opt("", "", func(b *Backup) *Opt[BackupAfter] { return &b.After }, after)
	whole := object(
		opt("after", "how long an attempt may take before a second one begins beside it: p90, p95, p99, or a duration", func(b *Backup) *Opt[BackupAfter] { return &b.After }, after),
		opt("max_ratio", "share of the calls that may have one (15%)", func(b *Backup) *Opt[float64] { return &b.MaxRatio }, ratio()),
	)
	short := value[Backup]{schema: schema{"anyOf": []any{schema{"const": "none"}, after.schema}}, read: func(d *decoder, n *yaml.Node, out *Backup) bool {
		if s, n, ok := d.scalar(n, "none, p90, p95, p99 or a duration"); ok && s.text == "none" {
			out.Off = Opt[bool]{Value: true, Set: true, From: d.origin(n)}
			return true
		}
		return atOnce.read(d, n, out)
	}}
	return either(short, whole)
}

// backupAfter is a quantile or a duration.
func backupAfter() value[BackupAfter] {
	words := []string{"p90", "p95", "p99"}
	fixed := duration(time.Millisecond, longest)
	return value[BackupAfter]{
		schema: schema{"anyOf": []any{schema{"enum": anys(words)}, fixed.schema}},
		read: func(d *decoder, n *yaml.Node, out *BackupAfter) bool {
			s, at, ok := d.scalar(n, "p90, p95, p99 or a duration")
			switch {
			case !ok:
				return false
			case slices.Contains(words, s.text):
				out.Quantile = s.text
				return true
			case len(s.text) > 1 && s.text[0] == 'p':
				return d.fail(at, "p90, p95, p99 or a duration is expected, got %q", s.text)
			}
			return fixed.read(d, n, &out.Fixed)
		},
	}
}

// perTry is the key for the time limit of one attempt: a duration, auto, or a map that says more about auto.
func perTry() field[Policy] {
	fixed := opt("", "", func(p *Policy) *Opt[time.Duration] { return &p.PerTryTimeout }, duration(0, longest))
	start := PerTryAuto{Quantile: "p999", Floor: 50 * time.Millisecond}
	more := then(preset(object(
		must(in("auto", "p999 or p9999", func(a *PerTryAuto) *string { return &a.Quantile }, word("p999", "p9999"))),
		in("floor", "never less (50ms)", func(a *PerTryAuto) *time.Duration { return &a.Floor }, duration(time.Millisecond, longest)),
		in("ceiling", "never more; left out: timeout", func(a *PerTryAuto) *time.Duration { return &a.Ceiling }, duration(time.Millisecond, longest)),
	), start), func(d *decoder, n *yaml.Node, a *PerTryAuto) bool {
		if a.Ceiling > 0 && a.Floor > a.Ceiling {
			return d.fail(n, "floor %s is more than ceiling %s", Span(a.Floor), Span(a.Ceiling))
		}
		return true
	})
	set := func(d *decoder, n *yaml.Node, p *Policy, a PerTryAuto) {
		p.PerTryTimeout = Opt[time.Duration]{Set: true, From: d.origin(n)}
		p.PerTryAuto = Opt[PerTryAuto]{Value: a, Set: true, From: d.origin(n)}
	}
	v := either(value[Policy]{
		schema: schema{"anyOf": []any{schema{"const": "auto"}, fixed.schema}},
		read: func(d *decoder, n *yaml.Node, p *Policy) bool {
			if s, at, ok := d.scalar(n, "a duration or auto"); ok && s.text == "auto" {
				set(d, at, p, start)
				return true
			}
			return fixed.read(d, n, p)
		},
	}, value[Policy]{schema: more.schema, read: func(d *decoder, n *yaml.Node, p *Policy) bool {
		var a PerTryAuto
		if !more.read(d, n, &a) {
			return false
		}
		set(d, n, p, a)
		return true
	}})
	return field[Policy]{name: "per_try_timeout", doc: "one attempt; 0: only the whole call is bounded; auto: from what was observed", schema: v.schema, read: v.read}
}

// mirrorValue reads none, or a map.
func mirrorValue() value[Mirror] {
	v := preset(object(
		must(in("service", "that gets the copies", func(m *Mirror) *string { return &m.Service }, claimed(claimService, line()))),
		must(in("ratio", "share of the requests", func(m *Mirror) *float64 { return &m.Ratio }, ratio())),
		in("in_flight", "copies under way at one time (64)", func(m *Mirror) *int { return &m.InFlight }, number(1, most)),
	), Mirror{InFlight: 64})
	none := convert(word("none"), func(string) (Mirror, string) { return Mirror{}, "" })
	return either(none, v)
}
