package config

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// FuzzLoad holds for every input: no panic; each mistake has a place and a message; what loads says the same when it is
// loaded again, an empty line further up; and policies resolve.
func FuzzLoad(f *testing.F) {
	for _, s := range []string{
		"", "{}", "~", "&a [*a]", "a: &a {b: *a}", "---\n---\n", "!!binary x", "? a\n: b", "services: &s {a: *s}", "\xef\xbb\xbfnode: {}",
		"%YAML 1.2\n---\nnode: {}", `{"node": {"service": "${X:-\u00e9}"}}`, "node: {labels: {a: '1'}}",
		"listen: {admin: none, health: ':80', trust_forwarded: [10.0.0.0/8]}", "limits: {header_bytes: 1KiB, header_count: 1e1}",
		"registries: {d: {dns: {min_ttl: 1s}}, f: {file: {path: /x}}}\nservices: {a: {from: [d, f]}}",
		"policies: {p: {use: q}, q: {retry: 2}}\ndefaults: {use: p, lb: {consistent_hash: {header: x}}, breaker: none, outlier: {probe: {http: /x}}}",
		"services: {a: {endpoints: ['a:1', {address: 'unix:/x', weight: 0}], policy: {timeout: 0, retry: {when: [5xx, 503]}}}}",
		"services: {a: {protocol: tcp, listen: '[::1]:1', hosts: '*.a'}, b: {listen: ':1'}}",
		"services: {a: {routes: [{match: GET /x/*}, {match: {path: {regex: ^a}, header: {x: {mod: 2, in: [1]}}, percent: 5%}, to: {split: [{weight: 1, service: a}]}}]}}",
		"services: {a: {routes: [{respond: {status: 200, headers: {a: b}}}, {match: /y, redirect: {to: /z}}, {match: /w, rewrite: {prefix: {from: /, to: /}}}]}}",
		"inbound: [{service: s, app: 'a:1', admit: {concurrency: 1, queue: {size: 1, wait: 1s}}, routes: [{match: /x}]}]",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := LoadBytes("f", data, RankFile, testEnv)
		if err != nil {
			checkErrors(t, err)
			return
		}
		for _, s := range c.Services {
			c.ServicePolicy(s)
			for _, r := range s.Routes {
				c.RoutePolicy(s, r)
			}
		}
		rest, bom := bytes.CutPrefix(data, []byte("\xef\xbb\xbf"))
		moved := append([]byte("\n"), rest...)
		if bom {
			moved = append([]byte("\xef\xbb\xbf"), moved...)
		}
		again, err := LoadBytes("f", moved, RankFile, testEnv)
		if err != nil {
			t.Fatalf("an empty line further up: %v", err)
		}
		for name, s := range c.Services {
			if other := again.Services[name]; other == nil || !s.Same(other) {
				t.Fatalf("service %q is another the second time", name)
			}
		}
	})
}

func checkErrors(t *testing.T, err error) {
	t.Helper()
	var all Errors
	if !errors.As(err, &all) || len(all) == 0 {
		t.Fatalf("not an Errors: %v", err)
	}
	for i, e := range all {
		if e.File == "" || e.Line < 1 || e.Col < 1 || e.Msg == "" {
			t.Fatalf("no place or no message: %#v", e)
		}
		if i > 0 && (all[i-1].Line > e.Line || all[i-1].Line == e.Line && all[i-1].Col > e.Col) {
			t.Fatalf("out of order: %v after %v", e, all[i-1])
		}
	}
}

func TestAliasesAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("defaults: {}\nservices:\n  s0: &s\n    endpoints: [a:1]\n    routes:\n")
	for range 1000 {
		b.WriteString("    - {match: /x, policy: {timeout: 1s}}\n")
	}
	for i := range 3000 {
		b.WriteString("  s" + string(rune('a'+i%26)) + strings.Repeat("x", i/26) + ": *s\n")
	}
	_, err := LoadBytes("bomb", []byte(b.String()), RankFile, noEnv)
	if err == nil || !strings.Contains(err.Error(), "aliases of this document stand for more than") {
		t.Errorf("got %.300v", err)
	}
}

func TestOddDocuments(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "x:1:1: the document is empty",
		"\n# only\n":                 "x:1:1: the document is empty",
		"---\n":                      "x:1:1: the document is empty",
		"null":                       `x:1:1: a map is expected, got nothing`,
		"a":                          `x:1:1: a map is expected, got "a"`,
		"\xff\xfen\x00":              "x:1:1: the document is not UTF-8 text",
		"a: b: c":                    "x:1:1: not readable as YAML: mapping values are not allowed in this context",
		"node: {}\n---\n":            "x:2:1: a second document in one file: put it into a file of its own",
		"{\"node\": {},}":            "",
		"{\"node\": {}}\n":           "",
		"\xef\xbb\xbfnode: {}":       "",
		"\xef\xbb\xbf{\"node\": {}}": "",
		"\tnode: {}":                 "x:1:1: not readable as YAML: found character that cannot start any token",
		"{\n\t\"node\": {}\n}":       "",
		"node: {}\r\nlimits: {}\r\n": "",
		"node: {}\n...\n":            "",
		"%YAML 1.2\n---\nnode: {}":   "",
		"# c\n%YAML 1.2\n---\n{}":    "",
		"node: {service: ~x}":        "",
		"node: {service: !!str 5}":   "",
		"node: {service: !x 5}":      "x:1:17: node.service: the tag !x is not part of this language; leave it out",
		"node: {id: *x}":             "x:1:1: not readable as YAML: unknown anchor 'x' referenced",
	} {
		_, err := LoadBytes("x", []byte(text), RankFile, noEnv)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestDocumentSizeIsBounded(t *testing.T) {
	_, err := LoadBytes("big", make([]byte, maxDocument+1), RankFile, noEnv)
	if err == nil || !strings.Contains(err.Error(), "at most 67108864 are read") {
		t.Errorf("got %v", err)
	}
}
