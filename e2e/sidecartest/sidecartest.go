// Package sidecartest starts the real sidecar for end-to-end tests: built from this tree, on free loopback ports, ended
// with the test. Beside it stand scripted origins, raw clients and steady callers. It owns the processes, sockets and
// files that it makes; each wait is bounded. Tested by the tests that use it.
package sidecartest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/internal/loopback"
)

// Process is a running sidecar and its addresses.
type Process struct {
	PID                                       int
	Outbound, Inbound, Admin, Health, Metrics string
	File                                      string // its configuration

	snapshots      string // the folder for what it knows of endpoints
	cmd            *exec.Cmd
	exited         chan struct{} // closed when it is over
	stdout, stderr Output
}

// binaryVariable names the environment variable that holds the path of a binary to test instead of building one.
const binaryVariable = "SIDECAR_BINARY"

// Main builds the binary once for all tests of a package; TestMain calls it.
func Main(m *testing.M) {
	if address := os.Getenv(endpointVariable); address != "" {
		serveEndpoint(address)
		return
	}
	code := 1
	func() {
		if os.Getenv(binaryVariable) == "" {
			dir, err := os.MkdirTemp("", "sidecar-e2e-")
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
			defer func() { _ = os.RemoveAll(dir) }()
			binary := filepath.Join(dir, "sidecar")
			if err := build(binary); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
			_ = os.Setenv(binaryVariable, binary)
		}
		code = m.Run()
	}()
	os.Exit(code)
}

// Build returns the path of the binary: the one that Main or the environment names, or else one that it builds as
// `make build` does. It skips the test when there is no command yet.
func Build(t testing.TB) string {
	t.Helper()
	if binary := os.Getenv(binaryVariable); binary != "" {
		return binary
	}
	binary := filepath.Join(t.TempDir(), "sidecar")
	if err := build(binary); err != nil {
		t.Fatal(err)
	}
	return binary
}

func build(binary string) error {
	root, err := root()
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.version=test", "-o", binary, "./cmd/sidecar")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// Run builds the sidecar and starts it with a document as Write takes it.
func Run(t testing.TB, document string, args ...any) *Process {
	t.Helper()
	return Start(t, Build(t), fmt.Sprintf(document, args...))
}

// Start runs the sidecar with a document as Write takes it, in an environment extended by env, and waits until it is ready. The test's end ends it; its output is shown when the test failed.
func Start(t testing.TB, binary, document string, env ...string) *Process {
	t.Helper()
	p := Launch(t, binary, document, env...)
	const within = 3 * patience // some have much to read first
	for deadline := time.After(within); !isReady(p.Health); {
		select {
		case <-p.exited:
			t.Fatalf("the sidecar ended before it was ready: %v", p.cmd.ProcessState)
		case <-deadline:
			t.Fatalf("the sidecar is not ready after %v", within)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return p
}

// Launch is Start without the wait.
func Launch(t testing.TB, binary, document string, env ...string) *Process {
	t.Helper()
	p := &Process{exited: make(chan struct{})}
	for _, address := range []*string{&p.Outbound, &p.Inbound, &p.Admin, &p.Health, &p.Metrics} {
		*address = FreeAddress(t)
	}
	p.File, p.snapshots = filepath.Join(t.TempDir(), "sidecar.yaml"), t.TempDir()
	p.Write(t, document)

	p.cmd = exec.Command(binary, "run", "-c", p.File)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = append(os.Environ(), env...), &p.stdout, &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.PID = p.cmd.Process.Pid
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() { p.end(t) })
	return p
}

// end ends the process by force if it has to.
func (p *Process) end(t testing.TB) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Process.Signal(syscall.SIGINT) // a second signal ends a drain
	select {
	case <-p.exited:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	if t.Failed() {
		t.Logf("the sidecar said:\n%s%s", p.stderr.Tail(), p.stdout.Tail())
	}
}

// Write puts a document in the place of the process's configuration, in one step. It says anything but `listen`; one with
// `discovery` says `snapshot_dir` too, for the others it is a folder of the test's.
func (p *Process) Write(t testing.TB, document string, args ...any) {
	t.Helper()
	if len(args) > 0 {
		document = fmt.Sprintf(document, args...)
	}
	switch {
	case !strings.Contains("\n"+document, "\ndiscovery:"):
		document += fmt.Sprintf("\ndiscovery: {snapshot_dir: %q}", p.snapshots) // at the end: no line gets another number
	case !strings.Contains(document, "snapshot_dir:"):
		t.Fatal("discovery without snapshot_dir would write outside of the test's folders")
	}
	document = fmt.Sprintf("listen: {outbound: %q, inbound: %q, admin: %q, health: %q, metrics: %q}\n%s\n",
		p.Outbound, p.Inbound, p.Admin, p.Health, p.Metrics, document)
	if err := os.WriteFile(p.File+".new", []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.File+".new", p.File); err != nil {
		t.Fatal(err)
	}
}

// Signal sends the process a signal.
func (p *Process) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// Exited returns a channel that is closed when the process is over.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait waits for the process to end by itself and returns its exit code, -1 for a signal.
func (p *Process) Wait(t testing.TB, within time.Duration) int {
	t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		t.Fatalf("the sidecar did not end within %v", within)
		return 0
	}
}

// Said returns what the process wrote to standard error so far.
func (p *Process) Said() string { return p.stderr.String() }

func isReady(health string) bool {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + health + "/ready")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Dials reports whether an address takes connections.
func Dials(address string) bool {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// FreeAddress returns a loopback address whose port was free a moment ago, on a host that nobody else has drawn.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, err := loopback.Free(loopback.Own(), "0")
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// Listen listens at an address that this process may have listened on before. Somebody who is being started holds what was
// closed for a moment longer, so it is tried for a while.
func Listen(t testing.TB, address string) net.Listener {
	t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(5 * time.Millisecond) {
		l, err := net.Listen("tcp", address)
		if err == nil {
			return l
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// root is the folder of the module, found upwards from where the test runs.
func root() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd/sidecar/main.go")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no cmd/sidecar above the test: %w", os.ErrNotExist)
}

// Output keeps what a process says; it may be written to and read at once.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends p.
func (b *Output) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns everything written so far.
func (b *Output) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Tail returns the last bytes of what was written.
func (b *Output) Tail() string { return tail(b.String()) }

// tail returns the last bytes of a long text.
func tail(s string) string {
	const enough = 4 << 10
	if len(s) > enough {
		return "…" + s[len(s)-enough:]
	}
	return s
}
