// Package registry runs the real sidecar against registries that lie, flap, lose their data or are gone. It consists of
// tests alone.
package registry

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// soak says that the long versions are wanted.
var soak = os.Getenv("SIDECAR_SOAK") != ""

func TestMain(m *testing.M) { sidecartest.Main(m) }

const quiet = "telemetry: {access_log: {format: none}}\n"

// detail is what /services/NAME says, as far as it matters here.
type detail struct {
	Sources []struct {
		Stale      bool   `json:"stale"`
		Error      string `json:"error"`
		Protection *struct {
			Kind   string `json:"kind"`
			Listed int    `json:"listed"`
			Known  int    `json:"known"`
		} `json:"protection"`
	} `json:"sources"`
	Endpoints []struct {
		Address string `json:"address"`
		Doubt   *struct {
			Why   string `json:"why"`
			Check string `json:"check"`
		} `json:"doubt"`
	} `json:"endpoints"`
	LeftOut []struct {
		Address string `json:"address"`
		Why     string `json:"why"`
		Check   string `json:"check"`
		Error   string `json:"error"`
	} `json:"left_out"`
}

func look(t testing.TB, p *sidecartest.Process, service string) detail {
	t.Helper()
	resp, err := http.Get("http://" + p.Admin + "/services/" + service)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var d detail
	if err := json.NewDecoder(resp.Body).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d
}

// protection is what protects the list of the service's first source, and "" if nothing does.
func (d *detail) protection() string {
	if len(d.Sources) == 0 || d.Sources[0].Protection == nil {
		return ""
	}
	return d.Sources[0].Protection.Kind
}

// sees waits until a service has so many endpoints, and a protection.
func sees(t testing.TB, p *sidecartest.Process, service string, endpoints int, protection string) {
	t.Helper()
	var d detail
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(10 * time.Millisecond) {
		if d = look(t, p, service); len(d.Endpoints) == endpoints && d.protection() == protection {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d endpoints, protection %q; want %d and %q: %+v", len(d.Endpoints), d.protection(), endpoints, protection, d)
		}
	}
}

// fleet is endpoints on one port of several loopback addresses.
type fleet struct {
	port    string
	hosts   []string
	origins []*sidecartest.Origin
}

func newFleet(t testing.TB, n int) *fleet {
	t.Helper()
	host, port, _ := net.SplitHostPort(sidecartest.FreeAddress(t))
	net24 := host[:strings.LastIndexByte(host, '.')+1]
	f := &fleet{port: port}
	for i := range n {
		h := fmt.Sprintf("%s%d", net24, 1+i)
		f.hosts = append(f.hosts, h)
		f.origins = append(f.origins, sidecartest.AnswerAt(t, net.JoinHostPort(h, port), sidecartest.OK(h)))
	}
	return f
}

func (f *fleet) addresses() (list []string) {
	for _, h := range f.hosts {
		list = append(list, net.JoinHostPort(h, f.port))
	}
	return list
}

// none fails the test when calls failed, or when there were none.
func none(t testing.TB, l *sidecartest.Load) {
	t.Helper()
	l.Stop()
	if l.Failed > 0 || l.Calls == 0 {
		t.Errorf("%d of %d calls failed: %q", l.Failed, l.Calls, l.Failures)
	}
}

// TestAlternatingList: a list that is full and empty by turns is a registry that is half dead: no call fails, and it is
// seen. When it comes back for good, it is believed again (S-46, S-48).
func TestAlternatingList(t *testing.T) {
	f := newFleet(t, 4)
	path := filepath.Join(t.TempDir(), "list.yaml")
	list := func(addresses ...string) {
		text, _ := json.Marshal(map[string][]string{"svc": addresses})
		if len(addresses) == 0 {
			text = []byte("svc: []\n")
		}
		if err := os.WriteFile(path+".new", text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	list(f.addresses()...)
	p := sidecartest.Run(t, quiet+`
registries: {lists: {file: {path: %q}}}
services: {svc: {from: lists, policy: {retry: 0}}}`, path)
	sees(t, p, "svc", 4, "")
	l := sidecartest.Steady(t, sidecartest.Call{Address: p.Outbound, Host: "svc", Path: "/", Callers: 4, Pause: time.Millisecond})
	for range 4 {
		list()
		sees(t, p, "svc", 4, "half_dead")
		sidecartest.Eventually(t, 20*time.Second, "the metric says so", func() bool {
			return p.Metric(t, "sidecar_discovery_protected", `protection="half_dead"`, `service="svc"`) == 1
		})
		list(f.addresses()...)
		sees(t, p, "svc", 4, "")
	}
	list()
	sees(t, p, "svc", 4, "half_dead")
	for _, e := range look(t, p, "svc").Endpoints {
		if e.Doubt == nil || e.Doubt.Why != "remembered" {
			t.Errorf("%+v", e)
		}
	}
	none(t, l)
	// One that is gone is thrown away, and so is all that nobody answers for.
	f.origins[0].Close()
	f.origins[1].Close()
	sees(t, p, "svc", 2, "half_dead")
	if d := look(t, p, "svc"); len(d.LeftOut) != 2 || d.LeftOut[0].Check != "dead" || d.LeftOut[0].Error == "" {
		t.Errorf("%+v", d.LeftOut)
	}
	if n := p.Metric(t, "sidecar_events_total", `kind="protection"`); n < 9 {
		t.Errorf("%v events", n)
	}
}

// names is a name server that can be killed and started again.
type names struct {
	address string
	mu      sync.Mutex
	hosts   map[string][]string
	servers []*mdns.Server
}

func (n *names) set(name string, hosts ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[name+"."] = hosts
}

func (n *names) ServeDNS(w mdns.ResponseWriter, q *mdns.Msg) {
	m := new(mdns.Msg).SetReply(q)
	n.mu.Lock()
	defer n.mu.Unlock()
	hosts, ok := n.hosts[q.Question[0].Name]
	if !ok {
		m.Rcode = mdns.RcodeNameError
	}
	if q.Question[0].Qtype == mdns.TypeA {
		for _, h := range hosts {
			rr, err := mdns.NewRR(fmt.Sprintf("%s 1 IN A %s", q.Question[0].Name, h))
			if err == nil {
				m.Answer = append(m.Answer, rr)
			}
		}
	}
	_ = w.WriteMsg(m)
}

func startNames(t testing.TB) *names {
	t.Helper()
	n := &names{address: sidecartest.FreeAddress(t), hosts: map[string][]string{}}
	n.start(t)
	t.Cleanup(n.kill)
	return n
}

func (n *names) start(t testing.TB) {
	t.Helper()
	pc, err := net.ListenPacket("udp", n.address)
	if err != nil {
		t.Fatal(err)
	}
	s := &mdns.Server{PacketConn: pc, Handler: n}
	started := make(chan struct{})
	s.NotifyStartedFunc = func() { close(started) }
	go func() { _ = s.ActivateAndServe() }()
	<-started
	n.servers = append(n.servers, s)
}

func (n *names) kill() {
	for _, s := range n.servers {
		_ = s.Shutdown()
	}
	n.servers = nil
}

const withNames = quiet + `
registries: {dns: {dns: {servers: [%q], min_ttl: 100ms, max_ttl: 1s, timeout: 200ms}}}
discovery: {snapshot_dir: %q, half_dead: {hold: 1s}}
services: {svc: {from: dns, hosts: ["svc.test:%s", svc], policy: {retry: 0}}}`

// kept waits until the endpoints are on disk, and returns the file.
func kept(t testing.TB, dir string) string {
	t.Helper()
	var files []string
	sidecartest.Eventually(t, 10*time.Second, "the endpoints are kept", func() bool {
		files, _ = filepath.Glob(filepath.Join(dir, "[^.]*.endpoints")) // not one that is being written
		return len(files) == 1
	})
	return files[0]
}

// TestRegistryAndSidecarRestarted: the registry is dead and the sidecar was killed. The new one serves at once from the disk,
// without a failed call, leaves out who is really gone, and follows the registry when it is back (S-21, S-22, S-47, S-49).
func TestRegistryAndSidecarRestarted(t *testing.T) {
	f, dir, dns := newFleet(t, 4), filepath.Join(t.TempDir(), "kept"), startNames(t)
	dns.set("svc.test", f.hosts...)
	document := fmt.Sprintf(withNames, dns.address, dir, f.port)
	binary := sidecartest.Build(t)
	p := sidecartest.Start(t, binary, document)
	sees(t, p, "svc", 4, "")
	kept(t, dir)
	dns.kill()
	p.Signal(t, syscall.SIGKILL)
	<-p.Exited()
	f.origins[3].Close()

	began := time.Now()
	p = sidecartest.Start(t, binary, document)
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("ready after %v", took)
	}
	l := sidecartest.Steady(t, sidecartest.Call{Address: p.Outbound, Host: "svc", Path: "/", Callers: 4, Pause: time.Millisecond})
	sees(t, p, "svc", 3, "restored")
	d := look(t, p, "svc")
	if len(d.LeftOut) != 1 || d.LeftOut[0].Check != "dead" || !d.Sources[0].Stale || !strings.Contains(d.Sources[0].Error, "disk") {
		t.Errorf("%+v", d)
	}
	sidecartest.Eventually(t, 10*time.Second, "calls are made", func() bool { n, _ := l.Count(); return n > 500 })
	dns.set("svc.test", f.hosts[0], f.hosts[1])
	dns.start(t)
	sees(t, p, "svc", 2, "")
	none(t, l)
}

// TestDamagedSnapshot: what is on disk is damaged, the registry is dead: the sidecar starts all the same, says why, and
// refuses with a reason; when the registry is there it serves.
func TestDamagedSnapshot(t *testing.T) {
	f, dir, dns := newFleet(t, 1), filepath.Join(t.TempDir(), "kept"), startNames(t)
	dns.set("svc.test", f.hosts...)
	document := fmt.Sprintf(withNames, dns.address, dir, f.port)
	binary := sidecartest.Build(t)
	p := sidecartest.Start(t, binary, document)
	sees(t, p, "svc", 1, "")
	file := kept(t, dir)
	dns.kill()
	p.Signal(t, syscall.SIGKILL)
	<-p.Exited()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-3] ^= 1
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p = sidecartest.Start(t, binary, document)
	c := sidecartest.Dial(t, p.Outbound)
	if m := c.Ask(t, "GET / HTTP/1.1\r\nHost: svc\r\n\r\n"); m.Status() != 503 || m.Get("x-sidecar-reason") != "no_endpoints" {
		t.Errorf("%s %q", m.Start, m.Body)
	}
	if n := p.Metric(t, "sidecar_discovery_snapshot_failures_total"); n != 1 {
		t.Errorf("the metric says %v", n)
	}
	sidecartest.Eventually(t, 20*time.Second, "it says why", func() bool { return strings.Contains(p.Said(), "damaged") })
	dns.start(t)
	sees(t, p, "svc", 1, "")
}

// TestSnapshotNotWritable: no folder for the disk is a warning and a metric, not a failed start.
func TestSnapshotNotWritable(t *testing.T) {
	f, dns := newFleet(t, 1), startNames(t)
	dns.set("svc.test", f.hosts...)
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := sidecartest.Start(t, sidecartest.Build(t), fmt.Sprintf(withNames, dns.address, dir, f.port))
	sees(t, p, "svc", 1, "")
	sidecartest.Eventually(t, 10*time.Second, "it is told", func() bool {
		return p.Metric(t, "sidecar_discovery_snapshot_failures_total") > 0 && strings.Contains(p.Said(), "keeping the endpoints of svc")
	})
}
