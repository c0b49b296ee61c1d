// Package twin plays small scenarios twice: with `sidecar simulate`'s engine, and with the real binary, real sockets and real
// time, under the same policies. That both agree within stated tolerances is what makes the simulator worth believing. It
// consists of tests alone.
package twin

import (
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
	"github.com/sidecar-mesh/sidecar/simulate"
)

func TestMain(m *testing.M) { sidecartest.Main(m) }

// The tolerances. A shared machine is late now and then. It is early only where calls wait for each other: one that came late
// finds a shorter queue.
const (
	successApart = 0.08                  // of all calls
	loadApart    = 0.15                  // attempts per call
	late         = 60 * time.Millisecond // of P50 and P90
	early        = 20 * time.Millisecond
)

// twin is a scenario with one service, svc, whose traffic comes at equal gaps.
type twin struct {
	name     string
	duration time.Duration
	rate     int
	policy   string // of svc
	world    string // classes of nodes with a fixed latency
	faults   string
}

func twins() []twin {
	const s = time.Second
	return []twin{
		{
			"a retry leaves a node that hangs (S-142)", 4 * s, 60, "{per_try_timeout: 200ms, retry: 1, outlier: none, breaker: none}",
			"[{count: 12, latency: 20ms}]", "[{at: 1s, service: svc, nodes: 1, hang: true}]",
		},
		{
			"a connect that is refused is retried at once", 4 * s, 60, "{retry: 1, outlier: none, breaker: none}",
			"[{count: 4, latency: 20ms}]", "[{at: 1s, service: svc, nodes: 1, refuse: true}]",
		},
		{
			"a breaker opens, probes and closes (S-150)", 6 * s, 60,
			"{outlier: none, breaker: {request_volume: 20, window: 2s, buckets: 4, sleep_window: 500ms}}",
			"[{count: 3, latency: 20ms}]", "[{at: 1s, until: 4s, service: svc, errors: 100%}]",
		},
		{
			"a sick node is ejected (S-51)", 4 * s, 60, "{retry: 1, breaker: none, outlier: {consecutive_failures: 5}}",
			"[{count: 5, latency: 20ms}]", "[{at: 1s, service: svc, nodes: 1, errors: 100%}]",
		},
		{
			"backup requests pass a slow node (S-145)", 4 * s, 60,
			"{lb: round_robin, outlier: none, backup: {after: 100ms, max_ratio: 50%}}",
			"[{name: slow, count: 1, latency: 400ms}, {name: fast, count: 3, latency: 20ms}]", "[]",
		},
		{
			"dual-send takes the faster of two (S-144)", 4 * s, 40, "{dual_send: true, outlier: none}",
			"[{name: slow, count: 1, latency: 150ms}, {name: fast, count: 1, latency: 20ms}]", "[]",
		},
		{
			"a limit with a short queue (S-187)", 4 * s, 60, "{timeout: 5s, breaker: none, outlier: none, limit: {in_flight: 4, waiting: 2}}",
			"[{count: 2, latency: 100ms}]", "[]",
		},
	}
}

// seen is what is compared.
type seen struct {
	success, load float64
	p50, p90      time.Duration
}

func TestTwins(t *testing.T) {
	for _, w := range twins() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			s, err := simulate.Load(w.name, []byte(w.scenario()))
			if err != nil {
				t.Fatal(err)
			}
			r, err := simulate.Run(s)
			if err != nil {
				t.Fatal(err)
			}
			f := r.Variants[0].Traffic[0]
			virtual := seen{f.Success, f.Load, f.P50, f.P90}
			tries(t, func() (wrong string) {
				real := w.play(t, s)
				t.Logf("virtual %+v, real %+v", virtual, real)
				if math.Abs(virtual.success-real.success) > successApart || math.Abs(virtual.load-real.load) > loadApart ||
					apart(virtual.p50, real.p50) || apart(virtual.p90, real.p90) {
					return fmt.Sprintf("they do not agree: virtual %+v, real %+v", virtual, real)
				}
				return ""
			})
		})
	}
}

// tries plays until nothing is wrong, a few times at most: what other programs do to a time is another thing each time, and a fault of
// ours is there each time. Where this machine was late by itself in all of them, there is nothing to be said.
func tries(t *testing.T, play func() (wrong string)) {
	t.Helper()
	quiet, wrong := false, ""
	for range 4 {
		stop := lateness()
		wrong = play()
		behind := stop()
		if wrong == "" {
			return
		}
		t.Logf("this machine was %v late: %s", behind, wrong)
		quiet = quiet || behind < late/6
	}
	if !quiet {
		t.Skip("this machine is too busy to compare times")
	}
	t.Error(wrong)
}

// lateness measures how late this machine wakes who sleeps: the P90 of it until stop.
func lateness() (stop func() time.Duration) {
	const nap = 20 * time.Millisecond
	var over []time.Duration
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			start := time.Now()
			select {
			case <-ended:
				return
			case <-time.After(nap):
				over = append(over, time.Since(start)-nap)
			}
		}
	}()
	return func() time.Duration {
		close(ended)
		<-done
		if len(over) == 0 {
			return nap
		}
		slices.Sort(over)
		return over[len(over)*9/10]
	}
}

func apart(virtual, real time.Duration) bool { return real > virtual+late || real < virtual-early }

func (w *twin) scenario() string {
	return fmt.Sprintf("duration: %s\nconfig: {services: {svc: {policy: %s}}}\nworld: {svc: %s}\ntraffic: [{to: svc, rate: %d/s, even: true}]\nfaults: %s\n",
		w.duration, w.policy, w.world, w.rate, w.faults)
}

// play has the real binary live through the scenario.
func (w *twin) play(t *testing.T, s *simulate.Scenario) seen {
	var nodes []*node
	for _, class := range s.World["svc"].Nodes {
		for range class.Count {
			nodes = append(nodes, newNode(t, func() time.Duration { return class.Latency.At(0) }))
		}
	}
	addresses := make([]string, len(nodes))
	for i, n := range nodes {
		addresses[i] = fmt.Sprintf("%q", n.address)
	}
	p := sidecartest.Run(t, "telemetry: {access_log: {format: none}}\nservices: {svc: {endpoints: [%s], policy: %s}}\n",
		strings.Join(addresses, ", "), w.policy)
	for i := range s.Faults {
		f := &s.Faults[i]
		hit := nodes
		if f.Nodes > 0 {
			hit = nodes[:f.Nodes]
		}
		time.AfterFunc(f.At, func() {
			for _, n := range hit {
				n.begin(f)
			}
		})
		if f.Until > 0 {
			time.AfterFunc(f.Until, func() {
				for _, n := range hit {
					n.fault.Store(nil)
				}
			})
		}
	}
	calls := load(p.Outbound, w.rate, w.duration)
	good, times := 0, make([]time.Duration, len(calls))
	for i, c := range calls {
		times[i] = c.took
		if c.status > 0 && c.status < 500 {
			good++
		}
	}
	slices.Sort(times)
	at := func(q float64) time.Duration { return times[int(math.Ceil(q*float64(len(times))))-1] }
	attempts := p.Metric(t, "sidecar_attempts_total", "service", "svc")
	return seen{float64(good) / float64(len(calls)), attempts / float64(len(calls)), at(0.5), at(0.9)}
}

// node is an endpoint that takes a time of a distribution, and has faults.
type node struct {
	address string
	latency func() time.Duration
	served  atomic.Int64
	fault   atomic.Pointer[simulate.Fault]
	server  *http.Server
	release chan struct{} // closed at the end: what hangs ends
}

func newNode(t *testing.T, latency func() time.Duration) *node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{address: l.Addr().String(), latency: latency, release: make(chan struct{})}
	n.server = &http.Server{Handler: n, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = n.server.Serve(l) })
	t.Cleanup(func() {
		close(n.release)
		_ = n.server.Close()
		serving.Wait()
	})
	return n
}

func (n *node) begin(f *simulate.Fault) {
	if f.Refuse {
		_ = n.server.Close()
		return
	}
	n.fault.Store(f)
}

// ServeHTTP implements http.Handler.
func (n *node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := n.fault.Load()
	n.served.Add(1)
	wait := time.After(n.latency())
	if f != nil && f.Hang {
		wait = nil
	}
	select {
	case <-wait:
	case <-n.release:
	case <-r.Context().Done():
		return
	}
	if f != nil && f.Errors > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// done is a call that is over.
type done struct {
	status int
	took   time.Duration
}

// load makes calls at equal gaps, whether those before are over or not.
func load(proxy string, rate int, duration time.Duration) []done {
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 200}}
	defer client.CloseIdleConnections()
	calls := make([]done, int(duration.Seconds()*float64(rate)))
	gap := time.NewTicker(time.Second / time.Duration(rate))
	defer gap.Stop()
	var all sync.WaitGroup
	for i := range calls {
		<-gap.C
		all.Go(func() { calls[i] = call(&client, proxy) })
	}
	all.Wait()
	return calls
}

func call(client *http.Client, proxy string) done {
	q, err := http.NewRequest(http.MethodGet, "http://"+proxy+"/", nil)
	if err != nil {
		return done{}
	}
	q.Host = "svc"
	start := time.Now()
	r, err := client.Do(q)
	d := done{took: time.Since(start)}
	if err == nil {
		d.status = r.StatusCode
		_ = r.Body.Close()
	}
	return d
}
