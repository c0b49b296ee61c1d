package config

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

func consulValue() value[ConsulRegistry] {
	v := object(
		in("address", "agents or servers, one or a list in the order they are tried: host:port, http://, https:// or unix:PATH (127.0.0.1:8500)",
			func(c *ConsulRegistry) *[]string { return &c.Addresses }, some(consulAddress())),
		ref("tls", "how https is spoken; given, host:port means https", func(c *ConsulRegistry) **ConsulTLS { return &c.TLS }, consulTLSValue()),
		in("token_file", "file with the access token; read again when it changes", func(c *ConsulRegistry) *string { return &c.TokenFile }, line()),
		in("datacenter", "left out: that of the agent", func(c *ConsulRegistry) *string { return &c.Datacenter }, line()),
		in("namespace", "where the server has namespaces", func(c *ConsulRegistry) *string { return &c.Namespace }, line()),
		in("near", "answers are ordered by network distance from this node; _agent: the agent's", func(c *ConsulRegistry) *string { return &c.Near }, line()),
		in("filter", "a filter expression, applied by the server", func(c *ConsulRegistry) *string { return &c.Filter }, line()),
		in("tags", "instances count that carry all of these tags", func(c *ConsulRegistry) *[]string { return &c.Tags }, some(line())),
		in("meta", "instances count whose metadata has all of these", func(c *ConsulRegistry) *map[string]string { return &c.Meta }, labels()),
		in("stale", "any server may answer, not only the leader (true)", func(c *ConsulRegistry) *bool { return &c.Stale }, boolean()),
		in("wait", "how long one query waits for a change (1m)", func(c *ConsulRegistry) *time.Duration { return &c.Wait }, duration(time.Second, 10*time.Minute)),
		in("poll", "ask with this pause instead of waiting for changes", func(c *ConsulRegistry) *time.Duration { return &c.Poll }, duration(500*time.Millisecond, longest)),
		in("timeout", "of connecting, and of an answer that need not be waited for (5s)", func(c *ConsulRegistry) *time.Duration { return &c.Timeout }, duration(10*time.Millisecond, time.Minute)),
		in("max_connections", "connections at one time; with more services they take turns (128)", func(c *ConsulRegistry) *int { return &c.MaxConnections }, number(1, 10_000)),
		in("max_answer", "of one answer; a longer one is a failure (8MiB)", func(c *ConsulRegistry) *int64 { return &c.MaxAnswer }, size(1<<10, 256<<20)),
	)
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *ConsulRegistry) bool {
		*out = defaultConsul()
		return read(d, n, out)
	}
	return v
}

func consulTLSValue() value[ConsulTLS] {
	return then(object(
		in("ca_file", "who may have signed the server's certificate; left out: the system's authorities", func(t *ConsulTLS) *string { return &t.CAFile }, line()),
		in("cert_file", "our certificate", func(t *ConsulTLS) *string { return &t.CertFile }, line()),
		in("key_file", "its key", func(t *ConsulTLS) *string { return &t.KeyFile }, line()),
		in("server_name", "the name the certificate must have; left out: the address", func(t *ConsulTLS) *string { return &t.ServerName }, line()),
		in("skip_verify", "take any certificate (false)", func(t *ConsulTLS) *bool { return &t.SkipVerify }, boolean()),
	), func(d *decoder, n *yaml.Node, t *ConsulTLS) bool {
		if (t.CertFile == "") != (t.KeyFile == "") {
			return d.fail(n, "cert_file and key_file belong together")
		}
		return true
	})
}

// consulAddress is where an agent listens.
func consulAddress() value[string] {
	return checked(line(), func(s string) string {
		rest := s
		for _, scheme := range []string{"http://", "https://"} {
			if after, ok := strings.CutPrefix(s, scheme); ok {
				rest = after
				if strings.HasPrefix(after, "unix:") {
					return "unix:PATH stands without a scheme"
				}
			}
		}
		return addressProblem(rest)
	})
}
