package interop

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cache is where scripts/setup.sh puts the stacks of others.
const cache = "../../.cache/interop"

// stack is how a peer of a stack is started; server or client and their arguments are added.
type stack struct {
	name    string
	command []string
	env     []string
}

func stacks(t *testing.T) []stack {
	t.Helper()
	here, err := filepath.Abs(cache)
	if err != nil {
		t.Fatal(err)
	}
	python, modules := filepath.Join(here, "python/bin/python"), filepath.Join(here, "node/node_modules")
	for _, path := range []string{python, modules} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("make setup: %v", err)
		}
	}
	return []stack{
		{"python", []string{python, "python/peer.py"}, []string{"PYTHONDONTWRITEBYTECODE=1"}},
		{"node", []string{"node", "node/peer.js"}, []string{"NODE_PATH=" + modules}},
	}
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
	cmd := s.run(context.Background(), "server")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server of %s did not start: %v", s.name, err)
	}
	return "127.0.0.1:" + strings.TrimSpace(port)
}

// TestStacks lets each stack call each through two sidecars. The servers end their connections every second and punish
// clients that send more PINGs than they want, as the clients do.
func TestStacks(t *testing.T) {
	list := stacks(t)
	for _, server := range list {
		for _, client := range list {
			t.Run(client.name+" calls "+server.name, func(t *testing.T) {
				t.Parallel()
				address := through(t, 2, server.serve(t))
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				out, err := client.run(ctx, "client", address).CombinedOutput()
				if err != nil {
					t.Errorf("%v\n%s", err, out)
				} else {
					t.Logf("\n%s", out)
				}
			})
		}
	}
}
