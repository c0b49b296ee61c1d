package config

import (
	"fmt"
	"strings"
	"testing"
)

// centre is a Center in a test, with documents as name → text.
type centre struct {
	t    *testing.T
	c    *Center
	base *Config
	rev  uint64
	docs map[string]Document
}

func newCentre(t *testing.T, base string) *centre {
	t.Helper()
	cfg, err := LoadBytes("sidecar.yaml", []byte(base), RankFile, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	return &centre{t: t, c: NewCenter(noEnv), base: cfg, docs: map[string]Document{}}
}

// put writes documents; an empty text deletes one.
func (k *centre) put(pairs ...string) *Config {
	k.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		k.rev++
		k.docs[pairs[i]] = Document{Name: pairs[i], Place: "kv/" + pairs[i], Revision: k.rev, Data: []byte(pairs[i+1])}
		if pairs[i+1] == "" {
			delete(k.docs, pairs[i])
		}
	}
	var list []Document
	for _, d := range k.docs {
		list = append(list, d)
	}
	k.c.Set(list)
	out, err := k.c.Merge(k.base)
	if err != nil {
		k.t.Fatal(err)
	}
	k.c.Accept()
	return out
}

// states is how the documents are doing: name, mark and first mistake.
func (k *centre) states() string {
	var b strings.Builder
	for _, s := range k.c.States() {
		mark := "out"
		if s.InForce {
			mark = "ok"
		} else if s.Kept {
			mark = "kept"
		}
		fmt.Fprintf(&b, "%s %s", s.Name, mark)
		if len(s.Errors) > 0 {
			fmt.Fprintf(&b, " (%s)", s.Errors[0].Error())
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (k *centre) expect(want string) {
	k.t.Helper()
	if got := k.states(); strings.TrimSpace(got) != strings.TrimSpace(want) {
		k.t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func TestCenter(t *testing.T) {
	k := newCentre(t, "services: {local: {endpoints: [10.0.0.1:80]}}")
	out := k.put(
		"services/catalog", "endpoints: [10.0.0.2:80]\npolicy: {use: reads}",
		"policies/reads", "timeout: 2s",
		"defaults", "retry: 3",
		"services/local", "endpoints: [10.0.0.9:80]",
		"groups/bj", "{service: \"*\", from: bj, to: [sh]}",
	)
	k.expect("defaults ok\ngroups/bj ok\npolicies/reads ok\nservices/catalog ok\nservices/local ok")
	p := out.ServicePolicy(out.Services["catalog"])
	if p.Timeout.Value.String() != "2s" || p.Retry.Count.Value != 3 {
		t.Errorf("%v %v", p.Timeout, p.Retry.Count)
	}
	if from := p.Timeout.From.String(); from != "kv/policies/reads@2:1:10" {
		t.Errorf("timeout comes from %s", from)
	}
	if e := out.Services["local"].Endpoints[0].Address; e != "10.0.0.1:80" {
		t.Errorf("the local file does not win: %s", e)
	}
	if len(out.Groups) != 1 {
		t.Errorf("groups: %v", out.Groups)
	}

	// A document with a mistake: its last good version counts, the rest is not touched, and the mistake has key and field.
	out = k.put("services/catalog", "endpoints: [10.0.0.3:80]\npolicy: {timeout: 5}", "policies/reads", "timeout: 3s")
	if e := out.Services["catalog"].Endpoints[0].Address; e != "10.0.0.2:80" {
		t.Errorf("%s", e)
	}
	if p := out.ServicePolicy(out.Services["catalog"]); p.Timeout.Value.String() != "3s" {
		t.Errorf("%v", p.Timeout)
	}
	if got := k.states(); !strings.Contains(got, "services/catalog kept (kv/services/catalog@6:2:19: services.catalog.policy.timeout: ") {
		t.Errorf("%s", got)
	}
	k.put("services/catalog", "endpoints: [10.0.0.3:80]")
	k.expect("defaults ok\ngroups/bj ok\npolicies/reads ok\nservices/catalog ok\nservices/local ok")

	// Deleted is gone, with its mistakes.
	out = k.put("services/catalog", "", "defaults", "")
	if out.Services["catalog"] != nil {
		t.Error("still there")
	}
	k.expect("groups/bj ok\npolicies/reads ok\nservices/local ok")
}

// Of two documents that want the same, one counts; when the other one is gone, the second does.
func TestCenterConflict(t *testing.T) {
	k := newCentre(t, "services: {local: {endpoints: [10.0.0.1:80]}}")
	k.put("services/a", "hosts: shop\nendpoints: [10.0.0.2:80]", "services/b", "endpoints: [10.0.0.3:80]")
	out := k.put("services/b", "hosts: shop\nendpoints: [10.0.0.4:80]", "services/c", "hosts: local")
	if out.Services["b"].Endpoints[0].Address != "10.0.0.3:80" || out.Services["c"] != nil || out.Services["a"] == nil {
		t.Errorf("%v", out.Services)
	}
	k.expect(`
services/a ok
services/b kept (kv/services/b@3:1:8: services.b.hosts: the host "shop" is taken by services.a.hosts at kv/services/a@1:1:8)
services/c out (kv/services/c@4:1:8: services.c.hosts: the host "local" is taken by services.local at sidecar.yaml:1:12)`)
	out = k.put("services/a", "")
	if out.Services["b"].Endpoints[0].Address != "10.0.0.4:80" {
		t.Errorf("%v", out.Services["b"].Endpoints[0])
	}
	k.expect("services/b ok\n" + `services/c out (kv/services/c@4:1:8: services.c.hosts: the host "local" is taken by services.local at sidecar.yaml:1:12)`)

	// A reference that names nothing leaves out the one that refers.
	out = k.put("services/d", "{endpoints: [10.0.0.5:80], policy: {use: none-such}}")
	if out.Services["d"] != nil || out.Services["b"] == nil {
		t.Errorf("%v", out.Services)
	}
}

// What compiling refuses is taken back like what could not be read.
func TestCenterRefuse(t *testing.T) {
	k := newCentre(t, "services: {}")
	k.put("services/a", "endpoints: [10.0.0.1:80]")
	k.c.Set([]Document{{Name: "services/a", Place: "kv/services/a", Revision: 9, Data: []byte("endpoints: [10.0.0.2:80]")}})
	if _, err := k.c.Merge(k.base); err != nil {
		t.Fatal(err)
	}
	if k.c.Refuse(Errors{{File: "elsewhere"}}) {
		t.Error("a document was blamed for what is not its fault")
	}
	if !k.c.Refuse(Errors{{File: "kv/services/a@9", Line: 1, Msg: "no"}}) {
		t.Error("no document was blamed")
	}
	out, err := k.c.Merge(k.base)
	if err != nil || out.Services["a"].Endpoints[0].Address != "10.0.0.1:80" {
		t.Errorf("%v %v", out, err)
	}
	k.c.Accept()
	k.expect("services/a kept (kv/services/a@9:1:1: no)")
}

func TestCenterNames(t *testing.T) {
	for _, name := range []string{"", "services", "services/", "services/a/b", "service/a", "defaults/x", "services/a b", "listen", "node/a"} {
		if _, err := LoadDocument(Document{Name: name, Place: "kv/" + name, Data: []byte("{}")}, noEnv); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
	for _, text := range []string{"", "- a", "endpoints: [", "nonsense: 1"} {
		if _, err := LoadDocument(Document{Name: "services/a", Place: "kv", Data: []byte(text)}, noEnv); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// What a provider publishes fills what callers leave open: caller's method, caller's service, provider's method,
// provider's service, defaults (S-8, X-3, S-10, S-11).
func TestPublished(t *testing.T) {
	k := newCentre(t, `
services:
  silent: {endpoints: [10.0.0.1:80]}
  own:
    endpoints: [10.0.0.1:80]
    policy: {timeout: 4s}
    routes: [{name: save, match: POST /save, policy: {retry: 0}}]
defaults: {timeout: 9s, idle_timeout: 9s, warmup: 9s}`)
	const text = "policy: {timeout: 1s, idle_timeout: 1s, retry: 2}\nroutes:\n- {name: save, match: POST /save, policy: {timeout: 2s, per_try_timeout: 2s, retry: 3}}"
	out := k.put("published/silent", text, "published/own", text, "published/nobody", text)
	type want struct {
		service, route                  string
		timeout, perTry, idle, warm     string
		retries, inherited, routesInAll int
	}
	for _, w := range []want{
		{"silent", "", "1s", "0s", "1s", "9s", 2, 3, 1},
		{"silent", "save", "2s", "2s", "1s", "9s", 3, 4, 1},
		{"own", "", "4s", "0s", "1s", "9s", 2, 2, 1},
		{"own", "save", "4s", "2s", "1s", "9s", 0, 2, 1},
	} {
		s := out.Services[w.service]
		p := out.ServicePolicy(s)
		for _, r := range s.Routes {
			if r.Name == w.route {
				p = out.RoutePolicy(s, r)
			}
		}
		got := want{
			w.service, w.route, p.Timeout.Value.String(), p.PerTryTimeout.Value.String(), p.IdleTimeout.Value.String(),
			p.Warmup.Value.String(), p.Retry.Count.Value, InheritedFields(&p), len(s.Routes),
		}
		if got != w {
			t.Errorf("got %+v, want %+v", got, w)
		}
	}
	if from := out.Services["silent"].Inherited.Timeout.From.String(); from != "kv/published/silent@1:1:19" {
		t.Errorf("from %s", from)
	}
	if k.base.Services["silent"].Inherited != nil {
		t.Error("the configuration of the files was written to")
	}

	// The provider deletes it: callers keep what they rely on, and it shows (S-13).
	out = k.put("published/silent", "")
	if p := out.ServicePolicy(out.Services["silent"]); p.Timeout.Value.String() != "1s" {
		t.Errorf("%v", p.Timeout)
	}
	if got := k.states(); !strings.Contains(got, "published/silent kept (kv/published/silent@1: it was deleted") {
		t.Errorf("%s", got)
	}
	// A use of somebody else's policies means nothing here.
	k.put("published/own", "policy: {use: reads}")
	if got := k.states(); !strings.Contains(got, "published/own kept (") {
		t.Errorf("%s", got)
	}
}
