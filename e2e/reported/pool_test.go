package reported

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

const get = "GET /%s HTTP/1.1\r\nHost: svc\r\n\r\n"

// TestReported001_IdleCloseRace: a server ends a kept-alive connection just as the next request is on its way to it. The
// request is replayed on a fresh connection, without any retry policy; a connection's first request is not.
func TestReported001_IdleCloseRace(t *testing.T) {
	var seen atomic.Int64
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		for n := 0; ; n++ {
			if _, err := c.Request(); err != nil {
				return
			}
			if seen.Add(1); n == 2 { // the third request of each connection meets the close
				return
			}
			_ = c.Send("%s", sidecartest.Reply(200, "ok"))
		}
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	const calls = 21
	for i := range calls {
		if m := c.Ask(t, get, fmt.Sprint(i)); m.Status() != 200 {
			t.Fatalf("request %d: %s %s", i, m.Start, m.Body)
		}
	}
	// Each connection answers two requests and drops the third, which is the first one of the next connection.
	if n, seen := origin.Accepted(), seen.Load(); n != (calls+1)/2 || seen != calls+int64(n)-1 {
		t.Errorf("%d calls came as %d requests on %d connections", calls, seen, n)
	}
}

// TestReported001_FirstUseIsNotReplayed: a server that closes on the first request of a connection has seen it.
func TestReported001_FirstUseIsNotReplayed(t *testing.T) {
	origin := sidecartest.Answer(t, func(*sidecartest.Message) string { return "" })
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	m := sidecartest.Dial(t, p.Outbound).Ask(t, get, "")
	if m.Status() != 502 || m.Get("x-sidecar-reason") != "upstream_reset" {
		t.Errorf("%s, reason %q", m.Start, m.Get("x-sidecar-reason"))
	}
	if origin.Requests() != 1 {
		t.Errorf("the server saw %d requests", origin.Requests())
	}
}

// TestReported001_Node: an Express-like server in Node, whose idle connections end at once, called by many clients at
// just that pace.
func TestReported001_Node(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("needs node")
	}
	address := sidecartest.FreeAddress(t)
	host, port, _ := strings.Cut(address, ":")
	sidecartest.Command(t, address, node, "-e", fmt.Sprintf(`
const s = require('http').createServer((q, r) => r.end('ok'));
s.keepAliveTimeout = 20; if ('keepAliveTimeoutBuffer' in s) s.keepAliveTimeoutBuffer = 0;
s.listen(%s, %q);`, port, host))
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q], policy: {outlier: none, breaker: none}}}`, address)
	const clients, calls = 20, 60
	var bad atomic.Int64
	var wg sync.WaitGroup
	for i := range clients {
		c := sidecartest.Dial(t, p.Outbound)
		wg.Go(func() {
			for n := range calls {
				_ = c.Send(get, "")
				if m, err := c.Response("GET"); err != nil || m.Status() != 200 {
					bad.Add(1)
					return
				}
				// Between 16 and 24 ms: before, at and behind the server's close.
				<-time.After(16*time.Millisecond + time.Duration((i+n)%17)*500*time.Microsecond)
			}
		})
	}
	wg.Wait()
	if bad.Load() > 0 {
		t.Errorf("%d of %d clients were given an error", bad.Load(), clients)
	}
}

// TestReported002_ClosedIdleConnection: a server ends its side of an idle connection and keeps the socket. The connection
// is given up at once, so that the next request, whatever its method, goes elsewhere.
func TestReported002_ClosedIdleConnection(t *testing.T) {
	halfClosed := make(chan struct{})
	evicted := make(chan struct{})
	var first atomic.Bool
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		if _, err := c.Request(); err != nil {
			return
		}
		_ = c.Send("%s", sidecartest.Reply(200, "ok"))
		if first.Swap(true) {
			return
		}
		_ = c.CloseWrite()
		close(halfClosed)
		if rest, _ := io.ReadAll(c.R); len(rest) > 0 {
			t.Errorf("on the closed connection came %q", rest)
		}
		close(evicted)
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	c.Ask(t, get, "one")
	<-halfClosed
	select {
	case <-evicted:
	case <-time.After(5 * time.Second):
		t.Fatal("the connection is still open after 5 s")
	}
	// A POST may not be replayed: it must not meet the dead connection at all.
	if m := c.Ask(t, "POST /two HTTP/1.1\r\nHost: svc\r\nContent-Length: 1\r\n\r\nx"); m.Status() != 200 {
		t.Errorf("%s %s", m.Start, m.Body)
	}
	if origin.Accepted() != 2 {
		t.Errorf("%d connections", origin.Accepted())
	}
}

// TestReported004_HTTP10IsNotPooled: a response of HTTP/1.0 without keep-alive ends its connection, whatever its length
// says and even if the server is slow to close.
func TestReported004_HTTP10IsNotPooled(t *testing.T) {
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		if _, err := c.Request(); err != nil {
			return
		}
		_ = c.Send("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")
		if rest, _ := io.ReadAll(c.R); len(rest) > 0 { // until the proxy closes
			t.Errorf("a second request came: %q", rest)
		}
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	const clients, calls = 8, 10
	var wg sync.WaitGroup
	for range clients {
		c := sidecartest.Dial(t, p.Outbound)
		wg.Go(func() {
			for range calls {
				_ = c.Send(get, "")
				if m, err := c.Response("GET"); err != nil || m.Status() != 200 || string(m.Body) != "ok" {
					t.Errorf("%+v %v", m, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if origin.Accepted() != clients*calls {
		t.Errorf("%d connections for %d requests", origin.Accepted(), clients*calls)
	}
}

// TestReported004_PythonHTTP10: the same with the server that many such apps are built on.
func TestReported004_PythonHTTP10(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("needs python3: make setup")
	}
	address := sidecartest.FreeAddress(t)
	host, port, _ := strings.Cut(address, ":")
	sidecartest.Command(t, address, python, "-m", "http.server", "--bind", host, "--directory", t.TempDir(), port)
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, address)
	var wg sync.WaitGroup
	for range 4 {
		c := sidecartest.Dial(t, p.Outbound)
		wg.Go(func() {
			for range 10 {
				_ = c.Send(get, "")
				if m, err := c.Response("GET"); err != nil || m.Status() != 200 {
					t.Errorf("%+v %v", m, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestReported005_ConnectionClose: a prober that asks for the end of the connection gets it, and the server does not.
func TestReported005_ConnectionClose(t *testing.T) {
	origin := sidecartest.Answer(t, func(m *sidecartest.Message) string {
		if m.Has("connection") {
			t.Errorf("the server was told %q", m.Get("connection"))
		}
		return sidecartest.Reply(200, "ok")
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	for range 2 {
		c := sidecartest.Dial(t, p.Outbound)
		m := c.Ask(t, "GET / HTTP/1.1\r\nHost: svc\r\nConnection: close\r\n\r\n")
		if m.Status() != 200 || !strings.EqualFold(m.Get("connection"), "close") {
			t.Errorf("%s, Connection: %q", m.Start, m.Get("connection"))
		}
		c.Closed(t, 15*time.Second)
	}
	if origin.Accepted() != 1 {
		t.Errorf("the server got %d connections", origin.Accepted())
	}
}

// TestReported006_EarlyAnswerWithoutReadingBody: a server answers from the head alone and closes, which resets the upload.
func TestReported006_EarlyAnswerWithoutReadingBody(t *testing.T) {
	const size = 2 << 20
	for _, status := range []int{404, 200} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
				if _, err := c.Head(); err == nil {
					_ = c.Send("%s", sidecartest.Reply(status, "early", "Connection: close"))
				}
			})
			p := sidecartest.Run(t, `services: {svc: {endpoints: [%q], policy: {outlier: none, breaker: none}}}`, origin.Address)
			body := bytes.Repeat([]byte("x"), size)
			for i := range 20 {
				c := sidecartest.Dial(t, p.Outbound)
				_ = c.Send("%s / HTTP/1.1\r\nHost: svc\r\nContent-Length: %d\r\n\r\n", []string{"PUT", "POST"}[i%2], size)
				go func() { _, _ = c.Write(body) }()
				m, err := c.Response("POST")
				if err != nil || m.Status() != status || string(m.Body) != "early" {
					t.Fatalf("upload %d: %+v %v", i, m, err)
				}
			}
			if origin.Accepted() != 20 {
				t.Errorf("%d connections for 20 uploads", origin.Accepted())
			}
		})
	}
}

// TestReported007_Early413: a large upload is turned down while it flows. The client, which reads only when it has sent
// all it could, gets the 413 and no reset.
func TestReported007_Early413(t *testing.T) {
	const size = 28 << 20
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		if _, err := c.Head(); err != nil {
			return
		}
		_ = c.Send("HTTP/1.1 100 Continue\r\n\r\n")
		_, _ = io.CopyN(io.Discard, c.R, 1<<20)
		_ = c.Send("%s", sidecartest.Reply(413, "too large", "Connection: close"))
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	_ = c.Send("POST / HTTP/1.1\r\nHost: svc\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", size)
	if m, err := c.Response("POST"); err != nil || m.Status() != 100 {
		t.Fatalf("%+v %v", m, err)
	}
	go func() {
		chunk := make([]byte, 1<<16)
		for sent := 0; sent < size; sent += len(chunk) {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	}()
	if m, err := c.Response("POST"); err != nil || m.Status() != 413 || string(m.Body) != "too large" {
		t.Fatalf("%+v %v", m, err)
	}
}

// TestReported007_CurlEarly413: the same with curl, which says what it thinks of how the connection ends.
func TestReported007_CurlEarly413(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatal("needs curl: make setup")
	}
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		if _, err := c.Head(); err == nil {
			_ = c.Send("%s", sidecartest.Reply(413, "too large", "Connection: close"))
		}
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	upload := exec.CommandContext(t.Context(), curl, "-sS", "--max-time", "20", "-o", "/dev/null", "-w", "%{http_code}",
		"-H", "Host: svc", "-H", "Expect: 100-continue", "--data-binary", "@-", "http://"+p.Outbound+"/")
	upload.Stdin = io.LimitReader(zeros{}, 28<<20)
	out, err := upload.CombinedOutput()
	if string(out) != "413" || err != nil {
		t.Errorf("curl: %v, %q", err, out)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestReported009_PostOnIdleCloseRace: requests that must not be sent twice, against a server that ends idle connections
// quickly. Go's own client gives them up; here none of them meets a connection that is known to be closed, and none comes
// twice.
func TestReported009_PostOnIdleCloseRace(t *testing.T) {
	var handled atomic.Int64
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		for {
			if _, err := c.Request(); err != nil {
				return
			}
			handled.Add(1)
			_ = c.Send("%s", sidecartest.Reply(200, "ok"))
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) // for the next one: the first may take its time
		}
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	client := http.Client{Timeout: 10 * time.Second}
	const calls = 40
	for i := range calls {
		q, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.Outbound+"/", strings.NewReader("x"))
		q.Host = "svc"
		resp, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("call %d: %s", i, resp.Status)
		}
		sidecartest.Eventually(t, 20*time.Second, "the server has closed", func() bool { return origin.Open() == 0 })
	}
	if handled.Load() != calls {
		t.Errorf("%d calls were handled %d times", calls, handled.Load())
	}
}

// TestReported009_PostIsNotReplayed: a POST that meets a reset before a byte of an answer is not sent again.
func TestReported009_PostIsNotReplayed(t *testing.T) {
	var handled atomic.Int64
	origin := sidecartest.Serve(t, func(c *sidecartest.Conn) {
		for n := 0; ; n++ {
			if _, err := c.Request(); err != nil {
				return
			}
			handled.Add(1)
			if n == 1 {
				return
			}
			_ = c.Send("%s", sidecartest.Reply(200, "ok"))
		}
	})
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}}`, origin.Address)
	c := sidecartest.Dial(t, p.Outbound)
	c.Ask(t, get, "")
	m := c.Ask(t, "POST / HTTP/1.1\r\nHost: svc\r\nContent-Length: 1\r\n\r\nx")
	if m.Status() != 502 || m.Get("x-sidecar-reason") != "upstream_reset" {
		t.Errorf("%s, reason %q", m.Start, m.Get("x-sidecar-reason"))
	}
	if handled.Load() != 2 {
		t.Errorf("the server handled %d requests, not 2", handled.Load())
	}
}

// TestReported010_ConnectStorm: a burst of calls meets a server that stalls. Few connects are tried at a time, the others
// wait behind them; every call is told what happened, and when the server is back so is the service.
func TestReported010_ConnectStorm(t *testing.T) {
	const burst, most = 300, 64 + 64 // the limit, and what a list that is not read in one moment adds
	address, release := sidecartest.SlowAccept(t)
	p := sidecartest.Run(t, `services: {svc: {endpoints: [%q], policy: {timeout: 2s, connect_timeout: 500ms, breaker: none, outlier: none}}}`, address)
	var wg sync.WaitGroup
	var told, peak atomic.Int64
	for range burst {
		c := sidecartest.Dial(t, p.Outbound)
		_ = c.Send(get, "")
		wg.Go(func() {
			if m, err := c.Response("GET"); err == nil && m.Get("x-sidecar-reason") != "" {
				told.Add(1)
			} else {
				t.Errorf("%+v %v", m, err)
			}
		})
	}
	sidecartest.Eventually(t, 10*time.Second, "all calls are over", func() bool {
		peak.Store(max(peak.Load(), int64(sidecartest.Connecting(t, address))))
		return told.Load() == burst || t.Failed()
	})
	wg.Wait()
	if peak.Load() > most || peak.Load() < most/4 {
		t.Errorf("up to %d connects at a time, want about 64", peak.Load())
	}
	close(release)
	sidecartest.Eventually(t, 10*time.Second, "an answer from the server", func() bool {
		return sidecartest.Dial(t, p.Outbound).Ask(t, get, "").Status() == 200
	})
}
