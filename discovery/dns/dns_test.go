package dns

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
)

func TestParseTarget(t *testing.T) {
	for in, want := range map[string]target{
		"a.b:80":          {hostKind, "a.b", 80},
		"srv:_x._tcp.a":   {srvKind, "_x._tcp.a", 0},
		"_x._tcp.a":       {srvKind, "_x._tcp.a", 0},
		"srv:a.b":         {srvKind, "a.b", 0},
		"catalog":         {anyKind, "catalog", 80},
		"localhost:65535": {hostKind, "localhost", 65535},
		"10.0.0.1:1":      {hostKind, "10.0.0.1", 1},
	} {
		if got, err := parseTarget(in); err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "srv:", "a:0", "a:b", "a:65536", ":80", "srv:.", "a..b:80", strings.Repeat("a", 64) + ":80"} {
		if got, err := parseTarget(in); err == nil {
			t.Errorf("%q: %+v", in, got)
		}
	}
}

func TestAddresses(t *testing.T) {
	srv := serve(t, "")
	srv.set("both.test. A", "both.test. 60 A 10.0.0.1", "both.test. 30 A 10.0.0.2")
	srv.set("both.test. AAAA", "both.test. 60 AAAA 2001:db8::1")
	srv.set("six.test. AAAA", "six.test. 60 AAAA 2001:db8::1")
	srv.set("odd.test. AAAA", "odd.test. 60 AAAA 2001:db8::2")
	srv.fail("odd.test. A", mdns.RcodeNameError) // wrong, and seen in the wild
	srv.set("alias.test. A", "alias.test. 7 CNAME Real.test.", "real.test. 60 A 10.0.0.3", "other.test. 60 A 10.9.9.9")
	srv.set("none.test. TXT", `none.test. 60 TXT "x"`)
	srv.set("short.web.test. A", "short.web.test. 60 A 10.0.0.4")
	srv.set("half.test. A")
	srv.fail("half.test. AAAA", mdns.RcodeServerFailure)
	s := source(t, config.DNSRegistry{Timeout: time.Second}, srv)
	write(t, s.client.system.resolv, "search web.test\noptions ndots:1\nnameserver 127.0.0.9\n")
	write(t, s.client.system.hostsFile, "10.0.0.5 Fixed.test # x\nbad line\n::1 fixed.test\n10.0.0.6\tonly\n")

	for name, want := range map[string]string{
		"both.test:80":         "10.0.0.1:80 10.0.0.2:80",
		"BOTH.test.:80":        "10.0.0.1:80 10.0.0.2:80",
		"six.test:80":          "[2001:db8::1]:80",
		"odd.test:80":          "[2001:db8::2]:80",
		"alias.test:80":        "10.0.0.3:80",
		"short:80":             "10.0.0.4:80",
		"fixed.TEST:80":        "10.0.0.5:80",
		"only:80":              "10.0.0.6:80",
		"localhost:80":         "127.0.0.1:80",
		"sub.localhost:80":     "127.0.0.1:80",
		"[::ffff:10.0.0.7]:80": "10.0.0.7:80",
		"none.test:80":         "gone",
		"absent.test:80":       "gone",
		"half.test:80":         "SERVFAIL",
	} {
		got, err := once(t, s, name)
		switch {
		case errors.Is(err, errGone):
			got = "gone"
		case err != nil && strings.Contains(err.Error(), "SERVFAIL"):
			got = "SERVFAIL"
		case err != nil:
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]time.Duration{"both.test:80": 30 * time.Second, "alias.test:80": 7 * time.Second} {
		tg, _ := parseTarget(name)
		if res := s.lookup(t.Context(), tg, nil); res.ttl != want {
			t.Errorf("%s: TTL %s, want %s", name, res.ttl, want)
		}
	}

	// The files are read again.
	write(t, s.client.system.hostsFile, "10.0.0.55 fixed.test\n")
	if got, err := once(t, s, "fixed.test:80"); got != "10.0.0.55:80" {
		t.Errorf("after the hosts file changed: %q %v", got, err)
	}
}

func TestServersOfTheSystem(t *testing.T) {
	s := source(t, quick())
	if got := s.client.system.current().servers; len(got) != 1 || got[0] != "127.0.0.1:53" {
		t.Errorf("without resolv.conf: %v", got)
	}
	write(t, s.client.system.resolv, "nameserver 10.0.0.1\nnameserver fd00::1\n")
	if got := s.client.system.current().servers; len(got) != 2 || got[1] != "[fd00::1]:53" {
		t.Errorf("%v", got)
	}
	s.client.system.every = time.Hour
	write(t, s.client.system.resolv, "nameserver 10.0.0.2\n")
	if got := s.client.system.current().servers; len(got) != 2 {
		t.Errorf("read again too soon: %v", got)
	}
}

// Many records do not fit a datagram: TCP. A server that knows no EDNS0 is asked without.
func TestLargeAnswers(t *testing.T) {
	srv := serve(t, "")
	var records []string
	for i := range 300 {
		records = append(records, fmt.Sprintf("many.test. 60 A 10.1.%d.%d", i/250, i%250))
	}
	srv.set("many.test. A", records...)
	var few []string
	for i := range 40 { // more than 512 bytes, less than 1232: one datagram with EDNS0
		few = append(few, fmt.Sprintf("few.test. 60 A 10.2.0.%d", i))
	}
	srv.set("few.test. A", few...)
	s := source(t, config.DNSRegistry{Timeout: time.Minute}, srv)
	count := func(name string) int {
		got, err := once(t, s, name)
		if err != nil {
			t.Fatal(err)
		}
		return len(strings.Fields(got))
	}
	if n := count("many.test:80"); n != 300 || srv.times("many.test. A") != 2 {
		t.Errorf("%d addresses, asked %d times", n, srv.times("many.test. A"))
	}
	if n := count("few.test:80"); n != 40 || srv.times("few.test. A") != 1 {
		t.Errorf("%d addresses, asked %d times", n, srv.times("few.test. A"))
	}
	srv.change(func() { srv.noEDNS = true })
	if n := count("few.test:80"); n != 40 {
		t.Errorf("without EDNS0: %d addresses", n)
	}
}

func TestSRV(t *testing.T) {
	srv := serve(t, "")
	srv.set("_http._tcp.s.test. SRV",
		"_http._tcp.s.test. 60 SRV 10 5 8080 a.test.", "_http._tcp.s.test. 60 SRV 10 0 8081 B.test.",
		"_http._tcp.s.test. 60 SRV 20 9 8082 c.test.", "_http._tcp.s.test. 60 SRV 10 1 0 a.test.")
	srv.set("_http._tcp.s.test. EXTRA", "a.test. 60 A 10.0.0.1")
	srv.set("b.test. A", "b.test. 11 A 10.0.0.2", "b.test. 11 A 10.0.0.3")
	srv.set("c.test. A", "c.test. 60 A 10.0.0.4")
	srv.set("down._tcp.test. SRV", "down._tcp.test. 60 SRV 0 0 1 .")
	srv.set("next._tcp.test. SRV", "next._tcp.test. 60 SRV 0 0 1 absent.test.", "next._tcp.test. 60 SRV 1 0 2 c.test.")
	srv.set("plain.test. A", "plain.test. 60 A 10.0.0.9")
	s := source(t, quick(), srv)
	for name, want := range map[string]string{
		"_http._tcp.s.test":     "10.0.0.1:8080*5 10.0.0.2:8081 10.0.0.3:8081",
		"srv:_http._tcp.s.test": "10.0.0.1:8080*5 10.0.0.2:8081 10.0.0.3:8081",
		"next._tcp.test":        "10.0.0.4:2",
		"plain.test":            "10.0.0.9:80",
		"plain.test:8080":       "10.0.0.9:8080",
	} {
		if got, err := once(t, s, name); got != want {
			t.Errorf("%s: %q %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"srv:down._tcp.test", "srv:plain.test", "srv:absent.test"} {
		if got, err := once(t, s, name); !errors.Is(err, errGone) {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	tg, _ := parseTarget("_http._tcp.s.test")
	res := s.lookup(t.Context(), tg, nil)
	if res.ttl != 11*time.Second {
		t.Errorf("TTL %s", res.ttl)
	}
	// A target that cannot be found out now counts as before; with no before, the whole is a failure.
	srv.fail("b.test.", mdns.RcodeServerFailure)
	if got := s.lookup(t.Context(), tg, res.hosts); show(got.endpoints) != show(res.endpoints) {
		t.Errorf("with a failing target: %q %v", show(got.endpoints), got.err)
	}
	if got := s.lookup(t.Context(), tg, nil); got.err == nil || errors.Is(got.err, errGone) {
		t.Errorf("with a failing target never known: %q %v", show(got.endpoints), got.err)
	}
}

func TestChangeAfterTTL(t *testing.T) {
	srv := serve(t, "")
	srv.set("a.test. A", "a.test. 1 A 10.0.0.1")
	s := source(t, config.DNSRegistry{MinTTL: time.Millisecond}, srv)
	began := time.Now()
	r := start(t, s, "a.test:80")
	r.untilSet("10.0.0.1:80")
	srv.set("a.test. A", "a.test. 1 A 10.0.0.2")
	r.untilSet("10.0.0.2:80")
	d := time.Since(began)
	if d < 900*time.Millisecond {
		t.Errorf("asked again after %s, the TTL is 1 s", d)
	}
	if n := srv.times("a.test. A"); n < 2 || n > 1+int(d/(900*time.Millisecond)) {
		t.Errorf("asked %d times in %s", n, d)
	}
}

func TestDeniedAfterGood(t *testing.T) {
	srv := serve(t, "")
	srv.set("a.test. A", "a.test. 0 A 10.0.0.1")
	s := source(t, quick(), srv)
	r := start(t, s, "a.test:80")
	r.untilSet("10.0.0.1:80")
	began := time.Now()
	srv.fail("a.test.", mdns.RcodeNameError)
	r.untilError("no such name") // first a failure: the last good set stays
	r.untilSet("")               // then it is believed
	if d := time.Since(began); d < s.gone {
		t.Errorf("believed after %s", d)
	}
	srv.change(func() { delete(srv.rcodes, "a.test.") })
	r.untilSet("10.0.0.1:80")
	srv.fail("a.test.", mdns.RcodeServerFailure)
	for range 6 { // never believed, however long
		r.untilError("SERVFAIL")
	}
}

func TestNeverKnown(t *testing.T) {
	srv := serve(t, "")
	r := start(t, source(t, quick(), srv), "a.test:80", "bad name:x")
	r.untilError("the port must be")
	for range goneTimes + 2 {
		r.untilError("no such name")
	}
	srv.set("a.test. A", "a.test. 0 A 10.0.0.1")
	r.untilSet("10.0.0.1:80")
}

func TestServerDownAndBack(t *testing.T) {
	srv := serve(t, "")
	srv.set("a.test. A", "a.test. 0 A 10.0.0.1")
	r := start(t, source(t, quick(), srv), "a.test:80")
	r.untilSet("10.0.0.1:80")
	srv.change(func() { srv.silent = true })
	r.untilError("no answer in time")
	srv.change(func() { srv.silent = false })
	r.untilSet("10.0.0.1:80")
	srv.stop()
	r.untilError("server " + srv.addr)
	srv.set("a.test. A", "a.test. 0 A 10.0.0.2")
	srv.listen(srv.addr)
	r.untilSet("10.0.0.2:80")
}

func TestSecondServer(t *testing.T) {
	dead, srv := serve(t, ""), serve(t, "")
	dead.fail("a.test.", mdns.RcodeRefused)
	srv.set("a.test. A", "a.test. 0 A 10.0.0.1")
	s := source(t, quick(), dead, srv)
	for range 3 {
		if got, err := once(t, s, "a.test:80"); got != "10.0.0.1:80" {
			t.Errorf("%q %v", got, err)
		}
	}
	if n := dead.times("a.test. A"); n != 1 {
		t.Errorf("the server that refuses was asked %d times", n)
	}
}

// A thousand names: at most so many questions at once, each name once.
func TestNoStorm(t *testing.T) {
	srv := serve(t, "")
	var names []string
	for i := range 1000 {
		name := fmt.Sprintf("n%03d.test", i)
		srv.set(name+". A", name+". 3600 A 10.0.0.1")
		names = append(names, name+":80")
	}
	hold := make(chan struct{})
	srv.change(func() { srv.hold = hold })
	r := start(t, source(t, config.DNSRegistry{Timeout: time.Minute}, srv), names...)
	for range names {
		go func() { hold <- struct{}{} }()
	}
	seen := make(map[string]bool)
	for len(seen) < len(names) {
		r.until("all names", func(u discovery.Update) bool { seen[u.Service] = u.Err == nil; return true })
	}
	srv.change(func() {
		if len(srv.asked) != len(names) || srv.most > parallel {
			t.Errorf("%d questions, %d at once", len(srv.asked), srv.most)
		}
	})
}

func TestWantChanges(t *testing.T) {
	srv := serve(t, "")
	srv.set("a.test. A", "a.test. 0 A 10.0.0.1")
	srv.set("b.test. A", "b.test. 0 A 10.0.0.2")
	r := start(t, source(t, quick(), srv), "a.test:80")
	r.untilSet("10.0.0.1:80")
	r.want <- []string{"b.test:80"}
	r.untilSet("10.0.0.2:80")
	for range 5 {
		r.until("b alone", func(u discovery.Update) bool {
			if u.Service == "a.test:80" {
				t.Error("a is still looked up")
			}
			return true
		})
	}
}

// Stopping does not wait for a name server.
func TestStopWhileAsking(t *testing.T) {
	srv := serve(t, "")
	srv.change(func() { srv.silent = true })
	s := source(t, config.DNSRegistry{Timeout: time.Minute}, srv)
	began := time.Now()
	t.Run("run", func(t *testing.T) { start(t, s, "a.test:80") })
	if d := time.Since(began); d > deadline {
		t.Errorf("stopped after %s", d)
	}
	if _, err := New(&config.Registry{File: &config.FileRegistry{Path: "x"}}); err == nil {
		t.Error("a file registry was taken")
	}
}
