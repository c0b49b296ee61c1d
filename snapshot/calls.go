package snapshot

import (
	"cmp"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/resilience"
)

// Backups says when a second attempt begins beside the first, and how many there may be (S-145, S-147). Its digest is that
// of the route.
type Backups struct {
	When   resilience.BackupConfig
	Budget *resilience.Budget
}

// overlap compiles what a route says about attempts beside others. was is its namesake before.
func (c *compiler) overlap(r, was *Route, p *config.Policy) {
	r.Plan.DualSend, r.TellDeadline = p.DualSend.Value, p.TellDeadline.Value
	if b := &p.Backup; b.On() && !r.Plan.DualSend {
		q, _ := resilience.ParseQuantile(b.After.Value.Quantile) // the loader knows the same names
		r.Backups = &Backups{
			When:   resilience.BackupConfig{After: b.After.Value.Fixed, Quantile: q},
			Budget: resilience.NewBudget(resilience.BudgetConfig{Ratio: b.MaxRatio.Value}),
		}
		if was != nil && was.Backups != nil {
			r.Backups.Budget = r.Backups.Budget.Adopt(was.Backups.Budget)
		}
	}
	if a := &p.PerTryAuto.Value; a.Quantile != "" {
		q, _ := resilience.ParseQuantile(a.Quantile)
		r.PerTry = &resilience.PerTryConfig{Quantile: q, Floor: a.Floor, Ceiling: cmp.Or(a.Ceiling, r.Plan.Timeout)}
	}
	if r.PerTry == nil && (r.Backups == nil || r.Backups.When.After > 0) {
		return
	}
	r.Latency = resilience.NewLatency()
	if was != nil {
		r.Latency = r.Latency.Adopt(was.Latency)
	}
}
