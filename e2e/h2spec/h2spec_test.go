// Package h2spec lets h2spec, a conformance suite of others, judge the HTTP/2 of the real binary, on both listeners and
// in front of origins of others. It consists of tests alone. The suite is a module of its own, internal/tools/h2spec.
package h2spec

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

func TestMain(m *testing.M) { sidecartest.Main(m) }

// page is what the origins answer: longer than the windows of the suite.
const page = "five octets and more\n"

// TestListeners runs the whole suite against each listener, side by side, as it mostly waits for what does not come.
func TestListeners(t *testing.T) {
	suite := filepath.Join(t.TempDir(), "h2spec")
	build := exec.Command("go", "build", "-o", suite, "github.com/summerwind/h2spec/cmd/h2spec")
	build.Dir = "../../internal/tools/h2spec"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building h2spec: %v\n%s", err, out)
	}
	binary := sidecartest.Build(t)
	for name, l := range map[string]struct {
		document string
		origin   func(*testing.T) string
		port     func(*sidecartest.Process) string
	}{
		"outbound to Go over HTTP1": {`services: {any: {hosts: "*", endpoints: ["%s"]}}`, goOrigin, outbound},
		"outbound to nginx":         {`services: {any: {hosts: "*", endpoints: ["%s"]}}`, nginx, outbound},
		"outbound to Go over HTTP2": {`services: {any: {hosts: "*", protocol: http2, endpoints: ["%s"]}}`, goOrigin, outbound},
		"inbound, the app Go":       {`inbound: [{service: app, app: "%s", protocol: http2}]`, goOrigin, inbound},
		"inbound, the app is nginx": {`inbound: [{service: app, app: "%s", protocol: http}]`, nginx, inbound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := sidecartest.Start(t, binary, fmt.Sprintf(l.document, l.origin(t)))
			judge(t, suite, l.port(p))
		})
	}
}

func outbound(p *sidecartest.Process) string { return p.Outbound }
func inbound(p *sidecartest.Process) string  { return p.Inbound }

// summary is the last line of the suite's output.
var summary = regexp.MustCompile(`(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed`)

// judge fails unless every case of the suite passes, the strict ones included.
func judge(t *testing.T, suite, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(ctx, suite, "-h", host, "-p", port, "-S", "-o", "2").CombinedOutput()
	got := summary.FindStringSubmatch(string(out))
	if got == nil {
		t.Fatalf("h2spec did not finish: %v\n%s", err, out)
	}
	t.Log(got[0])
	if got[1] != "146" || got[2] != "146" {
		_, failures, _ := cut(string(out))
		t.Errorf("%s\n%s", got[0], failures)
	}
}

// cut splits the output of the suite before what it tells of failures.
func cut(out string) (before, after string, found bool) {
	at := regexp.MustCompile(`(?m)^Failures:`).FindStringIndex(out)
	if at == nil {
		return out, out, false
	}
	return out[:at[0]], out[at[0]:], true
}

// goOrigin is a server of Go's own, of HTTP/1 and HTTP/2. It reads a request before it answers: an early answer ends a
// stream before the suite has done to it what it means to.
func goOrigin(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, page)
	})}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return l.Addr().String()
}

// nginx serves a page to any method.
func nginx(t *testing.T) string {
	program, err := exec.LookPath("nginx")
	if err != nil {
		t.Fatal("nginx is missing: make setup")
	}
	dir, address := t.TempDir(), sidecartest.FreeAddress(t)
	conf := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr error;
events { worker_connections 512; }
http {
  access_log off; client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
  server { listen %[2]s; location / { return 200 "%[3]s"; } }
}
`, dir, address, "five octets and more")
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sidecartest.Command(t, address, program, "-p", dir, "-e", filepath.Join(dir, "error.log"), "-c", conf)
	return address
}
