package route

import (
	"strings"
	"testing"
	"unsafe"
)

func TestNormalizePath(t *testing.T) {
	for _, c := range []struct {
		in, want string
		verdict  Verdict
	}{
		{"", "/", PathOK},
		{"*", "*", PathOK},
		{"/", "/", PathOK},
		{"/a/b/", "/a/b/", PathOK},
		{"/a/./b", "/a/b", PathOK},
		{"/a/../b", "/b", PathOK},
		{"/a/b/..", "/a/", PathOK},
		{"/a/b/.", "/a/b/", PathOK},
		{"/a/..", "/", PathOK},
		{"/a/%2e%2e/b", "/b", PathOK},
		{"/a/.%2E/b", "/b", PathOK},
		{"/a%2fb", "/a%2Fb", PathOK},
		{"/a%5cb", "/a%5Cb", PathOK},
		{"//a//b", "//a//b", PathOK},
		{"/a//../b", "/a/b", PathOK},
		{"//../b", "/b", PathOK},
		{"/admin;x=1/../pub", "/pub", PathOK},
		{"/a/%252e%252e/b", "/a/%252e%252e/b", PathOK},
		{"/%61dmin%7e", "/admin~", PathOK},
		{"/a?x=/../b%zz", "/a?x=/../b%zz", PathOK},
		{"/a/../b?x=/../c", "/b?x=/../c", PathOK},
		{"/a/%c0%ae%c0%ae/b", "/a/%C0%AE%C0%AE/b", PathOK},
		{"/admin%20", "/admin%20", PathOK},
		{"/a%3fb=c", "/a%3Fb=c", PathOK},
		{"/.well-known/x", "/.well-known/x", PathOK},
		{"/...", "/...", PathOK},
		{"/..a/b..", "/..a/b..", PathOK},
		{"/g/a%2fb/..", "/g/", PathOK},
		{"/../b", "", PathClimbs},
		{"/a/../../b", "", PathClimbs},
		{"/..", "", PathClimbs},
		{"/%2e%2e", "", PathClimbs},
		{"/pub/..;/admin", "", PathSuspicious},
		{"/pub/..;x=1/admin", "", PathSuspicious},
		{"/pub/%2e%2e;/admin", "", PathSuspicious},
		{"/pub/.;/admin", "", PathSuspicious},
		{"/pub/..%2fadmin", "", PathSuspicious},
		{"/pub/x%2f..%5cadmin", "", PathSuspicious},
		{"/pub/x%2f..", "", PathSuspicious},
		{"/a%", "", PathEscape},
		{"/a%2", "", PathEscape},
		{"/a%zz", "", PathEscape},
		{"/a%u0041", "", PathEscape},
		{"/a%00", "", PathControl},
		{"/a\x00", "", PathControl},
		{"/a b", "", PathControl},
		{"/a?b c", "", PathControl},
		{"/a\r\nx", "", PathControl},
		{"/a\\..\\b", "", PathBackslash},
		{"/a#b", "", PathFragment},
		{"/a?b#c", "", PathFragment},
		{"a/b", "", PathRelative},
		{"http://x/", "", PathRelative},
	} {
		got, verdict := NormalizePath(nil, c.in)
		if verdict != c.verdict || verdict == PathOK && got != c.want {
			t.Errorf("%q: %q, %v; want %q, %v", c.in, got, verdict, c.want, c.verdict)
		}
		if verdict == PathOK && got == c.in && got != "" && unsafe.StringData(got) != unsafe.StringData(c.in) {
			t.Errorf("%q was copied", c.in)
		}
	}
}

func TestNormalizePathDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 256)
	for _, in := range []string{"/v1/items/42?x=%zz", "/.well-known/x", "/a/%2e%2e/b%2fc?d"} {
		if n := testing.AllocsPerRun(100, func() { NormalizePath(buf, in) }); n != 0 {
			t.Errorf("%q: %v allocations", in, n)
		}
	}
}

func FuzzNormalizePath(f *testing.F) {
	for _, s := range []string{"/a/../b?c", "/%2e%2e/x", "/a/..;/b", "//..//.", "/a%2f..", "/%41%zz", "/./.././/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out, verdict := NormalizePath(nil, in)
		if verdict != PathOK || out == "*" {
			return
		}
		again, verdict := NormalizePath(nil, out)
		if verdict != PathOK || again != out {
			t.Fatalf("%q gives %q, and that %q, %v", in, out, again, verdict)
		}
		path, query := PathOf(out)
		_, wantQuery := PathOf(in)
		if query != wantQuery {
			t.Fatalf("the query of %q became %q", in, query)
		}
		if path[0] != '/' || strings.ContainsAny(path, "\\#\x00 \r\n") {
			t.Fatalf("%q gives %q", in, out)
		}
		for _, seg := range strings.Split(path, "/") {
			if seg == "." || seg == ".." || strings.HasPrefix(seg, "..;") {
				t.Fatalf("%q gives %q", in, out)
			}
		}
		if len(out) > max(len(in), 1) {
			t.Fatalf("%q grew to %q", in, out)
		}
	})
}

func BenchmarkNormalizePath(b *testing.B) {
	buf := make([]byte, 0, 256)
	b.Run("normal", func(b *testing.B) {
		for b.Loop() {
			NormalizePath(buf, "/api/v1/customers/4711/orders/2024?limit=10")
		}
	})
	b.Run("not", func(b *testing.B) {
		for b.Loop() {
			NormalizePath(buf, "/api/v1/%63ustomers/../orders/./2024?limit=10")
		}
	})
}

func TestRewrite(t *testing.T) {
	for _, c := range []struct {
		r        Rewrite
		in, want string
	}{
		{Rewrite{}, "/a?b", "/a?b"},
		{Rewrite{HasPrefix: true, From: "/old/", To: "/new/"}, "/old/x?y=/old/", "/new/x?y=/old/"},
		{Rewrite{HasPrefix: true, From: "/old/", To: "/new/"}, "/other", "/other"},
		{Rewrite{HasPrefix: true, From: "/old", To: "/"}, "/old/x", "/x"},
		{Rewrite{HasPrefix: true, From: "/old", To: "/"}, "/old", "/"},
		{Rewrite{HasPrefix: true, From: "/old", To: ""}, "/old", "/"},
		{Rewrite{HasPrefix: true, From: "/old", To: ""}, "/old?q", "/?q"},
		{Rewrite{HasPrefix: true, From: "/old/", To: ""}, "/old/x", "/x"},
		{Rewrite{HasPrefix: true, From: "/", To: "/api/"}, "/x", "/api/x"},
		{Rewrite{HasPrefix: true, From: "", To: "/api"}, "/x", "/api/x"},
		{Rewrite{Whole: "/w"}, "/a/b?c", "/w?c"},
		{Rewrite{Whole: "/w"}, "/a/b", "/w"},
		{Rewrite{Whole: "/w?d=1"}, "/a/b?c", "/w?d=1&c"},
		{Rewrite{Whole: "/w?d=1"}, "/a/b", "/w?d=1"},
	} {
		if got := c.r.Path(make([]byte, 0, 8), c.in); got != c.want {
			t.Errorf("%+v of %q: %q, want %q", c.r, c.in, got, c.want)
		}
	}
}
