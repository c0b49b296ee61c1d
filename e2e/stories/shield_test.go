package stories

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// counted is a listener that counts the octets that come in.
type counted struct {
	net.Listener
	octets atomic.Int64
}

// Accept implements net.Listener.
func (c *counted) Accept() (net.Conn, error) {
	nc, err := c.Listener.Accept()
	return &countedConn{nc, &c.octets}, err
}

type countedConn struct {
	net.Conn
	octets *atomic.Int64
}

// Read implements net.Conn.
func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.octets.Add(int64(n))
	return n, err
}

// still waits until nothing comes any more, and returns what has come.
func (c *counted) still(t *testing.T) int64 {
	was, looks := int64(-1), 0
	sidecartest.Eventually(t, patience, "the endpoint is left alone", func() bool {
		if looks++; was != c.octets.Load() {
			was, looks = c.octets.Load(), 0
		}
		return looks > 20
	})
	return was
}

// TestShields: three forms of a shield in each protocol. While its switch is on, not one octet reaches the endpoint and the caller
// has the form's answer; off again, the next call is made (S-156, S-160, S-161). The switches are turned as a person does.
func TestShields(t *testing.T) {
	t.Parallel()
	web := &counted{Listener: sidecartest.Listen(t, "127.0.0.1:0")}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := http.Server{Protocols: protocols, ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Content-Type") == "application/grpc" {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Trailer", "Grpc-Status")
			_, _ = w.Write([]byte("\x00\x00\x00\x00\x04real"))
			w.Header().Set("Grpc-Status", "0")
			return
		}
		_, _ = w.Write([]byte("real"))
	})}
	go func() { _ = server.Serve(web) }()
	t.Cleanup(func() { _ = server.Close() })
	raw := &counted{Listener: sidecartest.Listen(t, "127.0.0.1:0")}
	go func() {
		for {
			nc, err := raw.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = nc.Read(make([]byte, 16)) // what is said does not matter
				_, _ = nc.Write([]byte("real"))
				_ = nc.Close()
			}()
		}
	}()

	forms := map[string]string{"null": "empty: {}", "exception": `error: {status: 500, grpc: resource_exhausted, message: "not now"}`}
	var document strings.Builder
	port := sidecartest.FreeAddress(t)
	fmt.Fprintf(&document, quiet+`services:
  one: {endpoints: [%[1]q]}
  two: {protocol: http2, endpoints: [%[1]q]}
  rpc: {protocol: grpc, endpoints: [%[1]q]}
  raw: {protocol: tcp, listen: %[3]q, endpoints: [%[2]q]}
switches:
`, web.Addr().String(), raw.Addr().String(), port)
	for _, service := range []string{"one", "two", "rpc", "raw"} {
		forms["mock"] = `answer: {status: 203, body: "mock"}`
		if service == "rpc" {
			forms["mock"] = `answer: {body_base64: bW9jaw==}`
		}
		for form, answer := range forms {
			fmt.Fprintf(&document, "  %s-%s: {service: %s, %s}\n", service, form, service, answer)
		}
	}
	p := sidecartest.Run(t, "%s", document.String())
	turn := func(to, name string) {
		t.Helper()
		if out, err := exec.Command(sidecartest.Build(t), "switch", to, name, "--admin", p.Admin).CombinedOutput(); err != nil {
			t.Fatalf("switch %s %s: %v\n%s", to, name, err, out)
		}
	}
	for _, tc := range []struct {
		service               string
		origin                *counted
		call                  func(t *testing.T) string
		real                  string
		null, exception, mock string
	}{
		{
			"one", web, func(t *testing.T) string {
				m := sidecartest.Dial(t, p.Outbound).Ask(t, "GET / HTTP/1.1\r\nHost: one\r\n\r\n")
				return fmt.Sprint(m.Status(), " ", m.Get("x-sidecar-reason"), " ", string(m.Body))
			},
			"200  real", "200 degraded ", "500 degraded degraded: service one: not now\n", "203 degraded mock",
		},
		{
			"two", web, func(t *testing.T) string {
				c := sidecartest.DialHTTP2(t, p.Outbound)
				c.Ask(1, "GET", "two", "/")
				s, err := c.Answer(1)
				if err != nil {
					t.Fatal(err)
				}
				return s.Status + " " + s.Head.Get("x-sidecar-reason") + " " + string(s.Body)
			},
			"200  real", "200 degraded ", "500 degraded degraded: service two: not now\n", "203 degraded mock",
		},
		{
			"rpc", web, func(t *testing.T) string {
				c := sidecartest.DialHTTP2(t, p.Outbound)
				c.Call(1, "rpc", "/shop.Cart/Get")
				s, err := c.Answer(1)
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprintf("%s %q %s%s", s.Head.Get("x-sidecar-reason"), s.Body, s.Head.Get("grpc-status"), s.Trailers.Get("grpc-status"))
			},
			` "\x00\x00\x00\x00\x04real" 0`, `degraded "\x00\x00\x00\x00\x00" 0`, `degraded "" 8`, `degraded "\x00\x00\x00\x00\x04mock" 0`,
		},
		{
			"raw", raw, func(t *testing.T) string {
				c, err := net.DialTimeout("tcp", port, patience)
				if err != nil {
					return "reset" // before we noticed that it stood
				}
				defer func() { _ = c.Close() }()
				_ = c.SetDeadline(time.Now().Add(patience))
				_, sent := c.Write([]byte("hello")) // a reset is told to whoever asks first
				b, err := io.ReadAll(c)
				if err != nil || errors.Is(sent, syscall.ECONNRESET) {
					return "reset"
				}
				return string(b)
			},
			"real", "", "reset", "mock",
		},
	} {
		for form, want := range map[string]string{"null": tc.null, "exception": tc.exception, "mock": tc.mock} {
			t.Run(tc.service+" "+form, func(t *testing.T) {
				if got := tc.call(t); got != tc.real {
					t.Fatalf("at first: %q, want %q", got, tc.real)
				}
				before := tc.origin.still(t)
				turn("on", tc.service+"-"+form)
				for range 3 {
					if got := tc.call(t); got != want {
						t.Errorf("%q, want %q", got, want)
					}
				}
				if n := tc.origin.octets.Load() - before; n != 0 {
					t.Errorf("%d octets reached the endpoint", n)
				}
				turn("off", tc.service+"-"+form)
				if got := tc.call(t); got != tc.real {
					t.Errorf("off again: %q, want %q", got, tc.real)
				}
			})
		}
	}
}
