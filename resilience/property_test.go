package resilience_test

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

// runs is how many times each property is tried; `make properties` says a million.
var runs = flag.Int("runs", 5_000, "generated runs of each property")

// TestProperties plays generated events against the models of the fuzz tests, which know what must always hold: attempts
// within what is allowed, nothing after the end, no ejection beyond the bound, no call through an open breaker, no place
// given twice, no budget exceeded.
func TestProperties(t *testing.T) {
	for name, run := range map[string]func(*testing.T, *rand.Rand){
		"call":    func(t *testing.T, r *rand.Rand) { runCall(t, r.Uint64(), generated(r, 64)) },
		"breaker": func(t *testing.T, r *rand.Rand) { runBreaker(t, byte(r.Uint32()), generated(r, 64)) },
		"outlier": func(t *testing.T, r *rand.Rand) { runOutlier(t, generated(r, 96)) },
		"limiter": func(t *testing.T, r *rand.Rand) { runLimiter(t, generated(r, 64)) },
		"budget":  func(t *testing.T, r *rand.Rand) { runBudget(t, r, r.IntN(300)) },
		"retries": runRetries,
		"switch":  func(t *testing.T, r *rand.Rand) { runSwitch(t, r, r.IntN(100)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seed uint64
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			})
			for seed = range uint64(*runs) {
				run(t, rand.New(rand.NewPCG(seed, 1)))
			}
		})
	}
}

// generated are up to so many bytes, of a few kinds more often than of all: failures come in rows.
func generated(r *rand.Rand, most int) []byte {
	b := make([]byte, r.IntN(most))
	same := byte(r.Uint32())
	for i := range b {
		if b[i] = byte(r.Uint32()); r.IntN(3) == 0 {
			b[i] = same
		}
	}
	return b
}

// budgetModel keeps every call and retry, by second.
type budgetModel struct {
	cfg            resilience.BudgetConfig
	calls, retries map[int64]int
}

func newBudgetModel(r *rand.Rand) *budgetModel {
	return &budgetModel{
		cfg:   resilience.BudgetConfig{Ratio: float64(r.IntN(5)) / 10, MinPerSecond: float64(r.IntN(4)) / 2},
		calls: map[int64]int{}, retries: map[int64]int{},
	}
}

// room is how many more retries may be made: of the last ten seconds' calls a ratio, and the minimum of ten seconds.
func (m *budgetModel) room(second int64) float64 {
	calls, retries := 0, 0
	for at := second - 9; at <= second; at++ {
		calls += m.calls[at]
		retries += m.retries[at]
	}
	return m.cfg.Ratio*float64(calls) + 10*m.cfg.MinPerSecond - float64(retries)
}

// runBudget compares one budget with a model that remembers everything.
func runBudget(t *testing.T, r *rand.Rand, events int) {
	m := newBudgetModel(r)
	b, now := resilience.NewBudget(m.cfg), epoch
	for range events {
		if r.IntN(4) == 0 {
			now = now.Add(time.Duration(r.Int64N(int64(4 * time.Second))))
		}
		second := now.Unix()
		if r.IntN(3) > 0 {
			b.Call(now)
			m.calls[second]++
			continue
		}
		const close = 1e-6
		room := m.room(second)
		switch took := b.Take(now); {
		case took && room < 1-close:
			t.Fatalf("%+v: a retry beyond the budget, room %v", m.cfg, room)
		case !took && room > 1+close:
			t.Fatalf("%+v: refused, room %v", m.cfg, room)
		case took:
			m.retries[second]++
		}
	}
}

// runRetries has calls that all fail share one budget: together they retry no more than it allows, and each no more than its
// policy says.
func runRetries(t *testing.T, r *rand.Rand) {
	m := newBudgetModel(r)
	b, now := resilience.NewBudget(m.cfg), epoch
	p := resilience.Policy{Timeout: time.Minute, Retries: r.IntN(4), On: resilience.DefaultConditions()}
	for range r.IntN(40) {
		now = now.Add(time.Duration(r.Int64N(int64(time.Second))))
		var c resilience.Call
		m.calls[now.Unix()]++
		a := c.Start(&p, b, now, resilience.Facts{Idempotent: true, Rand: r.Uint64()})
		for tries := 0; a.Verb != resilience.Fail && a.Verb != resilience.Finish; {
			if a.Verb == resilience.Wait {
				now = a.Until
				a = c.Tick(now)
				continue
			}
			if tries++; tries > 1+p.Retries {
				t.Fatalf("%d attempts with %d retries", tries, p.Retries)
			}
			a = c.Result(now, a.Slot, resilience.Outcome{Kind: resilience.Refused, Replayable: true, Untried: r.IntN(2) == 0})
			if a.Verb != resilience.Fail && a.Verb != resilience.Finish { // the budget is asked when the retry is decided
				if room := m.room(now.Unix()); room < 1-1e-6 {
					t.Fatalf("%+v: a retry beyond the budget, room %v", m.cfg, room)
				}
				m.retries[now.Unix()]++
			}
		}
	}
}

// runSwitch: what a person sets counts until somebody sets something else, the rule changes state by its steps alone, and a
// switch of a service that is well is off in the end.
func runSwitch(t *testing.T, r *rand.Rand, events int) {
	rule := &resilience.SwitchRule{When: 0.5, Until: 0.1, WhenFor: 2 * time.Second, UntilFor: 2 * time.Second, Ramp: time.Second}
	s, now := resilience.NewSwitch(rule, r.IntN(2) == 0), epoch
	step := func(c resilience.SwitchChange) {
		if !c.Changed() {
			return
		}
		switch c {
		case resilience.SwitchChange{From: resilience.SwitchOff, To: resilience.SwitchAuto},
			resilience.SwitchChange{From: resilience.SwitchRamp, To: resilience.SwitchAuto},
			resilience.SwitchChange{From: resilience.SwitchAuto, To: resilience.SwitchRamp},
			resilience.SwitchChange{From: resilience.SwitchRamp, To: resilience.SwitchOff}:
		default:
			t.Fatalf("from %v to %v", c.From, c.To)
		}
	}
	for range events {
		now = now.Add(time.Duration(r.Int64N(int64(300 * time.Millisecond))))
		was := s.State()
		switch r.IntN(12) {
		case 0:
			on := r.IntN(2) == 0
			if s.Set(on); (s.State() == resilience.SwitchOn) != on || !on && s.State() != resilience.SwitchOff {
				t.Fatalf("set to %t, it is %v", on, s.State())
			}
		case 1, 2, 3, 4:
			shields, c := s.Shields(now, r.Uint64())
			if step(c); shields && was == resilience.SwitchOff || !shields && was == resilience.SwitchOn {
				t.Fatalf("%v, and shields: %t", was, shields)
			}
		default:
			if step(s.Record(now, r.IntN(3) > 0)); was == resilience.SwitchOn && s.State() != resilience.SwitchOn {
				t.Fatal("the rule undid what a person has set")
			}
		}
	}
	if s.State() == resilience.SwitchOn {
		return
	}
	for range 400 { // the service is well
		now = now.Add(50 * time.Millisecond)
		if shields, c := s.Shields(now, r.Uint64()); !shields {
			step(c)
			step(s.Record(now, false))
		}
	}
	if s.State() != resilience.SwitchOff {
		t.Fatalf("%v, though the service is well", s.State())
	}
}
