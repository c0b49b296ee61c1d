package consul

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	configs "github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
	source "github.com/sidecar-mesh/sidecar/discovery/consul"
	"github.com/sidecar-mesh/sidecar/discovery/guard"
	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// meter stands before an agent and counts what it answers.
type meter struct {
	*httptest.Server
	keys, endpoints tally
}

// tally is what was answered to one kind of query.
type tally struct{ answers, bytes atomic.Int64 }

func (c *tally) read() (answers, bytes int64) { return c.answers.Load(), c.bytes.Load() }

func newMeter(t *testing.T, agent *consultest.Agent) *meter {
	t.Helper()
	m := new(meter)
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: agent.HTTP})
	transport := &http.Transport{MaxIdleConnsPerHost: 4096}
	forward.Transport = transport
	forward.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	forward.ModifyResponse = func(r *http.Response) error {
		c := &m.endpoints
		if strings.HasPrefix(r.Request.URL.Path, "/v1/kv/") {
			c = &m.keys
		}
		c.answers.Add(1)
		r.Body = &counted{ReadCloser: r.Body, bytes: &c.bytes}
		return nil
	}
	m.Server = httptest.NewServer(forward)
	t.Cleanup(func() {
		m.CloseClientConnections()
		m.Close()
		transport.CloseIdleConnections()
	})
	return m
}

// counted is a body that counts what is read of it.
type counted struct {
	io.ReadCloser
	bytes *atomic.Int64
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// consumer is what of a sidecar asks Consul: the watch of a service's endpoints and that of the config centre's documents.
type consumer struct {
	gate      *discovery.Gate
	port      atomic.Int64 // the highest port that was reported
	documents atomic.Int64 // how many there are in force
	failures  atomic.Int64
}

// crowd starts consumers of the service web that ask the agent at address.
func crowd(t *testing.T, address string, n int, documents bool) []*consumer {
	t.Helper()
	cfg, err := configs.LoadBytes("crowd", fmt.Appendf(nil, "registries: {main: {consul: {address: %q, wait: 5m}}}", address), configs.RankFile, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	all := make([]*consumer, n)
	for i := range all {
		c := &consumer{gate: discovery.NewGate(fmt.Sprintf("consumer-%04d", i), nil)}
		all[i] = c
		s, err := source.New(cfg.Registries["main"])
		if err != nil {
			t.Fatal(err)
		}
		s.Gate(c.gate.Wait)
		want := make(chan []string, 1)
		want <- []string{"web"}
		running.Go(func() { _ = s.Run(ctx, want, c.hear) })
		if !documents {
			continue
		}
		kv, err := source.NewKV(cfg.Registries["main"], "sidecar/")
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			defer kv.Close()
			center := configs.NewCenter(os.LookupEnv)
			kv.Watch(ctx, func(docs []configs.Document, _ bool) {
				center.Set(docs)
				c.documents.Store(int64(len(center.States())))
			}, func(error) { c.failures.Add(1) })
		})
	}
	return all
}

// hear takes what the endpoint watch reports.
func (c *consumer) hear(u discovery.Update) {
	if u.Err != nil {
		c.failures.Add(1)
	}
	for _, e := range u.Endpoints {
		_, text, _ := strings.Cut(e.Address, ":")
		port, _ := strconv.ParseInt(text, 10, 64)
		c.port.Store(max(c.port.Load(), port))
	}
}

// behind is how many have not heard of a port.
func behind(all []*consumer, port int) (n int) {
	for _, c := range all {
		if c.port.Load() < int64(port) {
			n++
		}
	}
	return n
}

// failures is how many queries failed.
func failures(all []*consumer) (n int64) {
	for _, c := range all {
		n += c.failures.Load()
	}
	return n
}

// flap takes an instance of web out and registers it anew, at another port.
func flap(t *testing.T, agent *consultest.Agent, port int) {
	t.Helper()
	agent.Deregister(t, "web-flapping")
	agent.Register(t, consultest.Service{ID: "web-flapping", Name: "web", Address: "127.0.0.1", Port: port})
}

// registerWeb registers the service web: one instance that stays and one that will flap.
func registerWeb(t *testing.T, agent *consultest.Agent, port int) {
	t.Helper()
	agent.RegisterAt(t, "web", "127.0.0.1:8080")
	agent.Register(t, consultest.Service{ID: "web-flapping", Name: "web", Address: "127.0.0.1", Port: port})
}

// An instance that flaps costs endpoints and no policy: of a published policy of 120 methods not a byte is sent again to any
// of those that watch both (S-9). A change of the policy shows that it would be counted.
func TestFlapsCarryNoPolicy(t *testing.T) {
	consumers, flaps, every := 30, 3, 300*time.Millisecond
	if soak {
		consumers, flaps, every = 300, 20, time.Second
	}
	agent := consultest.Dev(t)
	m := newMeter(t, agent)
	port := 10_000
	registerWeb(t, agent, port)
	publish(t, agent, 120, "1s")
	all := crowd(t, m.Listener.Addr().String(), consumers, true)
	sidecartest.Eventually(t, 30*time.Second, "all know the instances and the policy", func() bool {
		return behind(all, port) == 0 && !slices.ContainsFunc(all, func(c *consumer) bool { return c.documents.Load() != 1 })
	})
	_, first := m.keys.read()
	if first < int64(consumers)*120*10 {
		t.Fatalf("%d bytes of policy for %d consumers: that is not 120 methods", first, consumers)
	}
	keyAnswers, keyBytes := m.keys.read()
	answers, bytes := m.endpoints.read()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for range flaps {
		<-tick.C
		port++
		flap(t, agent, port)
		sidecartest.Eventually(t, 10*time.Second, "all know of the flap", func() bool { return behind(all, port) == 0 })
	}
	a, b := m.keys.read()
	ea, eb := m.endpoints.read()
	t.Logf("%d consumers, %d bytes of policy each at first; %d flaps: %d bytes of policy in %d answers, %d bytes of endpoints in %d answers; %d failures",
		consumers, first/int64(consumers), flaps, b-keyBytes, a-keyAnswers, eb-bytes, ea-answers, failures(all))
	if a != keyAnswers || b != keyBytes {
		t.Errorf("%d flaps sent %d bytes of policy in %d answers", flaps, b-keyBytes, a-keyAnswers)
	}
	if ea-answers < int64(consumers*flaps) {
		t.Errorf("%d answers with endpoints", ea-answers)
	}
	if n := failures(all); n > 0 {
		t.Errorf("%d queries failed", n)
	}
	publish(t, agent, 120, "2s")
	sidecartest.Eventually(t, 20*time.Second, "a change of the policy reaches all, and is counted", func() bool {
		_, now := m.keys.read()
		return now-b >= first
	})
}

// publish writes the policy of web, with those of its methods, as a provider does.
func publish(t *testing.T, agent *consultest.Agent, methods int, timeout string) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "registries: {main: {consul: {address: %q}}}\nconfig_center: {consul: {registry: main}}\n", agent.HTTP)
	b.WriteString("inbound:\n  - service: web\n    app: \"127.0.0.1:1\"\n    policy: {timeout: 5s}\n    routes:\n")
	for i := range methods {
		fmt.Fprintf(&b, "      - {name: method-%d, match: POST /method-%d, policy: {timeout: %s, retry: 0}}\n", i, i, timeout)
	}
	file := filepath.Join(t.TempDir(), "provider.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(sidecartest.Build(t), "config", "publish", "--methods", "-c", file).CombinedOutput()
	if err != nil || string(out) != "published/web: written\n" {
		t.Fatalf("%v: %s", err, out)
	}
}

// A closed update gate keeps most from asking while an instance flaps; opened, all know of what they missed within 10 s, though
// it goes on flapping (S-40).
func TestOpenedGateLetsAllCatchUp(t *testing.T) {
	watchers := 100
	if soak {
		watchers = 1000
	}
	agent := consultest.Dev(t)
	port := 10_000
	registerWeb(t, agent, port)
	all := crowd(t, agent.HTTP, watchers, false)
	sidecartest.Eventually(t, 60*time.Second, "all know the instances", func() bool { return behind(all, port) == 0 })
	for _, c := range all {
		c.gate.Set(guard.Gate{Closed: true, Share: 0.1, Epoch: time.Hour}, "test")
	}
	waiting := func() (n int) {
		for _, c := range all {
			n += c.gate.State().Waiting
		}
		return n
	}
	// The query that each has under way still answers; then it waits.
	sidecartest.Eventually(t, 60*time.Second, "most wait at the gate", func() bool {
		port++
		flap(t, agent, port)
		<-time.After(100 * time.Millisecond)
		return waiting() >= watchers*8/10
	})
	held := waiting()
	for range 3 {
		port++
		flap(t, agent, port)
	}
	if n := behind(all, port); n < watchers*8/10 {
		t.Fatalf("%d of %d do not know of the flaps, with %d at a closed gate", n, watchers, held)
	}
	began, missed := time.Now(), port
	for _, c := range all {
		c.gate.Set(guard.Gate{}, "test")
	}
	flaps := 0
	sidecartest.Eventually(t, 30*time.Second, "all know what they missed", func() bool {
		if due := int(time.Since(began) / time.Second); due > flaps {
			flaps = due
			port++
			flap(t, agent, port)
		}
		return behind(all, missed) == 0
	})
	took := time.Since(began)
	t.Logf("%d of %d waited at the closed gate; opened, all knew after %v; %d failures", held, watchers, took, failures(all))
	if took >= 10*time.Second {
		t.Errorf("all knew only %v after the gate was opened", took)
	}
	if n := failures(all); n > 0 {
		t.Errorf("%d queries failed", n)
	}
}

// While an instance flaps once a second, a closed update gate lets through a tenth of the answers' bytes, and within ten epochs
// each watcher knows what was changed before (S-40). It takes two minutes; discovery tests the same in virtual time.
func TestClosedGateCutsBytes(t *testing.T) {
	if !soak {
		t.Skip("a share of ten epochs takes its time: make soak")
	}
	const watchers, epoch, every = 1000, 9 * time.Second, time.Second
	agent := consultest.Dev(t)
	m := newMeter(t, agent)
	port := 10_000
	registerWeb(t, agent, port)
	all := crowd(t, m.Listener.Addr().String(), watchers, false)
	sidecartest.Eventually(t, 60*time.Second, "all know the instances", func() bool { return behind(all, port) == 0 })
	// flapping returns the bytes a flap. A machine that is too slow to tell all of them of a flap within a second waits for that.
	flapping := func(d time.Duration, all []*consumer) float64 {
		_, before := m.endpoints.read()
		tick := time.NewTicker(every)
		defer tick.Stop()
		flaps := 0
		for began := time.Now(); time.Since(began) < d; flaps++ {
			<-tick.C
			port++
			flap(t, agent, port)
			sidecartest.Eventually(t, 20*time.Second, "all know of the flap", func() bool { return behind(all, port) == 0 })
		}
		_, now := m.endpoints.read()
		return float64(now-before) / float64(flaps)
	}
	open := flapping(10*every, all)
	for _, c := range all {
		c.gate.Set(guard.Gate{Closed: true, Share: 0.1, Epoch: epoch}, "test")
	}
	flapping(2*time.Second, nil) // the query that each has under way still answers
	known := port
	closed := flapping(10*epoch+time.Second, nil)
	answers, bytes := m.endpoints.read()
	one := float64(watchers) * float64(bytes) / float64(answers) // what it costs to answer each of them once
	t.Logf("%d watchers: %.0f bytes a flap with the gate open, %.0f closed: %.3f, and %.3f of one answer to each; %d failures",
		watchers, open, closed, closed/open, closed/one, failures(all))
	if ratio := closed / open; ratio > 0.13 {
		t.Errorf("%.3f of the bytes", ratio)
	}
	// On a busy machine a flap is told in two answers, so that the share of what was sent with the gate open is smaller.
	if share := closed / one; share < 0.08 || share > 0.13 {
		t.Errorf("%.3f of one answer to each", share)
	}
	if n := behind(all, known); n > 0 {
		t.Errorf("%d of %d do not know after ten epochs", n, watchers)
	}
	if n := failures(all); n > 0 {
		t.Errorf("%d queries failed", n)
	}
}
