package route

import (
	"strings"
	"testing"
)

func TestHosts(t *testing.T) {
	h, err := NewHosts(map[string]int{
		"catalog": 1, "catalog:9000": 2, "Catalog.Internal": 3, "*.internal": 4, "*.eu.internal": 5, "*.internal:81": 6,
		"*": 7, "*:82": 8, "::1": 9, "[2001:DB8::1]:443": 10, "10.0.0.1": 11,
	})
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]int{
		"catalog": 1, "CATALOG.": 1, "catalog:80": 1, "catalog:": 1, "catalog:9000": 2, "catalog.:9000": 2,
		"catalog.internal:1": 3, "x.internal": 4, "x.y.internal": 4, "internal": 7, "x.eu.internal": 5, "eu.internal": 4,
		"x.internal:81": 6, "x.eu.internal:81": 5, "other": 7, "other:82": 8, "[::1]": 9, "[0:0:0::1]:8080": 9,
		"[2001:db8:0::1]:443": 10, "[2001:db8::1]": 7, "10.0.0.1:80": 11, "catalog:09000": 2, "notcatalog": 7,
		strings.Repeat("a", 300): 7, strings.Repeat("a.", 120) + "internal": 4,
	} {
		if id, pattern, ok := h.Which(in); !ok || id != want {
			t.Errorf("%.40q is %d (%q, %v), want %d", in, id, pattern, ok, want)
		}
	}
	for _, in := range []string{
		"", ":80", "catalog:+80", "catalog:65536", "catalog:80:80", "u@catalog", "catalog/x", "a,b", "a b", "a\x00b",
		"[::1", "[::1]x", "[x]", "::1", ".", "a\\b",
	} {
		if id, ok := h.Lookup(in); ok {
			t.Errorf("%q is %d", in, id)
		}
	}
	none, err := NewHosts(map[string]int{"a": 1, "b:80": 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{"c", "b", "b:81", "x.a"} {
		if _, ok := none.Lookup(in); ok {
			t.Errorf("%q is known", in)
		}
	}
}

func TestHostMistakes(t *testing.T) {
	for _, bad := range []string{"", "a*", "*a", "a.*.b", "*.*.b", "a..b", ".a", "*.", "a:x", "a:70000", "ä.de", "a/b", "**"} {
		if CheckHost(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	_, err := NewHosts(map[string]int{"a": 1, "A.": 2, "b:80": 3, "B:080": 4, "*a": 5})
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("want three mistakes, got %v", err)
	}
	if _, err := NewHosts(map[string]int{"a": 1, "A.": 1}); err != nil {
		t.Errorf("twice the same: %v", err)
	}
}

func TestHostsDoNotAllocate(t *testing.T) {
	h, err := NewHosts(map[string]int{"a.b.c": 1, "*.b.c": 2, "*": 3, "::1": 4})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{"A.B.C:8080", "x.y.B.c.", "other.name", "[0::1]:443"} {
		if n := testing.AllocsPerRun(100, func() { h.Lookup(in) }); n != 0 {
			t.Errorf("%q: %v allocations", in, n)
		}
	}
}

func FuzzHosts(f *testing.F) {
	for _, s := range []string{"a", "*.a.b", "[::1]:80", "A.B.:1", "*", "1.2.3.4"} {
		f.Add(s, "x.A.b:90")
	}
	f.Fuzz(func(t *testing.T, pattern, authority string) {
		h, err := NewHosts(map[string]int{pattern: 1})
		if err != nil {
			return
		}
		h.Lookup(authority)
		// What stands for itself is found, in any case and with a dot behind it.
		if !strings.Contains(pattern, "*") && !strings.Contains(pattern, ":") {
			for _, in := range []string{pattern, strings.ToUpper(pattern), strings.TrimSuffix(pattern, ".") + ".:80"} {
				if _, ok := h.Lookup(in); !ok {
					t.Errorf("%q does not fit %q", in, pattern)
				}
			}
		}
	})
}

func BenchmarkHosts(b *testing.B) {
	patterns := map[string]int{"*": 0}
	for i := range 5000 {
		patterns["svc"+string(rune('a'+i%26))+strings.Repeat("x", i/26)[:i/26%50]+".internal"] = 1
	}
	patterns["*.internal"] = 2
	h, err := NewHosts(patterns)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("exact", func(b *testing.B) {
		for b.Loop() {
			h.Lookup("svca.internal:8080")
		}
	})
	b.Run("suffix", func(b *testing.B) {
		for b.Loop() {
			h.Lookup("nothing.like.that.internal:8080")
		}
	})
}
