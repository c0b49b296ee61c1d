package config

import (
	"net/netip"
	"time"

	"go.yaml.in/yaml/v3"
)

// Bounds that hold for every duration and count without closer ones.
const (
	longest = 24 * time.Hour
	most    = 1_000_000
)

// grammar is the whole language, built anew for each load: nothing of it is shared or kept.
type grammar struct {
	defs     map[string]any
	document value[Config]
}

func newGrammar() *grammar {
	g := &grammar{defs: map[string]any{
		"variable": schema{"type": "string", "pattern": `\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}`},
	}}
	policy := define(g, "policy", policyValue())
	service := define(g, "service", serviceValue(policy, define(g, "route", routeValue(policy, true))))
	inbound := define(g, "inbound", inboundValue(policy, define(g, "inboundRoute", routeValue(policy, false))))
	g.document = object(
		in("node", "who we are; SIDECAR_* environment variables win over it", func(c *Config) *Node { return &c.Node }, nodeValue()),
		in("listen", "the addresses we listen on", func(c *Config) *Listen { return &c.Listen }, listenValue()),
		in("limits", "bounds of the process", func(c *Config) *Limits { return &c.Limits }, limitsValue()),
		in("registries", "where endpoints come from, by name", func(c *Config) *map[string]*Registry { return &c.Registries },
			mapping(pointer(registryValue()), nameProblem)),
		ref("config_center", "where the documents are that the files do not hold", func(c *Config) **ConfigCenter { return &c.Center }, centerValue()),
		in("discovery", "how start waits for registries, and how far they are believed", func(c *Config) *Discovery { return &c.Discovery }, discoveryValue()),
		in("policies", "named policies, taken with use", func(c *Config) *map[string]*Policy { return &c.Policies },
			mapping(pointer(policy), nameProblem)),
		in("bulkheads", "bounds that several services share, by name", func(c *Config) *map[string]*Bulkhead { return &c.Bulkheads },
			mapping(pointer(bulkheadValue()), bulkheadProblem)),
		in("defaults", "the policy of every service that says nothing", func(c *Config) *Policy { return &c.Defaults }, policy),
		in("services", "what we call, by name", func(c *Config) *map[string]*Service { return &c.Services },
			mapping(pointer(service), nameProblem)),
		in("inbound", "what our own app offers", func(c *Config) *[]*Inbound { return &c.Inbound }, list(pointer(inbound))),
		in("rules", "rules between callers and endpoints, by service: as services.NAME.rules, also for what our app offers",
			func(c *Config) *map[string]*Rules { return &c.Rules }, mapping(pointer(rulesValue()), nameProblem)),
		in("groups", "calls meant for one group go to others", func(c *Config) *[]GroupSwitch { return &c.Groups }, list(groupSwitchValue())),
		in("grey", "grey releases: some requests go to the new endpoints, and only they, by name", func(c *Config) *map[string]*Grey { return &c.Grey },
			mapping(pointer(greyValue()), nameProblem)),
		in("switches", "degradation: what is answered in place of a service, while it is on", func(c *Config) *map[string]*Switch { return &c.Switches },
			mapping(pointer(switchValue()), nameProblem)),
		in("telemetry", "what is reported, and where", func(c *Config) *Telemetry { return &c.Telemetry }, telemetryValue()),
	)
	return g
}

func nodeValue() value[Node] {
	return object(
		in("service", "the app beside us: our name as a caller", func(n *Node) *string { return &n.Service }, line()),
		in("id", "unique among the instances of the service", func(n *Node) *string { return &n.ID }, line()),
		in("group", "business group", func(n *Node) *string { return &n.Group }, line()),
		in("version", "version of the app", func(n *Node) *string { return &n.Version }, line()),
		in("zone", "zone, for nearness", func(n *Node) *string { return &n.Zone }, line()),
		in("region", "region, for nearness", func(n *Node) *string { return &n.Region }, line()),
		in("tenant", "tenant: never mixed with another", func(n *Node) *string { return &n.Tenant }, line()),
		in("environment", "environment: never mixed with another", func(n *Node) *string { return &n.Environment }, line()),
		in("labels", "free labels", func(n *Node) *map[string]string { return &n.Labels }, labels()),
		in("address", "addresses of the pod, one or a list, as rules about hosts see it; left out: those of its interfaces",
			func(n *Node) *[]netip.Addr { return &n.Addresses }, some(convert(line(), parseAddress))),
	)
}

func listenValue() value[Listen] {
	return object(
		in("outbound", "calls of our app, by Host or by original destination (127.0.0.1:15001)", func(l *Listen) *string { return &l.Outbound }, listener()),
		in("inbound", "calls to our app (0.0.0.0:15006)", func(l *Listen) *string { return &l.Inbound }, listener()),
		in("admin", "the admin API (127.0.0.1:15000)", func(l *Listen) *string { return &l.Admin }, listener()),
		in("health", "/ready and /live for the platform's probes (0.0.0.0:15021)", func(l *Listen) *string { return &l.Health }, listener()),
		in("metrics", "/metrics (0.0.0.0:15090)", func(l *Listen) *string { return &l.Metrics }, listener()),
		in("trust_forwarded", "networks whose forwarding headers are kept and extended; from anyone else they are replaced",
			func(l *Listen) *[]prefix { return &l.TrustForwarded }, list(network())),
	)
}

func limitsValue() value[Limits] {
	return object(
		in("connections", "downstream connections; left out: min(16000, (open files - 500) / 2)", func(l *Limits) *int { return &l.Connections }, number(1, 10*most)),
		in("header_bytes", "of one head (60KiB)", func(l *Limits) *int64 { return &l.HeaderBytes }, size(1<<10, 16<<20)),
		in("header_count", "fields of one head (100)", func(l *Limits) *int { return &l.HeaderCount }, number(1, 10_000)),
		in("header_timeout", "from the first byte of a head to its last (10s)", func(l *Limits) *time.Duration { return &l.HeaderTimeout }, duration(time.Millisecond, longest)),
		in("idle_timeout", "of a keep-alive connection between two requests (60s)", func(l *Limits) *time.Duration { return &l.IdleTimeout }, duration(time.Millisecond, longest)),
		in("drain_grace", "after SIGTERM new connections are still taken for so long (1s)", func(l *Limits) *time.Duration { return &l.DrainGrace }, duration(0, longest)),
		in("drain_timeout", "the whole drain (30s)", func(l *Limits) *time.Duration { return &l.DrainTimeout }, duration(0, longest)),
		in("replay_bytes", "of a request body kept for a retry (64KiB)", func(l *Limits) *int64 { return &l.ReplayBytes }, size(0, 64<<20)),
		in("half_close", "what a FIN behind a complete request means (serve)", func(l *Limits) *string { return &l.HalfClose }, word("serve", "cancel")),
		in("max_age", "of an HTTP/2 connection either way, give or take a tenth: it is left for a new one then, and its streams finish (0s: no bound)", func(l *Limits) *time.Duration { return &l.MaxAge }, duration(0, longest)),
		in("max_requests", "of an HTTP/2 connection either way, likewise (0: no bound)", func(l *Limits) *int { return &l.MaxRequests }, number(0, 1<<30)),
		in("moderate_reads", "read busy HTTP/2 connections every 100 µs instead of at each arrival (false)", func(l *Limits) *bool { return &l.ModerateReads }, boolean()),
		in("window_memory", "that windows of HTTP/2 streams may grow by, all together (32MiB); 0: they do not", func(l *Limits) *int64 { return &l.WindowMemory }, size(0, 16<<30)),
	)
}

func registryValue() value[Registry] {
	v := choice(
		ref("file", "lists of endpoints in a file or a folder", func(r *Registry) **FileRegistry { return &r.File }, object(
			must(in("path", "the file or folder", func(f *FileRegistry) *string { return &f.Path }, line())),
		)),
		ref("dns", "names that are resolved, TTL honoured", func(r *Registry) **DNSRegistry { return &r.DNS }, dnsValue()),
		ref("consul", "the services of Consul", func(r *Registry) **ConsulRegistry { return &r.Consul }, consulValue()),
		soon[Registry]("xds"),
	)
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *Registry) bool {
		out.Name, out.From = d.key.Value, d.origin(d.key)
		return read(d, n, out)
	}
	return v
}

func dnsValue() value[DNSRegistry] {
	v := object(
		in("servers", "name servers as host:port; left out: those of /etc/resolv.conf", func(r *DNSRegistry) *[]string { return &r.Servers }, filledList(hostPort())),
		in("min_ttl", "answers are kept at least so long (1s)", func(r *DNSRegistry) *time.Duration { return &r.MinTTL }, duration(time.Millisecond, longest)),
		in("max_ttl", "and at most so long (5m)", func(r *DNSRegistry) *time.Duration { return &r.MaxTTL }, duration(time.Millisecond, longest)),
		in("timeout", "of one query (2s)", func(r *DNSRegistry) *time.Duration { return &r.Timeout }, duration(time.Millisecond, time.Minute)),
	)
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *DNSRegistry) bool {
		*out = defaultDNS()
		if !read(d, n, out) {
			return false
		}
		if out.MinTTL > out.MaxTTL {
			return d.fail(n, "min_ttl %s is more than max_ttl %s", Span(out.MinTTL), Span(out.MaxTTL))
		}
		return true
	}
	return v
}

func telemetryValue() value[Telemetry] {
	return object(
		in("access_log", "one line for each exchange", func(t *Telemetry) *AccessLog { return &t.AccessLog }, object(
			in("to", "stdout, stderr or file:/path (stdout)", func(a *AccessLog) *string { return &a.To }, logTarget()),
			in("format", "json, text or none (json)", func(a *AccessLog) *string { return &a.Format }, word("json", "text", "none")),
		)),
		soon[Telemetry]("tracing"),
	)
}

func inboundValue(policy value[Policy], route value[Route]) value[Inbound] {
	v := object(
		in("service", "its name; left out: node.service", func(i *Inbound) *string { return &i.Service }, serviceName()),
		must(in("app", "where our app listens: host:port or unix:PATH", func(i *Inbound) *string { return &i.App }, endpointAddress())),
		in("protocol", "http, http2, grpc (over HTTP/2), tcp or auto: found out from the first bytes (auto)", func(i *Inbound) *string { return &i.Protocol }, protocol()),
		in("grpc_web", "who may call from a browser, with protocol grpc; none: gRPC-Web is not bridged", func(i *Inbound) *GRPCWeb { return &i.GRPCWeb }, grpcWebValue()),
		in("policy", "what holds for calls to our app", func(i *Inbound) *Policy { return &i.Policy }, policy),
		in("admit", "bounds of what reaches our app", func(i *Inbound) *Admit { return &i.Admit }, admitValue()),
		in("routes", "ordered, the first match wins", func(i *Inbound) *[]*Route { return &i.Routes }, list(pointer(route))),
		ref("health", "how our app is asked whether it is well", func(i *Inbound) **AppHealth { return &i.Health }, appHealthValue()),
		ref("register", "registries that it is told to", func(i *Inbound) **Register { return &i.Register }, registerValue()),
	)
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *Inbound) bool {
		out.Protocol, out.From = "auto", d.origin(n)
		ok := read(d, n, out)
		if out.Register != nil && out.Health == nil {
			health := defaultAppHealth()
			out.Health = &health
		}
		d.claim(claimInbound, n, out.Service)
		ok = d.grpcWebFits(n, out.Protocol) && ok
		return nameRoutes(d, n, out.Routes) && ok
	}
	return v
}

func admitValue() value[Admit] {
	return object(
		opt("concurrency", "requests in the app at one time", func(a *Admit) *Opt[int] { return &a.Concurrency }, number(1, most)),
		in("queue", "where requests wait for their turn", func(a *Admit) *Admit { return a }, object(
			opt("size", "how many may wait", func(a *Admit) *Opt[int] { return &a.QueueSize }, number(0, most)),
			opt("wait", "how long one may wait", func(a *Admit) *Opt[time.Duration] { return &a.QueueWait }, duration(0, longest)),
		)),
		soon[Admit]("rate"),
	)
}
