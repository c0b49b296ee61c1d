// Package consultest runs real Consul agents for tests: one in development mode, or servers and clients that form a
// cluster, each on a loopback host of its own with a folder of its own. It owns the processes that it starts; the test's
// end kills them. The binary is what `make setup` builds. Tested by the tests that use it.
package consultest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
	"github.com/sidecar-mesh/sidecar/internal/loopback"
)

// Agent is one Consul process, a server or a client, which can be killed and started again with what it had stored.
type Agent struct {
	Name   string
	HTTP   string // address of its API; the same after a restart
	Server bool

	// HTTPS is the address of the API over TLS, where it was started by Secure.
	HTTPS string

	token           string         // of the test's own calls
	more            map[string]any // of its configuration
	host, serf, rpc string         // host, and ports on it
	folder          string
	cmd             *exec.Cmd // nil while it does not run
	exited          chan struct{}
	said            sidecartest.Output
}

// Cluster is servers and clients of one datacenter.
type Cluster struct{ Servers, Clients []*Agent }

// binaryVariable names the environment variable that holds the path of a Consul to use instead of the one in the cache.
const binaryVariable = "SIDECAR_CONSUL"

// Binary returns the path of Consul, and fails the test where there is none.
func Binary(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(binaryVariable); path != "" {
		return path
	}
	out, err := exec.Command("git", "rev-parse", "--show-toplevel", "--path-format=absolute", "--git-common-dir").Output()
	if err != nil {
		t.Fatalf("where is the repository? %v", err)
	}
	top, common, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	for _, root := range []string{top, filepath.Dir(common)} {
		path := filepath.Join(root, ".cache/consul/consul")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Fatalf("no Consul: run `make setup`, or name a binary in %s", binaryVariable)
	return ""
}

// Dev starts one server that is its own leader.
func Dev(t testing.TB) *Agent {
	t.Helper()
	return Start(t, 1, 0).Servers[0]
}

// Start starts a datacenter and waits until it has a leader that every agent knows.
func Start(t testing.TB, servers, clients int) *Cluster {
	t.Helper()
	c := &Cluster{}
	for i := range servers {
		c.Servers = append(c.Servers, newAgent(t, fmt.Sprintf("server-%d", i+1), true))
	}
	for i := range clients {
		c.Clients = append(c.Clients, newAgent(t, fmt.Sprintf("client-%d", i+1), false))
	}
	var join []string
	for _, a := range c.Servers {
		join = append(join, net.JoinHostPort(a.host, a.serf))
	}
	for _, a := range c.Agents() {
		a.configure(t, servers, join)
		a.launch(t)
	}
	for _, a := range c.Agents() {
		a.Await(t)
	}
	return c
}

// Agents returns the servers and then the clients.
func (c *Cluster) Agents() []*Agent {
	return append(c.Servers[:len(c.Servers):len(c.Servers)], c.Clients...)
}

// Leader returns the server that leads.
func (c *Cluster) Leader(t testing.TB) *Agent {
	t.Helper()
	var leader *Agent
	sidecartest.Eventually(t, 30*time.Second, "a server leads", func() bool {
		for _, a := range c.Servers {
			if !a.Running() {
				continue
			}
			var rpc string
			if a.call("GET", "/v1/status/leader", nil, &rpc) != nil {
				continue
			}
			for _, b := range c.Servers {
				if rpc == net.JoinHostPort(b.host, b.rpc) && b.Running() {
					leader = b
					return true
				}
			}
		}
		return false
	})
	return leader
}

func newAgent(t testing.TB, name string, server bool) *Agent {
	t.Helper()
	a := &Agent{Name: name, Server: server, folder: t.TempDir()}
	a.host = loopback.Own()
	ports := map[string]bool{}
	for len(ports) < 3 {
		ports[freePort(t, a.host)] = true
	}
	list := slices.Collect(maps.Keys(ports))
	a.HTTP, a.serf, a.rpc = net.JoinHostPort(a.host, list[0]), list[1], list[2]
	return a
}

// freePort is a port below those that the system gives to outgoing connections: an agent makes some from its own host
// before it listens.
func freePort(t testing.TB, host string) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(10_000 + rand.IntN(20_000))
		if _, err := loopback.Free(host, port); err == nil {
			return port
		}
	}
	t.Fatal("no free port")
	return ""
}

// configure writes the agent's configuration: quick to elect and to notice, silent otherwise.
func (a *Agent) configure(t testing.TB, servers int, join []string) {
	t.Helper()
	_, httpPort, _ := net.SplitHostPort(a.HTTP)
	number := func(port string) int { n, _ := strconv.Atoi(port); return n }
	c := map[string]any{
		"node_name": a.Name, "server": a.Server, "data_dir": filepath.Join(a.folder, "data"), "log_level": "warn",
		"bind_addr": a.host, "client_addr": a.host, "retry_join": join, "retry_interval": "1s",
		"disable_update_check": true, "rejoin_after_leave": true, "leave_on_terminate": false,
		"performance": map[string]any{"raft_multiplier": 1},
		"limits":      map[string]any{"http_max_conns_per_client": 4096}, // crowds of sidecars come from one address
		"gossip_lan":  map[string]any{"probe_interval": "200ms", "probe_timeout": "100ms", "suspicion_mult": 2},
		"ports": map[string]any{
			"http": number(httpPort), "serf_lan": number(a.serf), "server": number(a.rpc),
			"dns": -1, "grpc": -1, "grpc_tls": -1, "serf_wan": -1,
		},
	}
	if a.Server {
		c["bootstrap_expect"] = servers
	}
	for key, v := range a.more {
		if part, ok := v.(map[string]any); ok && c[key] != nil {
			maps.Copy(c[key].(map[string]any), part)
			continue
		}
		c[key] = v
	}
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.folder, "agent.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (a *Agent) launch(t testing.TB) {
	t.Helper()
	a.cmd = exec.Command(Binary(t), "agent", "-config-file", filepath.Join(a.folder, "agent.json"))
	a.cmd.Stdout, a.cmd.Stderr = &a.said, &a.said
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd, exited := a.cmd, make(chan struct{})
	a.exited = exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
		if t.Failed() {
			t.Logf("%s said:\n%s", a.Name, a.said.Tail())
		}
	})
}

// Await waits until the agent knows a leader and is in the catalogue.
func (a *Agent) Await(t testing.TB) {
	t.Helper()
	sidecartest.Eventually(t, 60*time.Second, a.Name+" knows a leader and is in the catalogue", func() bool {
		select {
		case <-a.exited:
			t.Fatalf("%s ended: %s", a.Name, a.said.Tail())
		default:
		}
		var leader string
		var node struct{ Node *struct{ Node string } }
		return a.call("GET", "/v1/status/leader", nil, &leader) == nil && leader != "" &&
			a.call("GET", "/v1/catalog/node/"+a.Name, nil, &node) == nil && node.Node != nil
	})
}

// Running reports whether the agent's process runs.
func (a *Agent) Running() bool {
	if a.cmd == nil {
		return false
	}
	select {
	case <-a.exited:
		return false
	default:
		return true
	}
}

// Kill ends the agent as a crash would, and waits for the process to be gone.
func (a *Agent) Kill(t testing.TB) {
	t.Helper()
	_ = a.cmd.Process.Kill()
	<-a.exited
}

// Lose deletes what a killed agent had stored.
func (a *Agent) Lose(t testing.TB) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(a.folder, "data")); err != nil || a.Running() {
		t.Fatal("the agent runs, or ", err)
	}
}

// Restart starts a killed agent again, with what it had stored, and waits as Start does.
func (a *Agent) Restart(t testing.TB) {
	t.Helper()
	a.Relaunch(t)
	a.Await(t)
}

// Relaunch is Restart without the wait.
func (a *Agent) Relaunch(t testing.TB) {
	t.Helper()
	if a.Running() {
		t.Fatalf("%s runs", a.Name)
	}
	a.launch(t)
}
