package reported

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// TestReported097_ServerSpeaksFirst: a server that greets before its client says anything, on a port whose protocol is to
// be found out, is not kept waiting; HTTP on the same port still is HTTP.
func TestReported097_ServerSpeaksFirst(t *testing.T) {
	app := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		_ = c.Send("5.7.1-server\n")
		_, _ = io.Copy(c, c.R)
	})
	p := sidecartest.Run(t, "node: {service: shop}\ninbound: [{service: shop, app: %q, protocol: auto}]", app.Address)
	for range 3 {
		c := sidecartest.Dial(t, p.Inbound)
		start := time.Now()
		c.Expect(t, "5.7.1-server\n")
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("the greeting took %v", took)
		}
		_ = c.Send("login")
		c.Expect(t, "login")
		_ = c.CloseWrite()
		c.Closed(t, 15*time.Second)
	}
}

// TestReported097_SilentConnectionsAreNotKept: connections on which nobody ever speaks end by their idle bound and leave
// nothing behind.
func TestReported097_SilentConnectionsAreNotKept(t *testing.T) {
	app := sidecartest.Serve(t, func(c *sidecartest.Conn) { _, _ = io.Copy(io.Discard, c.R) })
	p := sidecartest.Run(t, "node: {service: shop}\ninbound: [{service: shop, app: %q, protocol: auto, policy: {idle_timeout: 500ms}}]", app.Address)
	before := p.OpenFiles(t)
	const silent = 100
	var list []*sidecartest.Conn
	for range silent {
		list = append(list, sidecartest.Dial(t, p.Inbound))
	}
	sidecartest.Eventually(t, 20*time.Second, "the app sees the connections", func() bool { return app.Accepted() == silent })
	for i, c := range list {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.R.ReadByte(); err == nil || fmt.Sprint(err) == "i/o timeout" {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	const own = 5 // that the process may have opened for itself meanwhile
	sidecartest.Eventually(t, 20*time.Second, "all descriptors are given back", func() bool { return p.OpenFiles(t) <= before+own })
}

// TestReported097_HTTPOnAutoPort: the protocol is found out from the first octets, however they are cut.
func TestReported097_HTTPOnAutoPort(t *testing.T) {
	app := sidecartest.Answer(t, sidecartest.OK("ok"))
	p := sidecartest.Run(t, "node: {service: shop}\ninbound: [{service: shop, app: %q, protocol: auto}]", app.Address)
	for cut := 1; cut < 8; cut++ {
		c := sidecartest.Dial(t, p.Inbound)
		const request = "GET /x HTTP/1.1\r\nHost: shop\r\n\r\n"
		_ = c.Send("%s", request[:cut])
		<-time.After(20 * time.Millisecond) // so that it goes out as a piece of its own
		if m := c.Ask(t, "%s", request[cut:]); m.Status() != 200 {
			t.Errorf("cut at %d: %+v", cut, m)
		}
		if r := p.Record(t, "/x"); r.Status != 200 || r.Protocol != "HTTP/1.1" {
			t.Errorf("logged as %+v", r)
		}
	}
}
