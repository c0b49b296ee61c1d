package config

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
)

func layer(t *testing.T, rank Rank, text string) Layer {
	t.Helper()
	c, err := LoadBytes(map[Rank]string{RankCenter: "center", RankDynamic: "admin", RankFile: "file"}[rank], []byte(text), rank, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	return Layer{Rank: rank, Config: c}
}

const mergeFile = `registries: {main: {dns: {}}}
policies: {p: {timeout: 1s}}
services:
  a: {endpoints: ["127.0.0.1:1"], policy: {timeout: 2s}}
`

func TestMergeTakesTheWholeOfTheHighestRank(t *testing.T) {
	file := layer(t, RankFile, mergeFile)
	admin := layer(t, RankDynamic, `services: {a: {from: main}, b: {from: main, policy: {use: q}}}`)
	center := layer(t, RankCenter, `
policies: {p: {timeout: 9s}, q: {timeout: 8s}}
defaults: {timeout: 7s}
services: {b: {from: nowhere, critical: true}, c: {from: main, routes: [{match: /x, to: {service: a}}]}}
`)
	c, err := Merge(file.Config, center, admin)
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(c.Services)); strings.Join(got, "") != "abc" {
		t.Fatalf("services %v", got)
	}
	if c.Services["a"] != file.Config.Services["a"] || c.Services["b"] != admin.Config.Services["b"] || c.Services["c"] != center.Config.Services["c"] {
		t.Error("a service does not keep its pointer, or comes from the wrong source")
	}
	if p := c.ServicePolicy(c.Services["b"]); p.Timeout.Value.String() != "8s" || p.Timeout.From.Source.Name != "center" {
		t.Errorf("timeout of b: %+v", p.Timeout)
	}
	if c.Policies["p"].Timeout.From.Source.Name != "file" || c.Defaults.Timeout.Value.String() != "7s" {
		t.Errorf("p from %s, defaults %+v", c.Policies["p"].Timeout.From, c.Defaults.Timeout)
	}
	if len(file.Config.Services) != 1 {
		t.Error("merging changed its base")
	}
}

func TestMergeLooksAtReferences(t *testing.T) {
	file := layer(t, RankFile, mergeFile)
	_, err := Merge(file.Config, layer(t, RankDynamic, `services: {b: {from: mian, hosts: a, policy: {use: p}}, c: {from: main, listen: "127.0.0.1:15000"}}`))
	want := `admin:1:22: services.b.from: there is no registry "mian" under registries, did you mean main?
admin:1:35: services.b.hosts: the host "a" is taken by services.a at file:4:3
admin:1:81: services.c.listen: the address 127.0.0.1:15000 is taken by listen.admin (127.0.0.1:15000), built in`
	var all Errors
	if !errors.As(err, &all) || all.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestMeshSourcesSayOnlyTheirPart(t *testing.T) {
	_, err := LoadBytes("kv", []byte("node: {service: a}\nlisten: {admin: none}\nservices: {}"), RankCenter, noEnv)
	if err == nil || strings.Count(err.Error(), "belongs to the local file") != 2 {
		t.Errorf("got %v", err)
	}
}

func TestSame(t *testing.T) {
	const text = `services: {a: {endpoints: [{address: "127.0.0.1:1", labels: {x: "1", y: "2"}}], policy: {timeout: 1s}, routes: [{match: /x}]}}`
	base := parseText(t, text).Services["a"]
	for _, same := range []string{
		"\n# a comment\n" + text,
		strings.Replace(text, `x: "1", y: "2"`, `y: "2", x: '1'`, 1),
		strings.Replace(text, "1s", "1000ms", 1),
		strings.Replace(text, "match: /x", "match: {path: /x}", 1),
	} {
		if !base.Same(parseText(t, same).Services["a"]) {
			t.Errorf("not the same: %s", same)
		}
	}
	for _, other := range []string{
		strings.Replace(text, "127.0.0.1:1", "127.0.0.1:2", 1),
		strings.Replace(text, `y: "2"`, `y: "3"`, 1),
		strings.Replace(text, "timeout: 1s", "timeout: 1s, retry: 0", 1),
		strings.Replace(text, "match: /x", "match: /y", 1),
		strings.Replace(text, "match: /x", "match: /x/*", 1),
	} {
		if base.Same(parseText(t, other).Services["a"]) {
			t.Errorf("the same: %s", other)
		}
	}
	if byHand := (&Service{Name: "a"}); !byHand.Same(&Service{Name: "a"}) || byHand.Same(base) || byHand.Same(nil) {
		t.Error("services made by hand are not compared")
	}
}

func TestKeep(t *testing.T) {
	const text = "policies: {p: {timeout: 1s}}\nservices:\n  a: {endpoints: [a:1]}\n  b:\n    endpoints: [b:1]\n    policy: {timeout: 1s}\n  c: {endpoints: [c:1]}\n"
	first := parseText(t, text)
	second := parseText(t, strings.Replace(text, "[b:1]", "[b:2]", 1))
	moved := parseText(t, strings.Replace(text, "  b:\n", "  b:\n    # said why\n", 1))
	second.Keep(first)
	moved.Keep(first)
	if second.Services["a"] != first.Services["a"] || second.Services["b"] == first.Services["b"] || second.Services["c"] != first.Services["c"] {
		t.Error("not exactly the services that did not change are kept")
	}
	if moved.Services["b"] == first.Services["b"] || !moved.Services["b"].Same(first.Services["b"]) {
		t.Error("a service that moved must have its new origins, and be the same")
	}
	if !first.SamePolicies(second) || first.SamePolicies(parseText(t, strings.Replace(text, "timeout: 1s", "timeout: 2s", 1))) {
		t.Error("policies are not compared")
	}
	if !(&Inbound{Service: "a"}).Same(&Inbound{Service: "a"}) || (&Inbound{Service: "a"}).Same(&Inbound{Service: "b"}) {
		t.Error("inbound services are not compared")
	}
}
