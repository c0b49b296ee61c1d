package admin

import "github.com/sidecar-mesh/sidecar/config"

func discoveryDocument(v *config.Discovery) object {
	o := object{"ready_wait": config.Span(v.ReadyWait), "snapshot_dir": v.SnapshotDir}
	o["update_gate"] = object{
		"enabled": v.UpdateGate.Enabled.Value, "percent": v.UpdateGate.Percent.Value, "epoch": config.Span(v.UpdateGate.Epoch.Value),
	}
	if v.SnapshotDir == "" {
		o["snapshot_dir"] = "none"
	}
	protectionDocument(o, &v.Protection)
	return o
}

// protectionDocument writes what bounds the answers of registries.
func protectionDocument(o object, p *config.Protection) {
	removal, half := object{}, object{}
	putOpt(removal, "max_ratio", p.RemovalProtection.MaxRatio, same[float64])
	putOpt(half, "below", p.HalfDead.Below, same[float64])
	putOpt(half, "min_known", p.HalfDead.MinKnown, same[int])
	putOpt(half, "hold", p.HalfDead.Hold, config.Span)
	putOpt(half, "memory", p.HalfDead.Memory, config.Span)
	offOr(o, "removal_protection", p.RemovalProtection.Off, removal)
	offOr(o, "half_dead", p.HalfDead.Off, half)
}
