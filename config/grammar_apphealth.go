package config

import (
	"time"

	"go.yaml.in/yaml/v3"
)

func appHealthValue() value[AppHealth] {
	v := object(append(within(func(h *AppHealth) *Probe { return &h.Probe }, probeWays()),
		in("interval", "between two questions (2s)", func(h *AppHealth) *time.Duration { return &h.Interval }, duration(10*time.Millisecond, longest)),
		in("timeout", "of one question (1s)", func(h *AppHealth) *time.Duration { return &h.Timeout }, duration(time.Millisecond, longest)),
		in("unhealthy_after", "bad answers in a row until it is not well; a refused connection counts at once (2)", func(h *AppHealth) *int { return &h.UnhealthyAfter }, number(1, 1000)),
		in("healthy_after", "good answers in a row until it is well again (1)", func(h *AppHealth) *int { return &h.HealthyAfter }, number(1, 1000)),
	)...)
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *AppHealth) bool {
		*out = defaultAppHealth()
		return read(d, n, out) && oneWay(d, n)
	}
	return v
}
