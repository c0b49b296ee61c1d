package config

import "strconv"

// inboundDoubts tells of knobs that choose among endpoints where there is one, our own app. Those that are published are for
// callers.
func (c *Config) inboundDoubts() Errors {
	var all Errors
	for i, in := range c.Inbound {
		if in.Register.Publishes() {
			continue
		}
		path := "inbound[" + strconv.Itoa(i) + "]"
		all = append(all, choosing(path+".policy", &in.Policy)...)
		for j, r := range in.Routes {
			all = append(all, choosing(path+".routes["+strconv.Itoa(j)+"].policy", &r.Policy)...)
		}
	}
	return all
}

// choosing finds what a policy itself says about the choice of endpoints.
func choosing(path string, p *Policy) Errors {
	var all Errors
	for _, k := range []struct {
		name string
		set  bool
		from Origin
	}{
		{"lb", p.LB.Set, p.LB.From},
		{"locality", p.Locality.Prefer.Set, p.Locality.Prefer.From},
		{"warmup", p.Warmup.Set, p.Warmup.From},
		{"backup", p.Backup.After.Set, p.Backup.After.From},
		{"dual_send", p.DualSend.Set && p.DualSend.Value, p.DualSend.From},
		{"mirror", p.Mirror.Set && p.Mirror.Value.Service != "", p.Mirror.From},
	} {
		if k.set {
			all = append(all, k.from.errorAt(path+"."+k.name, "has no effect here, where our own app is the one endpoint: it is for callers, who take it from a policy that is published (register.publish_policy)"))
		}
	}
	return all
}
