package config

import "time"

// Backup says when a second attempt begins beside one that takes long (S-145 … S-148). It is on where After is set and Off
// is not true.
type Backup struct {
	Off      Opt[bool]
	After    Opt[BackupAfter]
	MaxRatio Opt[float64] // of the calls of the last 10 s
}

// On reports whether there are backups at all.
func (b *Backup) On() bool { return b.After.Set && !b.Off.Value }

// BackupAfter is a quantile of what was observed (p90, p95, p99), or a fixed time.
type BackupAfter struct {
	Quantile string
	Fixed    time.Duration
}

// String writes a as it is read.
func (a BackupAfter) String() string {
	if a.Quantile != "" {
		return a.Quantile
	}
	return Span(a.Fixed)
}

// PerTryAuto derives the time limit of one attempt from what was observed (S-141). The zero value is none.
type PerTryAuto struct {
	Quantile       string // p999 or p9999
	Floor, Ceiling time.Duration
}

// String writes a for people.
func (a PerTryAuto) String() string {
	if a.Ceiling == 0 {
		return "auto: " + a.Quantile + ", from " + Span(a.Floor)
	}
	return "auto: " + a.Quantile + ", from " + Span(a.Floor) + " to " + Span(a.Ceiling)
}

// perTryOver takes the limit of one attempt from a weaker layer as a whole.
func (p *Policy) perTryOver(l *Policy) {
	if !p.PerTryTimeout.Set {
		p.PerTryTimeout, p.PerTryAuto = l.PerTryTimeout, l.PerTryAuto
	}
}

func (b *Backup) over(l *Backup) {
	if b.After.Set || b.MaxRatio.Set {
		inherit(&b.Off, &Opt[bool]{Set: true})
	}
	inherit(&b.After, &l.After)
	inherit(&b.MaxRatio, &l.MaxRatio)
	inherit(&b.Off, &l.Off)
}

// Mirror copies a share of the requests to another service. The zero value is none.
type Mirror struct {
	Service  string
	Ratio    float64
	InFlight int // copies under way at one time
}
