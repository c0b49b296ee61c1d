package grammar

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// regName is RFC 3986 3.2.2 without its comma, then a port.
var regName = regexp.MustCompile("^([-A-Za-z0-9._~!$&'()*+;=%]{1,255})(:([0-9]*))?$")

func validStrictly(s string) bool {
	if s == "" {
		return true
	}
	port := ""
	if strings.HasPrefix(s, "[") {
		literal, rest, ok := strings.Cut(s[1:], "]")
		a, err := netip.ParseAddr(literal)
		if !ok || err != nil || !a.Is6() || a.Zone() != "" || rest != "" && rest[0] != ':' {
			return false
		}
		port = strings.TrimPrefix(rest, ":")
	} else {
		m := regName.FindStringSubmatch(s)
		if m == nil {
			return false
		}
		port = m[3]
	}
	if port == "" {
		return true
	}
	n, err := strconv.ParseUint(port, 10, 64)
	return (err == nil && n <= 65535) && strings.Trim(port, "0123456789") == ""
}

func TestAuthority(t *testing.T) {
	for s, want := range map[string]bool{
		"": true, "svc.test": true, "SVC.test.": true, "svc.test:80": true, "svc.test:": true, "svc.test:65535": true,
		"svc.test:65536": false, "svc.test:+80": false, "svc.test:80:80": false, ":80": false, "[::1]": true, "[::1]:80": true,
		"[::1]x": false, "[::1": false, "[::1%eth0]": false, "[127.0.0.1]": false, "::1": false, "u@svc.test": false,
		"svc.test/a": false, "svc.test?a": false, "svc.test#a": false, "svc,test": false, "svc test": false, "[]": false,
		"svc_x": true, "a\\b": false, "\xc3\xa9": false, strings.Repeat("a", 255): true, strings.Repeat("a", 256): false,
	} {
		if got := ValidAuthority(s); got != want {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
		if got := validStrictly(s); got != want {
			t.Errorf("the second parser: %q: %v, want %v", s, got, want)
		}
	}
}

func FuzzAuthority(f *testing.F) {
	for _, s := range []string{"svc.test:80", "[::1]:443", "[fe80::1%25eth0]", "a@b", "a:b:c", "svc.test:0000000000000000080"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := ValidAuthority(s), validStrictly(s); got != want {
			t.Fatalf("%q: %v, want %v", s, got, want)
		}
		if name, port := SplitPort(s); ValidAuthority(s) && s != "" && port != "" && name+":"+port != s {
			t.Fatalf("%q splits into %q and %q", s, name, port)
		}
	})
}

// FuzzValue holds the check that looks at eight bytes at a time to the one that looks at each.
func FuzzValue(f *testing.F) {
	f.Add([]byte("abcdefgh\x80\x7f"))
	f.Add([]byte("\t\t\t\t\t\t\t\x1f"))
	f.Add([]byte("\x80\x80\x80\x80\x80\x00\x80\x80"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := ValidValue(b), validSlow(b); got != want {
			t.Fatalf("%q: %v, want %v", b, got, want)
		}
	})
}
