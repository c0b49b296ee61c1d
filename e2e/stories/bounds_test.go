package stories

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// TestReloadsLeaveNothing: after many reloads, which change everything that a reload can, as many goroutines, descriptors
// and bytes are in use as after a few.
func TestReloadsLeaveNothing(t *testing.T) {
	origin := sidecartest.Answer(t, sidecartest.OK("ok"))
	document := func(i int) string {
		return fmt.Sprintf(quiet+`
services:
  svc: {endpoints: [%q, "127.0.0.1:%d"], policy: {timeout: %ds, retry: 1}, routes: [{name: n%d, match: /%d/*, respond: {status: 204}}]}
  port: {protocol: tcp, listen: %q, endpoints: [%q]}
  s%d: {endpoints: ["127.0.0.1:%d"], policy: {outlier: {consecutive_failures: %d}}}
`, origin.Address, 1+i%50, 1+i%9, i, i, sidecartest.FreeAddress(t), origin.Address, i, 1+i%50, 1+i%5)
	}
	p := sidecartest.Run(t, "%s", document(0))
	c := sidecartest.Dial(t, p.Outbound)
	reload := func(from, to int) {
		for i := from; i < to; i++ {
			p.Reload(t, "%s", document(i))
			if m := c.Ask(t, "GET /x HTTP/1.1\r\nHost: svc\r\n\r\n"); m.Status() != 200 {
				t.Fatalf("%+v", m)
			}
		}
	}
	few, many := times(10, 100), times(40, 1000)
	reload(1, few)
	goroutines, files, kB := p.Metric(t, "go_goroutines"), p.OpenFiles(t), p.ResidentKB(t)
	reload(few, many)
	sidecartest.Eventually(t, 10*time.Second, "no more goroutines and descriptors than before", func() bool {
		return p.Metric(t, "go_goroutines") <= goroutines+5 && p.OpenFiles(t) <= files+5
	})
	if now := p.ResidentKB(t); now > kB+kB/2+8<<10 {
		t.Errorf("resident memory grew from %d to %d kB", kB, now)
	}
	t.Logf("goroutines %v, now %v; descriptors %d, now %d; memory %d kB, now %d", goroutines, p.Metric(t, "go_goroutines"), files, p.OpenFiles(t), kB, p.ResidentKB(t))
}

// TestIdleConnections: thousands of connections that say nothing, or half a head, cost a bounded amount each, and nobody
// else notices them.
func TestIdleConnections(t *testing.T) {
	origin := sidecartest.Answer(t, sidecartest.OK("ok"))
	n := times(2000, 10_000)
	p := sidecartest.Run(t, quiet+"limits: {connections: 12000, header_timeout: 1m}\nservices: {svc: {endpoints: [%q]}}", origin.Address)
	before := p.ResidentKB(t)
	var list []*sidecartest.Conn
	for i := range n {
		c := sidecartest.Dial(t, p.Outbound)
		switch i % 3 {
		case 1:
			_ = c.Send("GET / HTTP/1.1\r\nHost: s")
		case 2:
			c.Ask(t, "GET / HTTP/1.1\r\nHost: svc\r\n\r\n")
		}
		list = append(list, c)
	}
	sidecartest.Eventually(t, 20*time.Second, "all are open", func() bool {
		return p.Metric(t, "sidecar_downstream_connections_open") == float64(n)
	})
	each := (p.ResidentKB(t) - before) * 1024 / n
	t.Logf("%d connections take %d octets each", n, each)
	if each > 32<<10 {
		t.Errorf("a connection takes %d octets", each)
	}
	l := sidecartest.Steady(t, sidecartest.Call{Address: p.Outbound, Host: "svc", Path: "/", Callers: 2, Pause: time.Millisecond})
	more(t, l, 200)
	none(t, l, 200)
	for _, c := range list {
		_ = c.Close()
	}
	sidecartest.Eventually(t, 20*time.Second, "all are given up", func() bool {
		return p.Metric(t, "sidecar_downstream_connections_open") == 0
	})
	if m := sidecartest.Dial(t, p.Outbound).Ask(t, "GET / HTTP/1.1\r\nHost: svc\r\n\r\n"); m.Status() != 200 {
		t.Errorf("%+v", m)
	}
}

// TestSlowHeads: heads that never end, fed octet by octet, meet their time-out however busy they look.
func TestSlowHeads(t *testing.T) {
	origin := sidecartest.Answer(t, sidecartest.OK("ok"))
	p := sidecartest.Run(t, quiet+"limits: {header_timeout: 1s}\nservices: {svc: {endpoints: [%q]}}", origin.Address)
	l := sidecartest.Steady(t, sidecartest.Call{Address: p.Outbound, Host: "svc", Path: "/", Callers: 2, Pause: time.Millisecond})
	const clients = 20
	ends := make(chan string, clients)
	start := time.Now()
	for range clients {
		c := sidecartest.Dial(t, p.Outbound)
		go func() { // 20 clients, 1000 octets a second each
			_ = c.Send("GET / HTTP/1.1\r\nHost: svc\r\nX: ")
			for c.Send("xxxxxxxxxx") == nil {
				<-time.After(10 * time.Millisecond)
			}
		}()
		go func() {
			m, err := c.Response("GET")
			if err != nil {
				ends <- err.Error()
				return
			}
			ends <- m.Start
			_ = c.Close()
		}()
	}
	for range clients {
		if end := <-ends; !strings.HasPrefix(end, "HTTP/1.1 408 ") {
			t.Errorf("a slow client was told %q", end)
		}
	}
	if took := time.Since(start); took < time.Second || took > 8*time.Second {
		t.Errorf("it took %v", took)
	}
	if origin.Requests() == 0 {
		t.Error("nobody else was served")
	}
	none(t, l, 100)
}

// TestHugeChunks: chunks of any size, from both sides, take a bounded amount of memory, also when the other side does not
// read; others are not affected.
func TestHugeChunks(t *testing.T) {
	const clients = 8
	size := times(32, 512) << 20
	piece := strings.Repeat("x", 1<<20)
	read := make(chan struct{})
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		m, err := c.Head()
		if err != nil {
			return
		}
		if m.Target() == "/up" {
			<-read // nothing until then
			if line, err := c.R.ReadString('\n'); err != nil || len(line) < 3 {
				return
			}
			got, _ := io.CopyN(io.Discard, c.R, int64(size))
			_ = c.Send("%s", sidecartest.Reply(200, fmt.Sprint(got), "Connection: close"))
			return
		}
		_ = c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", size)
		for range size >> 20 {
			if c.Send("%s", piece) != nil {
				return
			}
		}
		_ = c.Send("\r\n0\r\n\r\n")
	})
	small := sidecartest.Answer(t, sidecartest.OK("ok"))
	p := sidecartest.Run(t, quiet+"services: {big: {endpoints: [%q], policy: {timeout: 1m}}, small: {endpoints: [%q]}}", origin.Address, small.Address)
	before := p.ResidentKB(t)
	l := sidecartest.Steady(t, sidecartest.Call{Address: p.Outbound, Host: "small", Path: "/", Callers: 2, Pause: time.Millisecond})
	var downs []*sidecartest.Conn
	for range clients {
		down := sidecartest.Dial(t, p.Outbound)
		_ = down.SetDeadline(time.Now().Add(2 * time.Minute))
		_ = down.Send("GET /down HTTP/1.1\r\nHost: big\r\n\r\n")
		if m, err := down.Head(); err != nil || !m.Has("transfer-encoding") {
			t.Fatalf("%+v %v", m, err)
		}
		downs = append(downs, down)
	}
	up := sidecartest.Dial(t, p.Outbound)
	_ = up.SetDeadline(time.Now().Add(2 * time.Minute))
	go func() {
		_ = up.Send("POST /up HTTP/1.1\r\nHost: big\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", size)
		for range size >> 20 {
			if up.Send("%s", piece) != nil {
				return
			}
		}
		_ = up.Send("\r\n0\r\n\r\n")
	}()
	more(t, l, 500) // meanwhile nobody reads
	if now := p.ResidentKB(t); now > before+20<<10 {
		t.Errorf("with streams that nobody reads memory grew from %d to %d kB", before, now)
	}
	close(read)
	for i, c := range downs[:2] {
		body := 0
		for {
			line, err := c.R.ReadString('\n')
			var n int
			if _, scan := fmt.Sscanf(line, "%x", &n); err != nil || scan != nil {
				t.Fatalf("stream %d: chunk size %q %v", i, line, err)
			}
			if n == 0 {
				break
			}
			m, err := io.CopyN(io.Discard, c.R, int64(n))
			if err != nil {
				t.Fatalf("stream %d: %v", i, err)
			}
			body += int(m)
			_, _ = c.R.ReadString('\n')
		}
		if body != size {
			t.Errorf("stream %d: %d octets", i, body)
		}
	}
	if m := up.Answer(t, "POST"); m.Status() != 200 || string(m.Body) != fmt.Sprint(size) {
		t.Errorf("%s %s", m.Start, m.Body)
	}
	if now := p.ResidentKB(t); now > before+40<<10 {
		t.Errorf("memory grew from %d to %d kB", before, now)
	}
	none(t, l, 500)
	runtime.KeepAlive(downs)
}
