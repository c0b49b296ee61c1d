package config

import (
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

func registerValue() value[Register] {
	v := object(
		must(in("to", "registries: one or a list", func(r *Register) *[]string { return &r.To }, some(claimed(claimConsul, line())))),
		in("id", "unique among the instances of the registry's agent; left out: service, node.id and port", func(r *Register) *string { return &r.ID }, line()),
		in("address", "address that callers use; left out: where listen.inbound listens, or that of the node", func(r *Register) *string { return &r.Address }, line()),
		in("port", "port that callers use; left out: that of listen.inbound", func(r *Register) *int { return &r.Port }, number(1, 65535)),
		in("tags", "tags of the instance", func(r *Register) *[]string { return &r.Tags }, list(line())),
		in("meta", "metadata of the instance, besides what node says; callers see it as labels", func(r *Register) *map[string]string { return &r.Meta }, mapping(text(), metaProblem)),
		in("weight", "share among the instances (1)", func(r *Register) *int { return &r.Weight }, number(1, 65535)),
		in("check", "who asks the app: report (we do, and tell the registry) or agent (the registry's agent does) (report)", func(r *Register) *string { return &r.Check }, word(CheckReport, CheckAgent)),
		in("ttl", "without a report for so long the registry counts the instance as dead (15s)", func(r *Register) *time.Duration { return &r.TTL }, duration(time.Second, longest)),
		in("deregister_after", "the registry removes it when it was critical for so long; 0: never (10m)", func(r *Register) *time.Duration { return &r.DeregisterAfter }, duration(0, longest)),
		in("rules", "prefix of keys that say who may register, and who is to stay away; left out: everybody may", func(r *Register) *string { return &r.Rules }, checked(line(), rulesProblem)),
		in("publish_policy", "what callers are told through the config centre of how to call it: the policy of the service, with method those of its routes too, or none; left out: nothing, unless by sidecar config publish", func(r *Register) *string { return &r.PublishPolicy }, word(PublishNone, PublishService, PublishMethod)),
		ref("lease", "how many instances may be out for restart at a time: each takes a lease in the first registry before it leaves; {} for the defaults", func(r *Register) **Lease { return &r.Lease }, leaseValue()),
	)
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *Register) bool {
		*out = defaultRegister()
		out.From = d.origin(n)
		ok := read(d, n, out)
		if out.DeregisterAfter > 0 && out.DeregisterAfter < time.Minute {
			ok = d.failIn(n, "deregister_after", "at least 1m is expected, or 0: registries look no oftener")
		}
		return ok
	}
	return v
}

func leaseValue() value[Lease] {
	v := object(
		in("max_out", "of the instances of the service; one may always (10%)", func(l *Lease) *float64 { return &l.MaxOut }, ratio()),
		in("wait", "for a place, at most; then it leaves without a lease (5m)", func(l *Lease) *time.Duration { return &l.Wait }, duration(time.Second, time.Hour)),
		in("ttl", "the place of one that was killed is free so long after, or twice that (15s)", func(l *Lease) *time.Duration { return &l.TTL }, duration(10*time.Second, time.Hour)),
		in("prefix", "of the keys (sidecar-leases/)", func(l *Lease) *string { return &l.Prefix }, checked(line(), keyPrefixProblem)),
	)
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *Lease) bool {
		*out = defaultLease()
		return read(d, n, out)
	}
	return v
}

func metaProblem(name string) string {
	bad := strings.IndexFunc(name, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	switch {
	case name == "" || bad >= 0 || len(name) > 128:
		return "a name of metadata consists of at most 128 letters, digits, _ and -"
	case slices.Contains([]string{"group", "version", "zone", "region", "tenant", "environment", "protocol", "sidecar"}, name):
		return "is said by node: it is not for meta"
	}
	return ""
}

func rulesProblem(prefix string) string {
	if strings.HasPrefix(prefix, "/") || strings.HasSuffix(prefix, "/") {
		return "a prefix without slashes around it is expected"
	}
	return ""
}

// registrations looks at what services of our own tell registries, once all is known.
func (k *checker) registrations() {
	for _, in := range k.config.Inbound {
		if in.Register == nil {
			continue
		}
		at := claim{path: "inbound." + in.Service + ".register", from: in.Register.From}
		size := 0
		meta := k.config.RegisterMeta(in)
		for name, v := range meta {
			size += len(name) + len(v)
		}
		switch {
		case len(meta) > maxMeta || size > maxMetaBytes:
			k.fail(at, "meta and node make too much of it: at most 16 names and 1KiB, since every caller is sent it with every change")
		case k.config.Listen.Inbound == "":
			k.fail(at, "listen.inbound is none: there is nothing to register")
		case strings.HasPrefix(in.App, "unix:") && in.Register.Check == CheckAgent:
			k.fail(at, "check: agent cannot reach an app at a unix socket")
		case in.Register.Publishes() && k.config.Center == nil:
			k.fail(at, "publish_policy needs a config_center: callers look for it there")
		}
	}
}
