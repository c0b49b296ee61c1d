// Package clients lets programs and libraries of others talk through the real binary: WebSocket libraries, curl, wrk. It
// consists of tests alone, and is a module of its own so that what only these tests need stays out of the sidecar's go.mod.
package clients

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

func TestMain(m *testing.M) { sidecartest.Main(m) }

// gorillaEcho and coderEcho are servers that send messages back, each of another library.
func gorillaEcho(w http.ResponseWriter, r *http.Request) {
	up := gorilla.Upgrader{Subprotocols: []string{"echo"}, EnableCompression: true, CheckOrigin: func(*http.Request) bool { return true }}
	c, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	for {
		kind, data, err := c.ReadMessage()
		if err != nil || c.WriteMessage(kind, data) != nil {
			return
		}
	}
}

func coderEcho(w http.ResponseWriter, r *http.Request) {
	c, err := coder.Accept(w, r, &coder.AcceptOptions{Subprotocols: []string{"echo"}, InsecureSkipVerify: true, CompressionMode: coder.CompressionContextTakeover})
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(4 << 20)
	for {
		kind, data, err := c.Read(r.Context())
		if err != nil || c.Write(r.Context(), kind, data) != nil {
			return
		}
	}
}

// messages are sizes at the borders of a frame's length, of our buffers, and beyond them.
func messages(t *testing.T) [][]byte {
	var list [][]byte
	for _, n := range []int{0, 1, 125, 126, 4096, 32 << 10, 65535, 65536, 1 << 20} {
		b := make([]byte, n)
		if _, err := rand.Read(b); err != nil {
			t.Fatal(err)
		}
		list = append(list, b)
	}
	return list
}

// TestWebSocket: both libraries as clients of both, through the outbound side and the inbound side.
func TestWebSocket(t *testing.T) {
	for server, handler := range map[string]http.HandlerFunc{"gorilla": gorillaEcho, "coder": coderEcho} {
		t.Run(server, func(t *testing.T) {
			s := httptest.NewServer(handler)
			t.Cleanup(s.Close)
			address := s.Listener.Addr().String()
			p := sidecartest.Run(t, `
node: {service: shop}
services: {svc: {hosts: ["*"], endpoints: [%q], policy: {timeout: 1s}}}
inbound: [{service: shop, app: %q, protocol: auto}]
`, address, address)
			for side, to := range map[string]string{"outbound": p.Outbound, "inbound": p.Inbound} {
				t.Run(side+"/gorilla", func(t *testing.T) { withGorilla(t, to) })
				t.Run(side+"/coder", func(t *testing.T) { withCoder(t, to) })
			}
		})
	}
}

func withGorilla(t *testing.T, address string) {
	d := gorilla.Dialer{Subprotocols: []string{"echo"}, HandshakeTimeout: 5 * time.Second, EnableCompression: true}
	c, _, err := d.DialContext(t.Context(), "ws://"+address+"/echo", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if c.Subprotocol() != "echo" {
		t.Errorf("subprotocol %q", c.Subprotocol())
	}
	for _, m := range messages(t) {
		if err := c.WriteMessage(gorilla.BinaryMessage, m); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.ReadMessage(); err != nil || !bytes.Equal(got, m) {
			t.Fatalf("%d octets came back as %d, %v", len(m), len(got), err)
		}
	}
	_ = c.WriteMessage(gorilla.CloseMessage, gorilla.FormatCloseMessage(gorilla.CloseNormalClosure, "bye"))
	if _, _, err := c.ReadMessage(); !gorilla.IsCloseError(err, gorilla.CloseNormalClosure) {
		t.Errorf("the end: %v", err)
	}
}

func withCoder(t *testing.T, address string) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, _, err := coder.Dial(ctx, "ws://"+address+"/echo", &coder.DialOptions{Subprotocols: []string{"echo"}, CompressionMode: coder.CompressionContextTakeover})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(4 << 20)
	if c.Subprotocol() != "echo" {
		t.Errorf("subprotocol %q", c.Subprotocol())
	}
	for _, m := range messages(t) {
		if err := c.Write(ctx, coder.MessageBinary, m); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Read(ctx); err != nil || !bytes.Equal(got, m) {
			t.Fatalf("%d octets came back as %d, %v", len(m), len(got), err)
		}
	}
	if err := c.Close(coder.StatusNormalClosure, "bye"); err != nil {
		t.Errorf("the end: %v", err)
	}
}

// program finds a program that `make setup` installs.
func program(t *testing.T, name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("needs %s: make setup", name)
	}
	return path
}

// TestCurl: methods, bodies, HTTP/1.0, ranges, Expect, compressed and chunked answers, as a proxy and directly.
func TestCurl(t *testing.T) {
	curl := program(t, "curl")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/file":
			http.ServeContent(w, r, "file.txt", time.Time{}, strings.NewReader(strings.Repeat("0123456789", 1000)))
		case "/flush":
			for range 10 {
				_, _ = io.WriteString(w, "piece\n")
				w.(http.Flusher).Flush()
			}
		default:
			body, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, "%s %s %d", r.Method, r.URL.RequestURI(), len(body))
		}
	}))
	t.Cleanup(s.Close)
	p := sidecartest.Run(t, `services: {svc: {hosts: [svc.test], endpoints: [%q]}}`, s.Listener.Addr().String())
	large := strings.Repeat("x", 3<<20)
	for _, row := range []struct {
		name  string
		args  []string
		stdin string
		want  string
	}{
		{"get", []string{"/a?b=c"}, "", "GET /a?b=c 0"},
		{"head", []string{"-I", "-o", "/dev/null", "-w", "%{http_code}", "/a"}, "", "200"},
		{"http/1.0", []string{"-0", "/a"}, "", "GET /a 0"},
		{"post", []string{"-d", "k=v", "/p"}, "", "POST /p 3"},
		{"large post", []string{"--data-binary", "@-", "/p"}, large, fmt.Sprintf("POST /p %d", len(large))},
		{"chunked put", []string{"-T", "-", "/p"}, large, fmt.Sprintf("PUT /p %d", len(large))},
		{"expect", []string{"-H", "Expect: 100-continue", "-d", "k=v", "/p"}, "", "POST /p 3"},
		{"range", []string{"-r", "5-14", "/file"}, "", "5678901234"},
		{"flushed", []string{"/flush"}, "", strings.Repeat("piece\n", 10)},
		{"two in a row", []string{"/1", "--next", "-sS", "http://svc.test/2"}, "", "GET /1 0GET /2 0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			args := []string{"-sS", "--fail", "--max-time", "20", "--noproxy", "", "--proxy", "http://" + p.Outbound}
			for _, a := range row.args {
				if strings.HasPrefix(a, "/") && a != "/dev/null" {
					a = "http://svc.test" + a
				}
				args = append(args, a)
			}
			cmd := exec.CommandContext(t.Context(), curl, args...)
			if row.name == "two in a row" {
				cmd.Env = append(cmd.Environ(), "http_proxy=http://"+p.Outbound)
			}
			cmd.Stdin = strings.NewReader(row.stdin)
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != row.want {
				t.Errorf("%q %v, want %q", out, err, row.want)
			}
		})
	}
}

// TestWrk: a load generator finds nothing wrong in a second of full load.
func TestWrk(t *testing.T) {
	wrk := program(t, "wrk")
	e := sidecartest.NewEndpoint(t)
	p := sidecartest.Run(t, "telemetry: {access_log: {format: none}}\nservices: {svc: {endpoints: [%q]}}", e.Address)
	out, err := exec.CommandContext(t.Context(), wrk, "-t1", "-c16", "-d1s", "-H", "Host: svc", "http://"+p.Outbound+"/").CombinedOutput()
	if err != nil || strings.Contains(string(out), "Socket errors") || strings.Contains(string(out), "Non-2xx") {
		t.Fatalf("%v\n%s", err, out)
	}
	m := regexp.MustCompile(`(\d+) requests in`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("%s", out)
	}
	n, _ := strconv.Atoi(string(m[1]))
	if n < 100 {
		t.Errorf("%d requests", n)
	}
	sidecartest.Eventually(t, 20*time.Second, fmt.Sprintf("we count %d requests, as wrk does", n), func() bool {
		return p.Metric(t, "sidecar_requests_total", `status="2xx"`) >= float64(n)
	})
	t.Logf("%s", out)
}
