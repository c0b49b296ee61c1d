package twin

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
	"github.com/sidecar-mesh/sidecar/simulate"
)

// tailWorld has the shape of S-146, four times as slow, so that what a busy machine adds is little: P99 is twenty times P50, and
// P999 five times P99. It is steep at P90, so that being late makes no call slow.
const tailWorld = "[{count: 4, latency: {min: 20ms, p50: 40ms, p89: 80ms, p91: 400ms, p99: 800ms, p999: 4s, max: 5s}}]"

// spread draws from a distribution so evenly that each thousand draws have its P999.
func spread(l *simulate.Latency) func() time.Duration {
	const golden = 0.6180339887498949
	var n atomic.Int64
	return func() time.Duration {
		_, u := math.Modf(float64(n.Add(1)) * golden)
		return l.At(u)
	}
}

// played is what came of a policy, in one of the worlds.
type played struct {
	load      float64 // attempts per call
	p999      time.Duration
	good, bad int
}

// backups plays the same calls under a policy in virtual time and on real sockets. The first calls teach the wait, and do not
// count.
func backups(t *testing.T, policy, world string, rate int, teach, duration time.Duration) (virtual, real played) {
	t.Helper()
	text := fmt.Sprintf("duration: %s\nstep: 1s\nconfig: {services: {svc: {policy: %s}}}\nworld: {svc: %s}\ntraffic:\n"+
		"  - {name: teach, to: svc, rate: %d/s, even: true, until: %s}\n  - {name: app, to: svc, rate: %d/s, even: true, from: %s}\n",
		teach+duration, policy, world, rate, max(teach, time.Millisecond), rate, teach)
	s, err := simulate.Load(t.Name(), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := simulate.Run(s)
	if err != nil {
		t.Fatal(err)
	}
	f := r.Variants[0].Traffic[1]
	virtual = played{f.Load, f.P999, f.Good, 0}

	class := &s.World["svc"].Nodes[0]
	draw := spread(&class.Latency)
	var addresses []string
	for range class.Count {
		addresses = append(addresses, fmt.Sprintf("%q", newNode(t, draw).address))
	}
	p := sidecartest.Run(t, "telemetry: {access_log: {format: none}}\nservices: {svc: {endpoints: [%s], policy: %s}}\n",
		strings.Join(addresses, ", "), policy)
	before := 0.0
	if teach > 0 {
		load(p.Outbound, rate, teach)
		before = p.Metric(t, "sidecar_attempts_total", "service", "svc")
	}
	calls := load(p.Outbound, rate, duration)
	real.load = (p.Metric(t, "sidecar_attempts_total", "service", "svc") - before) / float64(len(calls))
	var times []time.Duration
	for _, c := range calls {
		times = append(times, c.took)
		if c.status == 200 {
			real.good++
		}
	}
	slices.Sort(times)
	real.p999 = times[int(math.Ceil(0.999*float64(len(times))))-1]
	real.bad = len(calls) - real.good
	t.Logf("virtual %+v, real %+v", virtual, real)
	return virtual, real
}

// TestBackupsCutTheTail: a backup at P90 makes P999 at least three times shorter, for at most 1.12 × the load (S-146).
func TestBackupsCutTheTail(t *testing.T) {
	const common = "outlier: none, breaker: none, timeout: 20s"
	tries(t, func() (wrong string) {
		var plain, backup [2]played
		plain[0], plain[1] = backups(t, "{"+common+"}", tailWorld, 200, 0, 10*time.Second)
		backup[0], backup[1] = backups(t, "{"+common+", backup: {after: p90, max_ratio: 15%}}", tailWorld, 200, 3*time.Second, 10*time.Second)
		for i, world := range []string{"virtual", "real"} {
			if plain[i].p999 < 3*backup[i].p999 {
				wrong += fmt.Sprintf("%s: P999 is %s with backup requests and %s without\n", world, backup[i].p999, plain[i].p999)
			}
			if backup[i].load > 1.12 || backup[i].load < 1.05 || plain[i].load != 1 {
				wrong += fmt.Sprintf("%s: load %.3f with backup requests, %.3f without\n", world, backup[i].load, plain[i].load)
			}
			if plain[i].bad+backup[i].bad > 0 {
				wrong += fmt.Sprintf("%s: %d and %d calls failed\n", world, plain[i].bad, backup[i].bad)
			}
		}
		return wrong
	})
}

// TestBackupsWhenAllIsSlow: where each call is slower than the wait, backup requests stay within their bound: 1.15 × the load
// (S-147).
func TestBackupsWhenAllIsSlow(t *testing.T) {
	t.Parallel()
	tries(t, func() (wrong string) {
		virtual, real := backups(t, "{outlier: none, breaker: none, backup: {after: 200ms, max_ratio: 15%}}", "[{count: 4, latency: 600ms}]", 60, 0, 5*time.Second)
		for _, p := range []played{virtual, real} {
			if p.load > 1.15 || p.load < 1.10 || p.bad > 0 {
				wrong += fmt.Sprintf("load %.3f, %d calls failed\n", p.load, p.bad)
			}
		}
		return wrong
	})
}

// TestAdaptive: behind the first minute the slow node of five has three turns where the others have five (S-104).
func TestAdaptive(t *testing.T) {
	if os.Getenv("SIDECAR_SOAK") == "" {
		t.Skip("it takes a minute and a half: SIDECAR_SOAK=1")
	}
	t.Parallel()
	const rate, ranked, whole = 40, 65 * time.Second, 85 * time.Second
	const policy = "{lb: adaptive, outlier: none, breaker: none}"
	s, err := simulate.Load("adaptive", fmt.Appendf(nil, "duration: %s\nstep: 1s\nconfig: {services: {svc: {policy: %s}}}\n"+
		"world: {svc: [{name: slow, count: 1, latency: 200ms}, {name: fast, count: 4, latency: 20ms}]}\ntraffic: [{to: svc, rate: %d/s, even: true}]\n"+
		"expect:\n  - requests(slow)@65s-85s >= 0.11 * calls@65s-85s\n  - requests(slow)@65s-85s <= 0.15 * calls@65s-85s\n  - requests(slow)@0s-59s >= 0.18 * calls@0s-59s\n", whole, policy, rate))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := simulate.Run(s); err != nil || !r.Met() {
		t.Errorf("virtual: %v\n%s", err, r.Text())
	}
	var nodes []*node
	var addresses []string
	for i := range 5 {
		took := 20 * time.Millisecond
		if i == 0 {
			took *= 10
		}
		nodes = append(nodes, newNode(t, func() time.Duration { return took }))
		addresses = append(addresses, fmt.Sprintf("%q", nodes[i].address))
	}
	p := sidecartest.Run(t, "telemetry: {access_log: {format: none}}\nservices: {svc: {endpoints: [%s], policy: %s}}\n", strings.Join(addresses, ", "), policy)
	share := func(d time.Duration) float64 {
		before := nodes[0].served.Load()
		calls := load(p.Outbound, rate, d)
		return float64(nodes[0].served.Load()-before) / float64(len(calls))
	}
	early := share(ranked)
	late := share(whole - ranked)
	t.Logf("the slow node has %.3f of the calls of the first %s, then %.3f", early, ranked, late)
	if early < 0.17 || late < 0.11 || late > 0.15 { // 3 of 23 turns are 0.130
		t.Errorf("the slow node has %.3f, then %.3f of the calls", early, late)
	}
}
