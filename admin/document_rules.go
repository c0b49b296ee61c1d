package admin

import "github.com/sidecar-mesh/sidecar/config"

// putRules writes what stands beside the services: rules of their own, group switches and grey releases.
func putRules(o object, c *config.Config) {
	rules, grey := object{}, object{}
	for name, r := range c.Rules {
		if s := c.Services[name]; s == nil || s.Rules != r {
			rules[name] = rulesDocument(r)
		}
	}
	putPart(o, "rules", rules)
	var groups []object
	for i := range c.Groups {
		g := &c.Groups[i]
		groups = append(groups, object{"service": g.Service, "from": g.Group, "to": g.To, "enabled": g.Enabled})
	}
	putList(o, "groups", groups)
	for name, g := range c.Grey {
		grey[name] = object{"match": matchDocument(&g.Match), "labels": g.Labels, "else": g.Else, "enabled": g.Enabled}
	}
	putPart(o, "grey", grey)
}

func rulesDocument(r *config.Rules) []object {
	list := []object{}
	for _, rule := range r.List {
		v := object{}
		put(v, "name", rule.Name)
		put(v, "rule", rule.Text)
		put(v, "script", rule.Script)
		putOpt(v, "priority", rule.Priority, same[int])
		putOpt(v, "enabled", rule.Enabled, same[bool])
		putOpt(v, "force", rule.Force, same[bool])
		putOpt(v, "runtime", rule.Runtime, same[bool])
		putOpt(v, "until", rule.Until, config.Instant.String)
		list = append(list, v)
	}
	return list
}
