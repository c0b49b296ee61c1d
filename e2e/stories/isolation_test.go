package stories

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// patience bounds each wait.
const patience = 20 * time.Second

// stalling is an HTTP/2 origin that does not read what is sent to /large until release is closed, so that the windows of the
// connection it came on fill up. It answers everything else at once.
func stalling(t *testing.T, release chan struct{}) (address string, large *atomic.Int32) {
	t.Helper()
	large = new(atomic.Int32)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{
		Protocols: protocols, ReadHeaderTimeout: patience,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/large" {
				large.Add(1)
				<-release
			}
			_, _ = io.Copy(io.Discard, r.Body) // a caller that left needs no answer
		}),
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String(), large
}

// TestLinksIsolateLargeCalls: calls of 20 MB that stall do not hold up those of 1 KB, once they have connections of their own
// (S-184, S-185). Without links they do, since both wait for one window.
func TestLinksIsolateLargeCalls(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, links string
		served      bool
	}{
		{"one connection for all", "", false},
		{"apart by size", "links: [{name: large, match: {size_over: 1MB}}]", true},
		{"apart by route", "links: [{name: large, match: {route: [upload]}}]", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			address, large := stalling(t, release)
			p := sidecartest.Run(t, quiet+`
services:
  media:
    protocol: http2
    endpoints: [%q]
    policy: {timeout: 60s, breaker: none, outlier: none}
    routes: [{name: upload, match: /large}, {name: rest, match: {path: {prefix: /}}, policy: {timeout: 2s}}]
    %s
`, address, row.links)
			ended, body := make(chan error, 1), &zeros{left: 20 << 20}
			go func() { ended <- upload(p.Outbound, body) }()
			sidecartest.Eventually(t, patience, "the large call is there", func() bool { return large.Load() == 1 })
			// Its windows are full when no more of it is taken for a while.
			was, still := int64(0), 0
			sidecartest.Eventually(t, patience, "the large call stalls", func() bool {
				now := body.read.Load()
				if still++; now != was {
					was, still = now, 0
				}
				return still == 20
			})
			good := 0
			for range 5 {
				c := sidecartest.Dial(t, p.Outbound)
				if m := c.Ask(t, "POST /small HTTP/1.1\r\nHost: media\r\nContent-Length: 1024\r\n\r\n%s", strings.Repeat("x", 1024)); m.Status() == 200 {
					good++
				}
			}
			if served := good == 5; served != row.served {
				t.Errorf("%d of 5 small calls were served", good)
			}
			close(release)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// upload sends a large body and wants it answered.
func upload(proxy string, body *zeros) error {
	size := body.left
	q, err := http.NewRequest(http.MethodPost, "http://"+proxy+"/large", body)
	if err != nil {
		return err
	}
	q.Host, q.ContentLength = "media", size
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("the large call was answered %s", r.Status)
	}
	return nil
}

// zeros is a body that says how much of it was taken.
type zeros struct {
	left int64
	read atomic.Int64
	wait time.Duration // before each piece, which stands for a network of a certain width
}

// Read implements io.Reader.
func (z *zeros) Read(p []byte) (int, error) {
	n := min(int64(len(p)), z.left)
	if n == 0 {
		return 0, io.EOF
	}
	if z.wait > 0 {
		<-time.After(z.wait)
	}
	clear(p[:n])
	z.left -= n
	z.read.Add(n)
	return int(n), nil
}

// TestBulkheads: service three blocks the bulkhead that it shares with two others: those wait, and what waits too long is
// never sent. The core service, which has bounds of its own, goes on (S-186, S-187).
func TestBulkheads(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	blocked := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		if _, err := c.Request(); err == nil {
			<-release
			_ = c.Send("%s", sidecartest.Reply(200, "late"))
		}
	})
	one, core := sidecartest.Answer(t, sidecartest.OK("one")), sidecartest.Answer(t, sidecartest.OK("core"))
	p := sidecartest.Run(t, quiet+`
bulkheads: {rest: {in_flight: 4, waiting: 2, wait: 200ms}}
defaults: {timeout: 30s, limit: {bulkhead: rest}}
services:
  three: {endpoints: [%q]}
  one: {endpoints: [%q]}
  core: {critical: true, endpoints: [%q], policy: {limit: {bulkhead: own, in_flight: 50}}}
`, blocked.Address, one.Address, core.Address)
	for range 4 {
		c := sidecartest.Dial(t, p.Outbound)
		if err := c.Send("GET / HTTP/1.1\r\nHost: three\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	sidecartest.Eventually(t, patience, "service three has all places", func() bool { return blocked.Requests() == 4 || blocked.Accepted() == 4 })
	m := sidecartest.Dial(t, p.Outbound).Ask(t, "GET / HTTP/1.1\r\nHost: one\r\n\r\n")
	if m.Status() != 503 || m.Get("x-sidecar-reason") != "overloaded" || !strings.Contains(string(m.Body), "bulkhead.wait was reached") {
		t.Errorf("service one: %d %s %s", m.Status(), m.Get("x-sidecar-reason"), m.Body)
	}
	c := sidecartest.Dial(t, p.Outbound)
	for range 20 {
		if m := c.Ask(t, "GET / HTTP/1.1\r\nHost: core\r\n\r\n"); m.Status() != 200 {
			t.Fatalf("the core service: %d", m.Status())
		}
	}
	close(release)
	sidecartest.Eventually(t, patience, "service one is served again", func() bool {
		return sidecartest.Dial(t, p.Outbound).Ask(t, "GET / HTTP/1.1\r\nHost: one\r\n\r\n").Status() == 200
	})
	if got := p.Metric(t, "sidecar_limit_refusals_total", "service", "one", "limit", "bulkhead.wait"); got < 1 {
		t.Errorf("refusals: %v", got)
	}
	if n := one.Requests(); n != 1 {
		t.Errorf("service one was asked %d times: an expired call was sent", n)
	}
}

// TestTCPCaps: a dependency behind a TCP service has a bound on connections; one too many is refused, not queued for ever
// (S-188).
func TestTCPCaps(t *testing.T) {
	t.Parallel()
	cache := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		for {
			b := make([]byte, 1)
			if _, err := c.Read(b); err != nil {
				return
			}
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	port := sidecartest.FreeAddress(t)
	p := sidecartest.Run(t, quiet+`
services:
  cache: {protocol: tcp, listen: %q, endpoints: [%q], policy: {limit: {in_flight: 2, waiting: 0}}}
`, port, cache.Address)
	echo := func(c net.Conn) error {
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := c.Read(make([]byte, 1))
		return err
	}
	another := func() error { // a refusal may already reset the dial
		c, err := net.DialTimeout("tcp", port, patience)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		return echo(c)
	}
	a, b := sidecartest.Dial(t, port), sidecartest.Dial(t, port)
	for _, c := range []*sidecartest.Conn{a, b} {
		if err := echo(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := another(); err == nil {
		t.Error("a third connection was served")
	}
	sidecartest.Eventually(t, patience, "the refusal is counted", func() bool {
		return p.Metric(t, "sidecar_limit_refusals_total", "service", "cache", "limit", "limit.in_flight") == 1
	})
	_ = a.Close()
	sidecartest.Eventually(t, patience, "a place is free again", func() bool { return another() == nil })
}

// TestLinksKeepP99: beside calls of 20 MB the P99 of calls of 1 KB stays within 1.3 times of what it is alone, when they have
// links of their own (S-184). The large ones come over a network of about 20 MB/s, so that connections are shared or not, and not
// just the processor. Both take turns of a second, and the lower quartile of the turns counts, as what other programs do to a P99
// only adds. Only the long version compares; the benchmark's row links says how much of it is the proxy's.
func TestLinksKeepP99(t *testing.T) {
	if !long() {
		t.Skip("a measurement; SIDECAR_SOAK=1 makes it")
	}
	release := make(chan struct{})
	close(release)
	address, _ := stalling(t, release)
	p := sidecartest.Run(t, quiet+`
services:
  media: {protocol: http2, endpoints: [%q], links: [{name: large, match: {size_over: 1MB}}], policy: {timeout: 60s}}
`, address)
	small := func() time.Duration {
		load := sidecartest.Steady(t, sidecartest.Call{
			Address: p.Outbound, Host: "media", Path: "/small", Method: "POST", Body: strings.Repeat("x", 1024), Callers: 4,
		})
		<-time.After(time.Second)
		load.Stop()
		return load.Quantile(0.99)
	}
	small()
	const turns = 12
	var alone, beside []time.Duration
	for range turns {
		alone = append(alone, small())
		body, ended := &zeros{left: 20 << 20, wait: 1500 * time.Microsecond}, make(chan error, 1)
		go func() { ended <- upload(p.Outbound, body) }()
		sidecartest.Eventually(t, patience, "the large call is on its way", func() bool { return body.read.Load() > 0 })
		beside = append(beside, small())
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(alone)
	slices.Sort(beside)
	a, b := alone[turns/4], beside[turns/4]
	t.Logf("P99 of 1 KB: alone %v, beside 20 MB %v", a, b)
	if b > a+a*3/10 {
		t.Errorf("P99 of 1 KB: alone %v, beside 20 MB %v", alone, beside)
	}
}
