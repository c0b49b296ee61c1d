package admin

import "github.com/sidecar-mesh/sidecar/config"

func bulkheadDocuments(all map[string]*config.Bulkhead) object {
	o := object{}
	for name, b := range all {
		v := object{"in_flight": b.InFlight, "waiting": b.Waiting}
		if b.Wait > 0 {
			v["wait"] = config.Span(b.Wait)
		}
		putList(v, "priorities", b.Priorities)
		o[name] = v
	}
	return o
}

func linkDocuments(list []*config.Link) []object {
	var all []object
	for _, l := range list {
		match := object{}
		if l.SizeOver > 0 {
			match["size_over"] = bytesText(l.SizeOver)
		}
		putList(match, "route", l.Routes)
		putList(match, "service", l.Services)
		putList(match, "priority", l.Priorities)
		v := object{"name": l.Name, "match": match}
		putOpt(v, "connections", l.Connections, same[int])
		all = append(all, v)
	}
	return all
}
