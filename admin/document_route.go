package admin

import "github.com/sidecar-mesh/sidecar/config"

func routeDocuments(routes []*config.Route) []object {
	var list []object
	for _, r := range routes {
		list = append(list, routeDocument(r))
	}
	return list
}

func routeDocument(r *config.Route) object {
	o := object{"name": r.Name}
	putPart(o, "match", matchDocument(&r.Match))
	putPart(o, "policy", policyDocument(&r.Policy))
	if rw := r.Rewrite; rw != nil {
		v, headers := object{}, object{}
		if rw.HasPrefix {
			v["prefix"] = object{"from": rw.PrefixFrom, "to": rw.PrefixTo}
		}
		put(v, "path", rw.Path)
		put(v, "host", rw.Host)
		if len(rw.SetHeaders) > 0 {
			headers["set"] = headersDocument(rw.SetHeaders)
		}
		putList(headers, "remove", rw.RemoveHeaders)
		putPart(v, "headers", headers)
		o["rewrite"] = v
	}
	if r.To != nil {
		o["to"] = toDocument(r.To)
	}
	if rs := r.Respond; rs != nil {
		v := object{"status": rs.Status}
		if len(rs.Headers) > 0 {
			v["headers"] = headersDocument(rs.Headers)
		}
		put(v, "body", rs.Body)
		o["respond"] = v
	}
	if rd := r.Redirect; rd != nil {
		o["redirect"] = object{"to": rd.To, "status": rd.Status}
	}
	return o
}

func headersDocument(list []config.Header) object {
	o := object{}
	for _, h := range list {
		o[h.Name] = h.Value
	}
	return o
}

func toDocument(to *config.To) object {
	o := object{}
	put(o, "service", to.Service)
	put(o, "else", to.Else)
	if len(to.Labels) > 0 {
		o["labels"] = to.Labels
	}
	var split []object
	for _, b := range to.Split {
		v := object{"weight": b.Weight}
		put(v, "service", b.Service)
		if len(b.Labels) > 0 {
			v["labels"] = b.Labels
		}
		split = append(split, v)
	}
	putList(o, "split", split)
	return o
}

func matchDocument(m *config.Match) object {
	o := object{}
	putList(o, "method", m.Methods)
	switch m.Path.Kind {
	case config.PathAny:
	case config.PathExact:
		o["path"] = object{"exact": m.Path.Value}
	case config.PathPrefix:
		o["path"] = object{"prefix": m.Path.Value}
	case config.PathBelow:
		o["path"] = m.Path.Value + "*"
	case config.PathRegex:
		o["path"] = object{"regex": m.Path.Value}
	}
	put(o, "grpc", m.GRPC)
	putPart(o, "header", valuesDocument(m.Headers))
	putPart(o, "query", valuesDocument(m.Query))
	putPart(o, "cookie", valuesDocument(m.Cookies))
	putPart(o, "segment", valuesDocument(m.Segments))
	putList(o, "host", m.Hosts)
	putList(o, "caller", m.Callers)
	if m.HasPercent {
		o["percent"] = m.Percent
	}
	return o
}

func valuesDocument(list []config.ValueMatch) object {
	o := object{}
	for _, v := range list {
		switch v.Kind {
		case config.ValueExact:
			o[v.Name] = v.Text
		case config.ValuePresent:
			o[v.Name] = object{"present": true}
		case config.ValueAbsent:
			o[v.Name] = object{"present": false}
		case config.ValuePrefix:
			o[v.Name] = object{"prefix": v.Text}
		case config.ValueRegex:
			o[v.Name] = object{"regex": v.Text}
		case config.ValueIn:
			o[v.Name] = object{"in": v.In}
		case config.ValueMod:
			o[v.Name] = object{"mod": v.Mod, "in": v.Residues}
		}
	}
	return o
}
