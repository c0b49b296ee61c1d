package consul

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// What a registry's configuration asks for, of a real Consul: tags, metadata, a filter that the server applies, nearness, no stale answers,
// polling, and another address when the first one is dead (S-34).
func TestOptions(t *testing.T) {
	t.Parallel()
	c := consultest.Start(t, 1, 1)
	first, server := c.Clients[0], c.Servers[0]
	good, bad := who(t, "good"), who(t, "bad")
	register := func(name string, o *sidecartest.Origin, tags []string, meta map[string]string) {
		t.Helper()
		host, port, _ := net.SplitHostPort(o.Address)
		number, _ := strconv.Atoi(port)
		server.Register(t, consultest.Service{ID: name + "-" + port, Name: name, Address: host, Port: number, Tags: tags, Meta: meta})
	}
	for _, name := range []string{"tagged", "marked", "filtered", "near", "polled"} {
		register(name, good, []string{"public", "fast"}, map[string]string{"env": "prod"})
		if name != "near" && name != "polled" {
			register(name, bad, []string{"public"}, map[string]string{"env": "test"})
		}
	}
	p := sidecartest.Run(t, `
registries:
  tags: {consul: {address: [%[1]q, %[2]q], tags: [public, fast]}}
  meta: {consul: {address: [%[1]q, %[2]q], meta: {env: prod}, stale: false}}
  filter: {consul: {address: [%[1]q, %[2]q], filter: 'Service.Meta.env == "prod"'}}
  near: {consul: {address: [%[1]q, %[2]q], near: _agent, datacenter: dc1}}
  poll: {consul: {address: [%[1]q, %[2]q], poll: 500ms}}
services:
  tagged: {from: tags}
  marked: {from: meta}
  filtered: {from: filter}
  near: {from: near}
  polled: {from: poll}`, first.HTTP, server.HTTP)
	for _, name := range []string{"tagged", "marked", "filtered", "near", "polled"} {
		seen(t, p, name, soon, "good")
	}
	first.Kill(t)
	other := who(t, "other")
	for _, name := range []string{"tagged", "marked", "filtered", "near", "polled"} {
		register(name, other, []string{"public", "fast"}, map[string]string{"env": "prod"})
	}
	for _, name := range []string{"tagged", "marked", "filtered", "near", "polled"} {
		seen(t, p, name, 15*time.Second, "good", "other")
	}
	for _, registry := range []string{"tags", "meta", "filter", "near", "poll"} {
		if p.Metric(t, "sidecar_discovery_failing", `source="`+registry+`"`) != 0 {
			t.Errorf("%s is failing with one of two addresses", registry)
		}
	}
}
