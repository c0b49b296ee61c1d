package resilience_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

// TestLatency: a quantile is at least the true one and at most 3.2 % above it; what is old is forgotten.
func TestLatency(t *testing.T) {
	l := resilience.NewLatency()
	now := epoch
	if _, n := l.Quantile(now, resilience.P90); n != 0 {
		t.Error("knows something at the start")
	}
	all := make([]time.Duration, 0, 20_000)
	rng := rand.New(rand.NewPCG(1, 2))
	for range cap(all) {
		d := time.Duration(rng.ExpFloat64() * float64(10*time.Millisecond))
		all = append(all, d)
		l.Observe(d)
	}
	slices.Sort(all)
	now = now.Add(time.Second)
	for q, share := range map[int]float64{resilience.P90: .9, resilience.P95: .95, resilience.P99: .99, resilience.P999: .999} {
		got, n := l.Quantile(now, q)
		want := all[int(share*float64(len(all)))-1]
		if n != len(all) || got < want || float64(got) > 1.032*float64(want) {
			t.Errorf("quantile %d: %v of %d, want %v", q, got, n, want)
		}
	}
	if _, n := l.Quantile(now.Add(20*time.Second), resilience.P90); n != len(all) {
		t.Errorf("after 20 s %d samples are left", n)
	}
	l.Quantile(now.Add(40*time.Second), resilience.P90)
	if _, n := l.Quantile(now.Add(75*time.Second), resilience.P90); n != 0 {
		t.Errorf("after 75 s %d samples are left", n)
	}
	for _, d := range []time.Duration{-1, 0, 1, time.Hour, 1<<63 - 1} {
		l.Observe(d)
	}
}

// TestBackupAfter: a fixed time needs no samples, a quantile needs 100 (S-145).
func TestBackupAfter(t *testing.T) {
	l := resilience.NewLatency()
	if d := l.BackupAfter(epoch, resilience.BackupConfig{After: 30 * time.Millisecond}); d != 30*time.Millisecond {
		t.Errorf("fixed: %v", d)
	}
	for i := range 101 {
		d := l.BackupAfter(epoch.Add(time.Duration(i)*2*time.Second/10), resilience.BackupConfig{Quantile: resilience.P90})
		if known := d > 0; known && i < 100 {
			t.Fatalf("a backup after %v is due with %d samples", d, i)
		}
		l.Observe(20 * time.Millisecond)
	}
	d := l.BackupAfter(epoch.Add(25*time.Second), resilience.BackupConfig{Quantile: resilience.P90})
	if d < 20*time.Millisecond || d > 21*time.Millisecond {
		t.Errorf("with 101 samples of 20ms a backup is due after %v", d)
	}
}

// TestPerTryAuto: what takes longer than ever before moves the limit, instead of being cut for good (S-141).
func TestPerTryAuto(t *testing.T) {
	l := resilience.NewLatency()
	cfg := resilience.PerTryConfig{Quantile: resilience.P999, Floor: 10 * time.Millisecond, Ceiling: time.Second}
	now := epoch
	play := func(seconds int, took time.Duration) (limit time.Duration) {
		for range seconds {
			now = now.Add(time.Second)
			for range 100 {
				limit = l.PerTry(now, cfg)
				l.Observe(min(took, limit))
			}
		}
		return limit
	}
	if got := l.PerTry(now, cfg); got != time.Second {
		t.Errorf("knowing nothing: %v", got)
	}
	if got := play(15, time.Millisecond); got != 10*time.Millisecond {
		t.Errorf("all calls take 1ms: %v", got)
	}
	if got := play(30, 100*time.Millisecond); got < 130*time.Millisecond || got > 160*time.Millisecond {
		t.Errorf("all calls take 100ms now: %v", got)
	}
	if got := play(30, 5*time.Second); got != time.Second {
		t.Errorf("all calls hang: %v", got)
	}
}

// longTail is the service of S-146: P90 50 ms, P99 200 ms, P999 1 s.
func longTail(rng *rand.Rand) time.Duration {
	between := func(from, to int) time.Duration {
		return time.Duration(from)*time.Millisecond + time.Duration(rng.Int64N(int64(to-from)*int64(time.Millisecond)))
	}
	switch u := rng.Float64(); {
	case u < .9:
		return between(5, 50)
	case u < .99:
		return between(50, 200)
	case u < .999:
		return between(200, 1000)
	}
	return between(1000, 3000)
}

// play makes n calls, 2 ms apart, and returns how long each took and how many attempts there were.
func playBackups(n int, latency func(*rand.Rand) time.Duration, cfg *resilience.BackupConfig) (took []time.Duration, attempts int) {
	l := resilience.NewLatency()
	limit := resilience.NewBudget(resilience.BudgetConfig{Ratio: .15})
	p := resilience.Policy{Timeout: 10 * time.Second, On: resilience.DefaultConditions()}
	rng := rand.New(rand.NewPCG(3, 4))
	ok := resilience.Outcome{Kind: resilience.Answered, Status: 200}
	for i := range n {
		now := epoch.Add(time.Duration(i) * 2 * time.Millisecond)
		f := resilience.Facts{Idempotent: true, Backups: limit}
		if cfg != nil {
			f.BackupAfter = l.BackupAfter(now, *cfg)
		}
		var c resilience.Call
		c.Start(&p, nil, now, f)
		first := latency(rng)
		end, winner := now.Add(first), 0
		if at, may := c.BackupAt(); may && at.Before(end) {
			if c.Backup(at, resilience.Chance{Untried: true}).Verb == resilience.Try {
				if second := at.Add(latency(rng)); second.Before(end) {
					end, winner = second, 1
				}
			}
		}
		if a := c.Result(end, winner, ok); a.Verb != resilience.Finish {
			panic(a)
		}
		l.Observe(end.Sub(now)) // the first attempt, or how long it had taken when it was cancelled
		took = append(took, end.Sub(now))
		attempts += c.Attempts()
	}
	slices.Sort(took)
	return took, attempts
}

// TestLongTail holds backups to their story: with P90 as the time, P999 falls to a third at least, for at most 12 % more
// load (S-146, S-148); where everything is slow the load grows by 15 % at most (S-147).
func TestLongTail(t *testing.T) {
	const n = 200_000
	p999 := func(took []time.Duration) time.Duration { return took[len(took)*999/1000] }
	plain, _ := playBackups(n, longTail, nil)
	backed, attempts := playBackups(n, longTail, &resilience.BackupConfig{Quantile: resilience.P90})
	load := float64(attempts) / n
	t.Logf("P999 %v without, %v with backups; load %.3f", p999(plain), p999(backed), load)
	if 3*p999(backed) > p999(plain) || load > 1.12 || load < 1.05 {
		t.Errorf("P999 %v without and %v with backups, load %.3f", p999(plain), p999(backed), load)
	}
	slow := func(rng *rand.Rand) time.Duration { return time.Second + longTail(rng) }
	if _, attempts = playBackups(n, slow, &resilience.BackupConfig{After: 50 * time.Millisecond}); float64(attempts) > 1.15*n {
		t.Errorf("all slow: load %.3f", float64(attempts)/n)
	}
}
