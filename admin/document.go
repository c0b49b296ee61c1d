package admin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strconv"

	"github.com/sidecar-mesh/sidecar/config"
)

// object is a part of a document; encoding/json sorts its keys.
type object map[string]any

// put adds what is not empty.
func put[T comparable](o object, key string, v T) {
	var zero T
	if v != zero {
		o[key] = v
	}
}

// putList adds a list that is not empty.
func putList[T any](o object, key string, list []T) {
	if len(list) > 0 {
		o[key] = list
	}
}

// putPart adds a part that is not empty.
func putPart(o object, key string, part object) {
	if len(part) > 0 {
		o[key] = part
	}
}

// putOpt adds a field that is set.
func putOpt[T, J any](o object, key string, v config.Opt[T], spell func(T) J) {
	if v.Set {
		o[key] = spell(v.Value)
	}
}

func same[T any](v T) T { return v }

// loadable is the document of a configuration as text. Variables have their values already: what looks like one is escaped.
func loadable(c *config.Config) (json.RawMessage, error) {
	text, err := json.Marshal(document(c))
	return bytes.ReplaceAll(text, []byte("${"), []byte("$${")), err
}

// document writes a configuration in its own language, so that what is shown can be loaded again. Defaults of the process
// are written out; of policies stands what was written.
func document(c *config.Config) object {
	o := object{
		"listen": listenDocument(&c.Listen), "limits": limitsDocument(&c.Limits),
		"discovery": discoveryDocument(&c.Discovery),
		"telemetry": object{"access_log": object{"to": c.Telemetry.AccessLog.To, "format": c.Telemetry.AccessLog.Format}},
	}
	n := &c.Node
	node := object{}
	for _, f := range [][2]string{
		{"service", n.Service},
		{"id", n.ID},
		{"group", n.Group},
		{"version", n.Version},
		{"zone", n.Zone},
		{"region", n.Region},
		{"tenant", n.Tenant},
		{"environment", n.Environment},
	} {
		put(node, f[0], f[1])
	}
	if len(n.Labels) > 0 {
		node["labels"] = n.Labels
	}
	putList(node, "address", n.Addresses)
	putPart(o, "node", node)
	registries, policies, services := object{}, object{}, object{}
	for name, r := range c.Registries {
		registries[name] = registryDocument(r)
	}
	for name, p := range c.Policies {
		policies[name] = policyDocument(p)
	}
	for name, s := range c.Services {
		services[name] = serviceDocument(s)
	}
	putPart(o, "registries", registries)
	if c.Center != nil && c.Center.Consul != nil {
		o["config_center"] = object{"consul": object{"registry": c.Center.Consul.Registry, "prefix": c.Center.Consul.Prefix}}
	}
	putPart(o, "policies", policies)
	putPart(o, "bulkheads", bulkheadDocuments(c.Bulkheads))
	putPart(o, "services", services)
	switches := object{}
	for name, w := range c.Switches {
		switches[name] = switchDocument(w)
	}
	putPart(o, "switches", switches)
	putPart(o, "defaults", policyDocument(&c.Defaults))
	var inbound []object
	for _, in := range c.Inbound {
		inbound = append(inbound, inboundDocument(in))
	}
	putList(o, "inbound", inbound)
	putRules(o, c)
	return o
}

func listenDocument(l *config.Listen) object {
	o := object{}
	for _, f := range [][2]string{
		{"outbound", l.Outbound}, {"inbound", l.Inbound}, {"admin", l.Admin}, {"health", l.Health}, {"metrics", l.Metrics},
	} {
		if o[f[0]] = f[1]; f[1] == "" {
			o[f[0]] = "none"
		}
	}
	var trusted []string
	for _, p := range l.TrustForwarded {
		trusted = append(trusted, p.String())
	}
	putList(o, "trust_forwarded", trusted)
	return o
}

func limitsDocument(l *config.Limits) object {
	o := object{
		"header_bytes": bytesText(l.HeaderBytes), "header_count": l.HeaderCount,
		"header_timeout": config.Span(l.HeaderTimeout), "idle_timeout": config.Span(l.IdleTimeout),
		"drain_grace": config.Span(l.DrainGrace), "drain_timeout": config.Span(l.DrainTimeout),
		"replay_bytes": bytesText(l.ReplayBytes), "half_close": l.HalfClose,
		"window_memory": bytesText(l.WindowMemory), "max_age": config.Span(l.MaxAge), "max_requests": l.MaxRequests, "moderate_reads": l.ModerateReads,
	}
	put(o, "connections", l.Connections)
	return o
}

func bytesText(n int64) string {
	if n > 0 && n%1024 == 0 {
		return strconv.FormatInt(n/1024, 10) + "KiB"
	}
	return strconv.FormatInt(n, 10) + "B"
}

func registryDocument(r *config.Registry) object {
	switch {
	case r.File != nil:
		return object{"file": object{"path": r.File.Path}}
	case r.DNS != nil:
		d := object{"min_ttl": config.Span(r.DNS.MinTTL), "max_ttl": config.Span(r.DNS.MaxTTL), "timeout": config.Span(r.DNS.Timeout)}
		putList(d, "servers", r.DNS.Servers)
		return object{"dns": d}
	case r.Consul != nil:
		return object{"consul": consulDocument(r.Consul)}
	}
	return object{}
}

func consulDocument(c *config.ConsulRegistry) object {
	o := object{
		"address": c.Addresses, "stale": c.Stale, "wait": config.Span(c.Wait), "timeout": config.Span(c.Timeout),
		"max_connections": c.MaxConnections, "max_answer": bytesText(c.MaxAnswer),
	}
	put(o, "token_file", c.TokenFile)
	put(o, "datacenter", c.Datacenter)
	put(o, "namespace", c.Namespace)
	put(o, "near", c.Near)
	put(o, "filter", c.Filter)
	putList(o, "tags", c.Tags)
	if len(c.Meta) > 0 {
		o["meta"] = c.Meta
	}
	if c.Poll > 0 {
		o["poll"] = config.Span(c.Poll)
	}
	if t := c.TLS; t != nil {
		v := object{"skip_verify": t.SkipVerify}
		put(v, "ca_file", t.CAFile)
		put(v, "cert_file", t.CertFile)
		put(v, "key_file", t.KeyFile)
		put(v, "server_name", t.ServerName)
		o["tls"] = v
	}
	return o
}

func serviceDocument(s *config.Service) object {
	o := object{"protocol": s.Protocol, "hosts": s.Hosts}
	put(o, "listen", s.Listen)
	put(o, "group", s.Group)
	put(o, "critical", s.Critical)
	put(o, "subset", s.Subset)
	put(o, "preconnect", s.Preconnect)
	putGRPCWeb(o, &s.GRPCWeb)
	o["liveness"] = s.Liveness
	protectionDocument(o, &s.Protection)
	putList(o, "from", s.Registry)
	var endpoints []object
	for _, e := range s.Endpoints {
		v := object{"address": e.Address, "weight": e.Weight}
		put(v, "group", e.Group)
		put(v, "zone", e.Zone)
		put(v, "region", e.Region)
		put(v, "version", e.Version)
		if len(e.Labels) > 0 {
			v["labels"] = e.Labels
		}
		endpoints = append(endpoints, v)
	}
	putList(o, "endpoints", endpoints)
	putPart(o, "policy", policyDocument(&s.Policy))
	putList(o, "routes", routeDocuments(s.Routes))
	putList(o, "links", linkDocuments(s.Links))
	if s.Rules != nil {
		o["rules"] = rulesDocument(s.Rules)
	}
	return o
}

func inboundDocument(in *config.Inbound) object {
	o := object{"service": in.Service, "app": in.App, "protocol": in.Protocol}
	putGRPCWeb(o, &in.GRPCWeb)
	putPart(o, "policy", policyDocument(&in.Policy))
	putList(o, "routes", routeDocuments(in.Routes))
	admit, queue := object{}, object{}
	putOpt(admit, "concurrency", in.Admit.Concurrency, same[int])
	putOpt(queue, "size", in.Admit.QueueSize, same[int])
	putOpt(queue, "wait", in.Admit.QueueWait, config.Span)
	putPart(admit, "queue", queue)
	putPart(o, "admit", admit)
	if h := in.Health; h != nil {
		health := probeDocument(h.Probe)
		health["unhealthy_after"], health["healthy_after"] = h.UnhealthyAfter, h.HealthyAfter
		o["health"] = health
	}
	if in.Register != nil {
		o["register"] = registerDocument(in.Register)
	}
	return o
}

func policyDocument(p *config.Policy) object {
	o, retry, backoff, budget, locality, limit := object{}, object{}, object{}, object{}, object{}, object{}
	putOpt(o, "use", p.Use, same[string])
	putOpt(o, "timeout", p.Timeout, config.Span)
	if a := p.PerTryAuto; a.Value.Quantile != "" {
		v := object{"auto": a.Value.Quantile, "floor": config.Span(a.Value.Floor)}
		if a.Value.Ceiling > 0 {
			v["ceiling"] = config.Span(a.Value.Ceiling)
		}
		o["per_try_timeout"] = v
	} else {
		putOpt(o, "per_try_timeout", p.PerTryTimeout, config.Span)
	}
	putOpt(o, "tell_deadline", p.TellDeadline, same[bool])
	putOpt(o, "connect_timeout", p.ConnectTimeout, config.Span)
	putOpt(o, "idle_timeout", p.IdleTimeout, config.Span)
	putOpt(o, "idempotent", p.Idempotent, same[bool])
	putOpt(retry, "count", p.Retry.Count, same[int])
	putOpt(retry, "when", p.Retry.When, same[[]string])
	putOpt(backoff, "base", p.Retry.BackoffBase, config.Span)
	putOpt(backoff, "max", p.Retry.BackoffMax, config.Span)
	putOpt(budget, "ratio", p.Retry.BudgetRatio, same[float64])
	putOpt(budget, "min_per_second", p.Retry.BudgetMinPerSecond, same[int])
	putPart(retry, "backoff", backoff)
	putPart(retry, "budget", budget)
	putPart(o, "retry", retry)
	offOr(o, "backup", p.Backup.Off, backupDocument(&p.Backup))
	putOpt(o, "dual_send", p.DualSend, same[bool])
	putOpt(o, "fallback", p.Fallback, fallbackDocument)
	putOpt(o, "mirror", p.Mirror, func(m config.Mirror) any {
		if m.Service == "" {
			return "none"
		}
		return object{"service": m.Service, "ratio": m.Ratio, "in_flight": m.InFlight}
	})
	putOpt(o, "lb", p.LB, balancerDocument)
	putOpt(locality, "prefer", p.Locality.Prefer, same[string])
	putOpt(locality, "spill_below", p.Locality.SpillBelow, same[float64])
	putPart(o, "locality", locality)
	putOpt(o, "warmup", p.Warmup, config.Span)
	offOr(o, "breaker", p.Breaker.Off, breakerDocument(&p.Breaker))
	offOr(o, "outlier", p.Outlier.Off, outlierDocument(&p.Outlier))
	putOpt(limit, "connections", p.Limit.Connections, same[int])
	putOpt(limit, "in_flight", p.Limit.InFlight, same[int])
	putOpt(limit, "waiting", p.Limit.Waiting, same[int])
	putOpt(limit, "priorities", p.Limit.Priorities, same[[]string])
	putOpt(limit, "bulkhead", p.Limit.Bulkhead, same[string])
	putPart(o, "limit", limit)
	putOpt(o, "panic", p.Panic, same[string])
	return o
}

func backupDocument(b *config.Backup) object {
	o := object{}
	putOpt(o, "after", b.After, config.BackupAfter.String)
	putOpt(o, "max_ratio", b.MaxRatio, same[float64])
	return o
}

// offOr writes "none" for what is off, and its fields otherwise.
func offOr(o object, key string, off config.Opt[bool], part object) {
	if off.Set && off.Value {
		o[key] = "none"
		return
	}
	putPart(o, key, part)
}

func breakerDocument(b *config.Breaker) object {
	o := object{}
	putOpt(o, "per", b.Per, same[string])
	putOpt(o, "error_threshold", b.ErrorThreshold, same[float64])
	putOpt(o, "request_volume", b.RequestVolume, same[int])
	putOpt(o, "window", b.Window, config.Span)
	putOpt(o, "buckets", b.Buckets, same[int])
	putOpt(o, "sleep_window", b.SleepWindow, config.Span)
	putOpt(o, "half_open_probes", b.HalfOpenProbes, same[int])
	slow := object{}
	putOpt(slow, "over", b.SlowOver, config.Span)
	putOpt(slow, "ratio", b.SlowRatio, same[float64])
	putPart(o, "slow", slow)
	return o
}

func outlierDocument(v *config.Outlier) object {
	o := object{}
	putOpt(o, "consecutive_failures", v.ConsecutiveFailures, same[int])
	putOpt(o, "error_ratio", v.ErrorRatio, same[float64])
	putOpt(o, "timeout_ratio", v.TimeoutRatio, same[float64])
	putOpt(o, "request_volume", v.RequestVolume, same[int])
	putOpt(o, "window", v.Window, config.Span)
	putOpt(o, "eject_for", v.EjectFor, config.Span)
	putOpt(o, "eject_max", v.EjectMax, config.Span)
	putOpt(o, "max_ejected", v.MaxEjected, same[float64])
	putOpt(o, "probe", v.Probe, probeDocument)
	putOpt(o, "slow_node", v.SlowNode, func(s config.SlowNode) object {
		return object{
			"average_over": config.Span(s.AverageOver), "every": config.Span(s.Every), "points": s.Points, "exceed": s.Exceed,
		}
	})
	return o
}

func registerDocument(r *config.Register) object {
	o := object{
		"to": r.To, "weight": r.Weight, "check": r.Check, "ttl": config.Span(r.TTL), "deregister_after": config.Span(r.DeregisterAfter),
		"publish_policy": cmp.Or(r.PublishPolicy, config.PublishNone),
	}
	put(o, "id", r.ID)
	put(o, "address", r.Address)
	put(o, "port", r.Port)
	put(o, "rules", r.Rules)
	if l := r.Lease; l != nil {
		o["lease"] = object{"max_out": l.MaxOut, "wait": config.Span(l.Wait), "ttl": config.Span(l.TTL), "prefix": l.Prefix}
	}
	putList(o, "tags", r.Tags)
	if len(r.Meta) > 0 {
		o["meta"] = r.Meta
	}
	return o
}

func probeDocument(p config.Probe) object {
	o := object{"interval": config.Span(p.Interval), "timeout": config.Span(p.Timeout)}
	switch {
	case p.HTTP != "":
		o["http"] = p.HTTP
	case p.GRPC && p.Service != "":
		o["grpc"] = p.Service
	case p.GRPC:
		o["grpc"] = object{}
	default:
		o["tcp"] = object{}
	}
	return o
}

func balancerDocument(b config.LB) any {
	switch {
	case b.Kind == "adaptive":
		a := b.Adaptive
		return object{b.Kind: object{
			"slow_fraction": a.SlowFraction, "slow_weight": a.SlowWeight, "normal_weight": a.NormalWeight, "interval": config.Span(a.Interval),
		}}
	case b.HashOn == "":
		return b.Kind
	case b.HashName == "":
		return object{b.Kind: b.HashOn}
	}
	return object{b.Kind: object{b.HashOn: b.HashName}}
}
