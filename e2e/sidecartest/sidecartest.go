// Package sidecartest starts the real sidecar for end-to-end tests: built from this tree, on free loopback ports, ended
// with the test. It owns the process. Tested by the tests that use it.
package sidecartest

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a running sidecar and its addresses.
type Process struct {
	PID                                       int
	Outbound, Inbound, Admin, Health, Metrics string
}

// Build builds the sidecar as `make build` does and returns its path. It skips the test when there is no command yet.
func Build(t testing.TB) string {
	t.Helper()
	root := root(t)
	if sources, _ := filepath.Glob(filepath.Join(root, "cmd/sidecar/*.go")); len(sources) == 0 {
		t.Skip("cmd/sidecar has no source, so there is no binary to test")
	}
	binary := filepath.Join(t.TempDir(), "sidecar")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version=test", "-o", binary, "./cmd/sidecar")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// Start runs the sidecar with a document that says anything but `listen`, in an environment extended by env, and waits
// until it is ready. The test's end ends it; its output is shown when the test failed.
func Start(t testing.TB, binary, document string, env ...string) *Process {
	t.Helper()
	p := &Process{}
	for _, address := range []*string{&p.Outbound, &p.Inbound, &p.Admin, &p.Health, &p.Metrics} {
		*address = net.JoinHostPort("127.0.0.1", FreePort(t))
	}
	document = fmt.Sprintf("listen: {outbound: %q, inbound: %q, admin: %q, health: %q, metrics: %q}\n%s",
		p.Outbound, p.Inbound, p.Admin, p.Health, p.Metrics, document)
	file := filepath.Join(t.TempDir(), "sidecar.yaml")
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}

	output := &lockedBuffer{}
	cmd := exec.Command(binary, "run", "-c", file)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.PID = cmd.Process.Pid
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-exited
		}
		if t.Failed() {
			t.Logf("the sidecar said:\n%s", output)
		}
	})

	for deadline := time.After(10 * time.Second); !isReady(p.Health); {
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("the sidecar ended before it was ready: %v", err)
		case <-deadline:
			t.Fatal("the sidecar is not ready after 10 s")
		case <-time.After(20 * time.Millisecond):
		}
	}
	return p
}

func isReady(health string) bool {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + health + "/ready")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// FreePort returns a loopback TCP port that was free a moment ago.
func FreePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// root is the folder of the module, found upwards from where the test runs.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above the test")
	return ""
}

// lockedBuffer keeps what a process says.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends p.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns everything written so far.
func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
