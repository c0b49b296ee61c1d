package resilience_test

import (
	"sync"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

var (
	ok200  = resilience.Outcome{Status: 200, Sent: true}
	bad503 = resilience.Outcome{Status: 503, Sent: true, Replayable: true, Untried: true}
)

// rig has one of each meter, and a policy.
type rig struct {
	policy  resilience.Policy
	facts   resilience.Facts
	call    resilience.Call
	budget  *resilience.Budget
	breaker *resilience.Breaker
	outlier *resilience.Outlier
	health  resilience.EndpointHealth
	limiter *resilience.Limiter
	waiter  resilience.Waiter
	now     time.Time
}

func newRig() *rig {
	r := &rig{
		policy: resilience.Policy{
			Timeout: time.Second, PerTry: 300 * time.Millisecond, Retries: 2, On: resilience.DefaultConditions(),
			BackoffBase: 25 * time.Millisecond, BackoffMax: 250 * time.Millisecond,
		},
		facts:   resilience.Facts{Idempotent: true, Rand: 1},
		budget:  resilience.NewBudget(resilience.BudgetConfig{Ratio: 1, MinPerSecond: 3}),
		breaker: resilience.NewBreaker(resilience.BreakerConfig{SlowOver: time.Second}),
		outlier: resilience.NewOutlier(resilience.OutlierConfig{Slow: resilience.SlowNode{AverageOver: time.Second}}),
		limiter: resilience.NewLimiter(resilience.LimiterConfig{Max: 1, Waiting: 1}),
		now:     time.Now(), // with a monotonic reading, as engines have
	}
	r.outlier.SetSize(r.now, 10, 10)
	r.all() // makes what is made at the first use
	return r
}

// all is everything one request with a retry does.
func (r *rig) all() {
	r.now = r.now.Add(10 * time.Millisecond)
	r.limiter.Acquire()
	r.limiter.Enqueue(r.now, time.Time{}, &r.waiter)
	r.limiter.Release(r.now)
	adm := r.breaker.Admit(r.now)
	r.call.Start(&r.policy, r.budget, r.now, r.facts)
	a := r.call.Result(r.now, 0, bad503)
	r.outlier.Record(r.now, &r.health, bad503)
	a = r.call.Result(r.now, a.Slot, ok200)
	r.outlier.Record(r.now, &r.health, ok200)
	r.breaker.Done(r.now, adm.Ticket, a, ok200, time.Millisecond)
	r.limiter.Release(r.now)
}

func TestNoAllocations(t *testing.T) {
	r := newRig()
	if n := testing.AllocsPerRun(2000, r.all); n != 0 {
		t.Errorf("%v allocations per request", n)
	}
}

func TestBrokenServiceDoesNotAllocate(t *testing.T) {
	r := newRig()
	r.breaker = resilience.NewBreaker(resilience.BreakerConfig{RequestVolume: 1})
	fails := func() {
		r.now = r.now.Add(time.Second)
		if a := r.breaker.Admit(r.now); a.OK {
			r.breaker.Record(r.now, a.Ticket, resilience.CallTimedOut)
		}
		r.breaker.State(r.now)
	}
	fails()
	if n := testing.AllocsPerRun(100, fails); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCall(b *testing.B) {
	r := newRig()
	b.ReportAllocs()
	for b.Loop() {
		r.call.Start(&r.policy, nil, r.now, r.facts)
		r.call.Result(r.now, 0, ok200)
	}
}

func BenchmarkCallRetry(b *testing.B) {
	r := newRig()
	b.ReportAllocs()
	for b.Loop() {
		r.call.Start(&r.policy, nil, r.now, r.facts)
		a := r.call.Result(r.now, 0, bad503)
		r.call.Result(r.now, a.Slot, ok200)
	}
}

func BenchmarkBudgetCall(b *testing.B) {
	r := newRig()
	for b.Loop() {
		r.budget.Call(r.now)
	}
}

func BenchmarkBudgetTake(b *testing.B) {
	r := newRig()
	for b.Loop() {
		r.budget.Take(r.now)
	}
}

func BenchmarkBreakerAdmit(b *testing.B) {
	r := newRig()
	for b.Loop() {
		r.breaker.Admit(r.now)
	}
}

func BenchmarkBreakerRecord(b *testing.B) {
	r := newRig()
	t := r.breaker.Admit(r.now).Ticket
	for b.Loop() {
		r.breaker.Record(r.now, t, resilience.CallOK)
	}
}

func BenchmarkOutlierSuccess(b *testing.B) {
	r := newRig()
	for b.Loop() {
		r.outlier.Record(r.now, &r.health, ok200)
	}
}

func BenchmarkLimiter(b *testing.B) {
	r := newRig()
	for b.Loop() {
		r.limiter.Acquire()
		r.limiter.Release(r.now)
	}
}

// TestMetersShared lets many goroutines use all meters at once; the race detector judges, and at the end nothing runs.
func TestMetersShared(t *testing.T) {
	r := newRig()
	healths := make([]resilience.EndpointHealth, 10)
	limiter := resilience.NewLimiter(resilience.LimiterConfig{Max: 3, Waiting: 4, Ranked: true})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			now := r.now
			w := resilience.Waiter{Rank: uint8(g % 3)}
			woken := make(chan struct{}, 1)
			w.Wake = func() {
				select {
				case woken <- struct{}{}:
				default:
				}
			}
			for i := range 3000 {
				now = now.Add(time.Millisecond)
				if !enter(limiter, now, &w, woken) {
					continue
				}
				useAll(r, &healths[i%10], now, (i+g)%3 == 0)
				for w := limiter.Release(now); w != nil; w = limiter.Grant(now) {
					w.Wake()
				}
			}
		})
	}
	wg.Wait()
	if runs, waits := limiter.InUse(); runs != 0 || waits != 0 {
		t.Errorf("%d run and %d wait at the end", runs, waits)
	}
	if n := r.outlier.Ejected(); n > 2 {
		t.Errorf("%d of 10 ejected", n)
	}
}

// enter waits for a place as an engine does, without a time limit.
func enter(l *resilience.Limiter, now time.Time, w *resilience.Waiter, woken chan struct{}) bool {
	p := l.Acquire()
	if p.Verdict == resilience.Queue {
		p = l.Enqueue(now, time.Time{}, w)
	}
	if p.Verdict == resilience.Queue {
		if p.Shed != nil {
			p.Shed.Wake()
		}
		for l.Waits(w) {
			<-woken
		}
		_, granted := l.Leave(w)
		return granted
	}
	return p.Verdict == resilience.Admitted
}

func useAll(r *rig, h *resilience.EndpointHealth, now time.Time, fails bool) {
	adm := r.breaker.Admit(now)
	r.breaker.State(now)
	if !adm.OK {
		return
	}
	o := ok200
	if fails {
		o = bad503
	}
	var c resilience.Call
	a := c.Start(&r.policy, r.budget, now, r.facts)
	for !c.Done() {
		o.Broken = r.breaker.State(now) != resilience.Closed
		a = c.Result(now, a.Slot, o)
		r.outlier.Record(now, h, o)
		if a.Verb == resilience.Wait {
			a = c.Tick(a.Until)
		}
	}
	r.breaker.Done(now, adm.Ticket, a, o, 0)
	due, _ := r.outlier.ProbesDue(now, nil)
	for _, h := range due {
		r.outlier.ProbeResult(now, h, true)
	}
	r.outlier.State(now, h)
	r.breaker.Counts(now)
}
