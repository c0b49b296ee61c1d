package config

import (
	"strings"
	"testing"
)

// good lists what a later run would begin with.
func (k *centre) good() string {
	var list []string
	for _, d := range k.c.Good() {
		list = append(list, d.Name+"="+string(d.Data))
	}
	return strings.Join(list, " ")
}

// again is a later run that begins with what this one had in force.
func (k *centre) again() *centre {
	k.t.Helper()
	n := &centre{t: k.t, c: NewCenter(noEnv), base: k.base, docs: k.docs, rev: k.rev}
	n.c.Restore(k.c.Good())
	if _, err := n.c.Merge(n.base); err != nil {
		k.t.Fatal(err)
	}
	n.c.Accept()
	return n
}

// A later run begins with what was in force: of a bad document with the version before it. What the store then says replaces it.
func TestCenterMemory(t *testing.T) {
	k := newCentre(t, "services: {}")
	k.put("services/a", "endpoints: [10.0.0.1:80]", "services/b", "endpoints: [10.0.0.2:80]", "published/a", "policy: {retry: 2}")
	k.put("services/b", "endpoints: nonsense", "services/c", "nonsense: 1")
	const want = "published/a=policy: {retry: 2} services/a=endpoints: [10.0.0.1:80] services/b=endpoints: [10.0.0.2:80]"
	if got := k.good(); got != want {
		t.Errorf("kept:\n%s\nwant:\n%s", got, want)
	}
	n := k.again()
	n.expect("published/a ok\nservices/a ok\nservices/b ok")
	// The store answers: the bad document is as bad as before, and its earlier version still counts.
	out := n.put()
	if got := n.states(); out.Services["b"] == nil || !strings.Contains(got, "services/b kept (") || !strings.Contains(got, "services/c out (") {
		t.Errorf("%s", got)
	}
	if got := n.good(); got != want {
		t.Errorf("kept:\n%s", got)
	}
	// What is no longer there is gone, even what a provider published.
	n = k.again()
	out = n.put("services/a", "", "published/a", "")
	if out.Services["a"] != nil || strings.Contains(n.states(), "published/a") {
		t.Errorf("%s", n.states())
	}
	// Another store may give the same revision to another text.
	k.put("services/a", "endpoints: [10.0.0.1:80]")
	n = k.again()
	a := n.docs["services/a"]
	a.Data = []byte("endpoints: [10.0.0.9:80]")
	n.docs["services/a"] = a
	if out = n.put(); out.Services["a"].Endpoints[0].Address != "10.0.0.9:80" {
		t.Errorf("%v", out.Services["a"].Endpoints[0])
	}
}
