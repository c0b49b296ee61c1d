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
