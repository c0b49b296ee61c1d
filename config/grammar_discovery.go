package config

import "time"

func discoveryValue() value[Discovery] {
	return object(
		in("ready_wait", "ready at the latest so long after start, whatever the registries do (5s)", func(v *Discovery) *time.Duration { return &v.ReadyWait }, duration(0, longest)),
		in("snapshot_dir", "where endpoints are kept for the next start; none: nowhere (/var/lib/sidecar)", func(v *Discovery) *string { return &v.SnapshotDir }, folderOrNone()),
		in("removal_protection", "bounds how many endpoints may go for failed health; none: off",
			func(v *Discovery) *RemovalProtection { return &v.RemovalProtection }, removalProtectionValue()),
		in("half_dead", "when a list is too short to be true; none: off", func(v *Discovery) *HalfDead { return &v.HalfDead }, halfDeadValue()),
		in("update_gate", "lets only a part of all sidecars follow their registries, in an emergency", func(v *Discovery) *UpdateGate { return &v.UpdateGate }, object(
			opt("enabled", "whether it is closed; the admin API may say otherwise later (false)", func(g *UpdateGate) *Opt[bool] { return &g.Enabled }, boolean()),
			opt("percent", "the part that follows at one time (10%)", func(g *UpdateGate) *Opt[float64] { return &g.Percent }, positive(ratio())),
			opt("epoch", "how long a turn is (30s)", func(g *UpdateGate) *Opt[time.Duration] { return &g.Epoch }, duration(time.Second, time.Hour)),
		)),
	)
}

func removalProtectionValue() value[RemovalProtection] {
	return orNone(func(p *RemovalProtection) *Opt[bool] { return &p.Off }, object(
		opt("max_ratio", "of the endpoints known; at least one may always go (20%)", func(p *RemovalProtection) *Opt[float64] { return &p.MaxRatio }, ratio()),
	))
}

func halfDeadValue() value[HalfDead] {
	return orNone(func(h *HalfDead) *Opt[bool] { return &h.Off }, object(
		opt("below", "share of the endpoints known below which a list is not believed (50%)", func(h *HalfDead) *Opt[float64] { return &h.Below }, positive(ratio())),
		opt("min_known", "so many must be known (3)", func(h *HalfDead) *Opt[int] { return &h.MinKnown }, number(1, most)),
		opt("hold", "a list is believed again when it is back for so long (30s)", func(h *HalfDead) *Opt[time.Duration] { return &h.Hold }, duration(0, longest)),
		opt("memory", "how long endpoints are remembered that are not listed any more (10m)", func(h *HalfDead) *Opt[time.Duration] { return &h.Memory }, duration(time.Second, longest)),
	))
}

// positive is a ratio above 0.
func positive(v value[float64]) value[float64] {
	return checked(v, func(r float64) string {
		if r == 0 {
			return "must be more than 0"
		}
		return ""
	})
}

// folderOrNone is the path of a folder, or none.
func folderOrNone() value[string] {
	return convert(line(), func(s string) (string, string) {
		if s == "none" {
			s = ""
		}
		return s, ""
	})
}
