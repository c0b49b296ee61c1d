package interop

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// scripts/setup.sh puts the stacks of others into cache, and those that have to be built into built: they take part when
// all is asked for.
const (
	cache       = "../../.cache/interop"
	built       = "../../.cache/peers"
	allVariable = "SIDECAR_INTEROP"
)

func all() bool { return os.Getenv(allVariable) == "all" }

// stack is how a peer of a stack is started; server or client and their arguments are added.
type stack struct {
	name    string
	command []string
	env     []string
}

// stacks lists Python and Node, and with all of them Java and Rust.
func stacks(t *testing.T) []stack {
	t.Helper()
	inside := func(dir, path string) string {
		path, err := filepath.Abs(filepath.Join(dir, path))
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			t.Fatalf("make setup, or make interop: %v", err)
		}
		return path
	}
	list := []stack{
		{"python", []string{inside(cache, "python/bin/python"), "python/peer.py"}, []string{"PYTHONDONTWRITEBYTECODE=1"}},
		{"node", []string{"node", "node/peer.js"}, []string{"NODE_PATH=" + inside(cache, "node/node_modules")}},
	}
	if all() {
		classes := inside(built, "java")
		list = append(list,
			stack{"java", []string{"java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes + ":" + classes + "/lib/*", "Peer"}, nil},
			stack{"rust", []string{inside(built, "rust/release/peer")}, nil})
	}
	return list
}

func (s stack) run(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.command[0], append(s.command[1:], args...)...)
	cmd.Env = append(os.Environ(), s.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// serve starts a peer that serves, and returns its address.
func (s stack) serve(t *testing.T) string {
	t.Helper()
	address, _ := s.start(t)
	return address
}

// start starts a peer that serves, and returns its address and what kills it, which the test's end does at the latest.
func (s stack) start(t *testing.T) (address string, kill func()) {
	t.Helper()
	cmd := s.run(context.Background(), "server")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server of %s did not start: %v", s.name, err)
	}
	return "127.0.0.1:" + strings.TrimSpace(port), kill
}

// TestStacks lets each stack call each through two sidecars, and with all of them through one as well. The servers end their
// connections every second and punish clients that send more PINGs than they want, as the clients do.
func TestStacks(t *testing.T) {
	ways := []int{2}
	if all() {
		ways = []int{1, 2}
	}
	list := stacks(t)
	for _, server := range list {
		for _, client := range list {
			for _, sidecars := range ways {
				t.Run(fmt.Sprint(client.name, " calls ", server.name, " through ", sidecars), func(t *testing.T) {
					t.Parallel()
					client.check(t, through(t, sidecars, server.serve(t)))
				})
			}
		}
	}
}

// check runs every check of a peer against an address.
func (s stack) check(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	out, err := s.run(ctx, append([]string{"client"}, args...)...).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	} else {
		t.Logf("\n%s", out)
	}
}
