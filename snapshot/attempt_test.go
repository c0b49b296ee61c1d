package snapshot_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/balance"
	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

var (
	served = resilience.Outcome{Kind: resilience.Answered, Status: 200}
	broke  = resilience.Outcome{Kind: resilience.Answered, Status: 503}
)

// guardedBy compiles a service of two endpoints whose breaker is as written.
func guardedBy(t *testing.T, prev *snapshot.Snapshot, breaker string) (*snapshot.Snapshot, *snapshot.Service) {
	t.Helper()
	cfg, err := config.LoadBytes("test.yaml", []byte(strings.Replace(`services:
  a:
    endpoints: [10.0.0.1:80, 10.0.0.2:80]
    policy: {breaker: BREAKER}
`, "BREAKER", breaker, 1)), config.RankFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	mesh := &config.Mesh{Config: cfg, Endpoints: map[string]*config.EndpointSet{"a": {List: cfg.Services["a"].Endpoints}}}
	s, err := snapshot.Compile(mesh, prev, snapshot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := s.Outbound.Get("a")
	return s, a
}

const perEndpoint = "{per: endpoint, request_volume: 4, sleep_window: 5s}"

func admit(t *testing.T, e *snapshot.Endpoint, now time.Time, ok, probe bool) resilience.Ticket {
	t.Helper()
	v := e.Admit(now)
	if v.OK != ok || v.Probe != probe {
		t.Fatalf("admission %+v", v)
	}
	return v.Ticket
}

// TestBreakerOfEndpoint: what the breaker decides is what balancers see, from the first failure to the end of slow start.
func TestBreakerOfEndpoint(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	_, a := guardedBy(t, nil, perEndpoint)
	e := a.Endpoints[0]
	state := func(bits uint32, until time.Duration) {
		t.Helper()
		if got := e.Meter.State.Load(); got != bits {
			t.Fatalf("state %s, want %s", balance.StateText(got), balance.StateText(bits))
		}
		if got := time.Unix(0, e.Meter.OpenUntil.Load()).Sub(now); bits != 0 && got != until {
			t.Fatalf("open for %v, want %v", got, until)
		}
	}
	late := admit(t, e, now, true, false)
	for i := range 4 {
		want := resilience.Unchanged
		if i == 3 {
			want = resilience.Opened
		}
		if got := e.Tried(now, admit(t, e, now, true, false), broke); got != want {
			t.Fatalf("failure %d: %v", i, got)
		}
	}
	state(balance.StateOpen, 5*time.Second)
	if a.Endpoints[1].Breaker == e.Breaker || !a.Endpoints[1].Usable() || a.Usable() != 1 || a.Available() != 1 {
		t.Error("its neighbour is open as well")
	}
	if a.Rest.Breaker.State(now) != resilience.Closed {
		t.Error("attempts were counted as calls")
	}
	if got := e.Tried(now, late, served); got != resilience.Unchanged {
		t.Errorf("one that was under way: %v", got)
	}
	admit(t, e, now, false, false)

	now = now.Add(5 * time.Second)
	probe := admit(t, e, now, true, true)
	admit(t, e, now, false, false)
	state(balance.StateOpen, 5*time.Second) // until the probe is back, or given up
	e.Untried(now, probe)                   // it was cancelled: the next may ask
	state(balance.StateOpen, 0)
	e.Tried(now, admit(t, e, now, true, true), resilience.Outcome{Kind: resilience.Gone})
	state(balance.StateOpen, 0)
	if got := e.Tried(now, admit(t, e, now, true, true), broke); got != resilience.Reopened {
		t.Fatalf("a probe that failed: %v", got)
	}
	state(balance.StateOpen, 5*time.Second)
	now = now.Add(5 * time.Second)
	if got := e.Tried(now, admit(t, e, now, true, true), served); got != resilience.ClosedAgain {
		t.Fatalf("a probe that succeeded: %v", got)
	}
	state(0, 0)
	if e.Meter.Since.Load() != now.UnixNano() {
		t.Error("no slow start")
	}
}

// TestBreakerOfEndpointAcrossReloads: the same numbers go on with the same breaker, others begin closed, and none leaves
// nobody out, even when a call of before opens the old one.
func TestBreakerOfEndpointAcrossReloads(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	open := func(e *snapshot.Endpoint) {
		for range 4 {
			e.Tried(now, e.Admit(now).Ticket, broke)
		}
	}
	first, a := guardedBy(t, nil, perEndpoint)
	was := a.Endpoints[0]
	open(was)
	second, a := guardedBy(t, first, perEndpoint)
	if a.Endpoints[0].Breaker != was.Breaker || a.Endpoints[0].Usable() {
		t.Error("a reload forgets")
	}
	for _, other := range []string{"{per: endpoint, request_volume: 9}", "{per: service}", "none"} {
		_, a := guardedBy(t, second, other)
		e := a.Endpoints[0]
		e.Shut(now)
		if !e.Usable() {
			t.Errorf("%s: still open", other)
		}
		open(was)
		if v := e.Admit(now); !v.OK || !e.Usable() {
			t.Errorf("%s: a breaker that is gone keeps calls away: %+v", other, v)
		}
	}
}

// TestBreakerOfEndpointInARush: whatever many calls at once make of it, an endpoint that is well in the end is used in the end.
func TestBreakerOfEndpointInARush(t *testing.T) {
	_, a := guardedBy(t, nil, "{per: endpoint, request_volume: 4, sleep_window: 5ms, half_open_probes: 2}")
	e := a.Endpoints[0]
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			now := time.Unix(1_700_000_000, 0)
			for i := range 5000 {
				now = now.Add(time.Millisecond)
				v := e.Admit(now)
				switch {
				case !v.OK:
				case i%7 == g:
					e.Untried(now, v.Ticket)
				case i%3 == 0:
					e.Tried(now, v.Ticket, served)
				default:
					e.Tried(now, v.Ticket, broke)
				}
			}
		})
	}
	all.Wait()
	for now := time.Unix(1_700_001_000, 0); !e.Usable(); now = now.Add(time.Second) {
		if now.Unix() > 1_700_001_010 {
			t.Fatalf("%s: its breaker is %v", balance.StateText(e.Meter.State.Load()), e.Breaker.State(now))
		}
		if e.Meter.OpenUntil.Load() <= now.UnixNano() {
			e.Tried(now, e.Admit(now).Ticket, served)
		}
	}
}
