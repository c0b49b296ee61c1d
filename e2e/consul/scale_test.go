package consul

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// many is a registry of many services, each with ten endpoints, that answers blocking queries as Consul does.
type many struct {
	*httptest.Server
	mu      sync.Mutex
	index   map[string]uint64        // by service, guarded by mu
	changed map[string]chan struct{} // by service, guarded by mu
	waiting int                      // guarded by mu
}

func newMany(t *testing.T) *many {
	t.Helper()
	m := &many{index: map[string]uint64{}, changed: map[string]chan struct{}{}}
	m.Server = httptest.NewServer(http.HandlerFunc(m.serve))
	t.Cleanup(func() {
		m.CloseClientConnections()
		m.Close()
	})
	return m
}

func (m *many) serve(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	m.mu.Lock()
	if m.changed[name] == nil {
		m.index[name], m.changed[name] = 10, make(chan struct{})
	}
	changed := m.changed[name]
	wait := r.URL.Query().Get("index") == strconv.FormatUint(m.index[name], 10)
	if wait {
		m.waiting++
	}
	m.mu.Unlock()
	if wait {
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		m.mu.Lock()
		m.waiting--
		m.mu.Unlock()
	}
	m.mu.Lock()
	index := m.index[name]
	m.mu.Unlock()
	w.Header().Set("X-Consul-Index", strconv.FormatUint(index, 10))
	w.Header().Set("X-Consul-Lastcontact", "0")
	number, _ := strconv.Atoi(strings.TrimPrefix(name, "s"))
	var b strings.Builder
	for i := range 10 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"Node":{"ID":"f0a1","Node":"n%d","Address":"10.0.0.1","Datacenter":"dc1","Meta":{"consul-network-segment":""}},"Service":{"ID":"%s-%d","Service":%q,"Tags":["v%d"],"Address":"10.%d.%d.%d","Meta":{"zone":"z1","version":"v1"},"Port":80,"Weights":{"Passing":%d,"Warning":1}},"Checks":[{"Node":"n","CheckID":"serfHealth","Status":"passing","Output":"Agent alive and reachable"},{"CheckID":"c%d","Status":"passing","Output":"HTTP GET http://10.0.0.1/health: 200 OK"}]}`,
			i, name, i, name, i%3, number/250, number%250, i, 1+index%5, i)
	}
	fmt.Fprintf(w, "[%s]", b.String())
}

func (m *many) change(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.index[name]++
	close(m.changed[name])
	m.changed[name] = make(chan struct{})
}

func (m *many) held() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.waiting
}

// cpu is the CPU time that a process has used.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+2:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

const (
	services = 1000
	changes  = 50
)

// What it costs to watch 1000 services with 10 000 endpoints.
func TestManyServices(t *testing.T) {
	reg := newMany(t)
	watched := func() { // the change was taken, and the next query waits
		sidecartest.Eventually(t, 30*time.Second, "every service is watched", func() bool { return reg.held() == services })
	}
	costs(t, fmt.Sprintf("address: %q, max_connections: %d, wait: 5m", reg.Listener.Addr(), services), watched, func(i int) {
		reg.change(fmt.Sprintf("s%d", 3*i))
		watched()
		<-time.After(60 * time.Millisecond) // changes are taken in after 50 ms of quiet: each by itself
	})
}

// The same of a real Consul: with a connection for each service, and with the connections that it has by default, where services take
// turns.
func TestManyServicesOfConsul(t *testing.T) {
	if !soak {
		t.Skip("ten thousand instances take their time: make soak")
	}
	agent := consultest.Dev(t)
	began := time.Now()
	for node := range 10 {
		agent.Nodes(t, fmt.Sprintf("n%d", node), services, func(i int) consultest.Service { return instance(i, node, 0) })
	}
	t.Logf("%d instances were registered in %v", 10*services, time.Since(began).Round(time.Millisecond))
	version := 0
	for _, connections := range []string{"max_connections: 1000", "max_connections: 128"} {
		t.Run(connections, func(t *testing.T) {
			costs(t, fmt.Sprintf("address: %q, %s", agent.HTTP, connections), func() {}, func(i int) {
				version++
				agent.Nodes(t, "n3", 1, func(int) consultest.Service { return instance(3*i, 3, version) })
				<-time.After(300 * time.Millisecond)
			})
		})
	}
}

// instance is the one of a service on a node, in its version.
func instance(service, node, version int) consultest.Service {
	return consultest.Service{
		ID: fmt.Sprintf("s%d-%d", service, node), Name: fmt.Sprintf("s%d", service), Port: 80,
		Address: fmt.Sprintf("10.%d.%d.%d", service/250, service%250, node), Tags: []string{fmt.Sprintf("v%d", node%3)},
		Meta: map[string]string{"zone": "z1", "version": fmt.Sprintf("v%d", version)},
	}
}

// costs measures what a sidecar that watches all services of a registry costs more than an empty one, while nothing happens and for each
// change.
func costs(t *testing.T, registry string, watched func(), change func(i int)) {
	t.Helper()
	document := fmt.Sprintf("registries: {main: {consul: {%s}}}\ndiscovery: {snapshot_dir: %q}\n", registry, t.TempDir())
	empty := sidecartest.Start(t, sidecartest.Build(t), document)
	var b strings.Builder
	b.WriteString(document + "services:\n")
	for i := range services {
		fmt.Fprintf(&b, "  s%d: {from: main}\n", i)
	}
	p := sidecartest.Start(t, sidecartest.Build(t), b.String())
	updates := func() float64 { return p.Metric(t, "sidecar_discovery_updates_total", `source="main"`) }
	sidecartest.Eventually(t, 30*time.Second, "every service is known", func() bool { return updates() == services })
	watched()
	<-time.After(8 * time.Second) // the first lists are stored on disk
	for range 20 {                // on a busy machine the start takes longer
		before := cpu(t, p.PID)
		<-time.After(2 * time.Second)
		if cpu(t, p.PID)-before <= 40*time.Millisecond {
			break
		}
	}
	over := p.ResidentKB(t) - empty.ResidentKB(t)

	before := cpu(t, p.PID)
	const idle = 10 * time.Second
	<-time.After(idle)
	idling := cpu(t, p.PID) - before

	before = cpu(t, p.PID)
	for i := range changes {
		change(i)
	}
	each := (cpu(t, p.PID) - before) / changes
	sidecartest.Eventually(t, 20*time.Second, "all changes were seen", func() bool { return updates() == services+changes })
	t.Logf("%d kB over an empty sidecar, %v CPU in %v of idling, %v CPU a change", over, idling, idle, each)
	if over > 60<<10 {
		t.Errorf("%d kB over an empty sidecar", over)
	}
	if idling > idle*2/100 {
		t.Errorf("%v CPU in %v of idling", idling, idle)
	}
	if each > 20*time.Millisecond {
		t.Errorf("%v CPU a change", each)
	}
}

// Five of fifty registries' answers never come: the other services are usable within a second (S-26). A busy machine only adds: one of
// a few starts has to show it.
func TestBlackHoles(t *testing.T) {
	reg := newMany(t)
	hole := sidecartest.Serve(t, func(c *sidecartest.Conn) { _, _ = c.Request(); <-t.Context().Done() })
	var b strings.Builder
	fmt.Fprintf(&b, "registries: {main: {consul: {address: %q}}, hole: {consul: {address: %q}}}\nservices:\n", reg.Listener.Addr(), hole.Address)
	for i := range 50 {
		from := "main"
		if i%10 == 0 {
			from = "hole"
		}
		fmt.Fprintf(&b, "  s%d: {from: %s}\n", i, from)
	}
	fastest := time.Hour
	for range 10 {
		began := time.Now()
		p := sidecartest.Launch(t, sidecartest.Build(t), b.String())
		sidecartest.Eventually(t, 30*time.Second, "the listener is open", func() bool { return sidecartest.Dials(p.Outbound) })
		took := time.Since(began)
		t.Logf("serving after %v", took)
		if fastest = min(fastest, took); fastest <= time.Second {
			break
		}
		p.Signal(t, syscall.SIGKILL)
	}
	if fastest > time.Second {
		t.Errorf("serving after %v", fastest)
	}
}
