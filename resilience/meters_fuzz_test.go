package resilience_test

import (
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

// naiveWindow keeps every event, to compare with.
type naiveWindow struct {
	at  []int64
	bad []bool
}

func (w *naiveWindow) add(bucket int64, bad bool) {
	w.at, w.bad = append(w.at, bucket), append(w.bad, bad)
}

func (w *naiveWindow) sums(bucket int64) (bad, all int) {
	for i, at := range w.at {
		if at > bucket-4 {
			all++
			if w.bad[i] {
				bad++
			}
		}
	}
	return bad, all
}

func FuzzBreaker(f *testing.F) {
	f.Add(byte(0), []byte{0, 9, 9, 9, 9, 0xff, 0xff, 8, 9})
	f.Add(byte(2), []byte("\x09\x09\x09\x09\xfc\xfc\xfc\xfc\xfc\xfc\x08\x08\x09\x0a\x0b"))
	f.Fuzz(func(t *testing.T, probes byte, events []byte) {
		const sleep, volume = 700 * time.Millisecond, 3
		n := 1 + int(probes&3)
		b := resilience.NewBreaker(resilience.BreakerConfig{
			RequestVolume: volume, Window: 4 * 100 * time.Millisecond, Buckets: 4, SleepWindow: sleep, HalfOpenProbes: n,
		})
		now, model := epoch, &naiveWindow{}
		var out []resilience.Ticket // probes on their way that can still report
		var since time.Time         // of the last probe
		for _, e := range events {
			now = now.Add(time.Duration(e>>2) * 7 * time.Millisecond)
			before := b.State(now)
			switch e & 3 {
			case 0, 1:
				a := b.Admit(now)
				if a.OK && before == resilience.Open {
					t.Fatal("an open breaker admitted a call")
				}
				if !a.OK && !a.Until.After(now) {
					t.Fatalf("refused until %v, now %v", a.Until.Sub(epoch), now.Sub(epoch))
				}
				if a.Probe {
					if a.Change == resilience.HalfOpened || now.Sub(since) >= sleep {
						out = out[:0]
					}
					if out, since = append(out, a.Ticket), now; len(out) > n {
						t.Fatalf("%d probes at once", len(out))
					}
					continue
				}
				if a.OK {
					bad := e&1 == 1
					bucket := int64(now.Sub(epoch) / (100 * time.Millisecond))
					model.add(bucket, bad)
					wantBad, all := model.sums(bucket)
					trips := wantBad > 0 && all >= volume && 2*wantBad >= all
					got := b.Record(now, a.Ticket, map[bool]resilience.CallResult{true: resilience.CallFailed}[bad])
					if (got == resilience.Opened) != trips {
						t.Fatalf("%d of %d bad: %v", wantBad, all, got)
					}
				}
			case 2, 3:
				if len(out) == 0 {
					continue
				}
				ticket := out[0]
				out = out[1:]
				if e&1 == 1 {
					b.Cancel(now, ticket)
				} else if b.Record(now, ticket, resilience.CallResult(e>>3&3)) == resilience.ClosedAgain {
					model = &naiveWindow{}
				}
			}
		}
		neverWedged(t, b, now.Add(sleep), n)
	})
}

// neverWedged: whatever happened, after a sleep window calls that succeed close the breaker.
func neverWedged(t *testing.T, b *resilience.Breaker, now time.Time, n int) {
	for range n {
		a := b.Admit(now)
		if !a.OK {
			t.Fatal("wedged")
		}
		b.Record(now, a.Ticket, resilience.CallOK)
	}
	if s := b.State(now); s != resilience.Closed && s != resilience.Open {
		t.Fatalf("still %v", s)
	}
}

func FuzzOutlier(f *testing.F) {
	f.Add([]byte{4, 0, 8, 1, 8, 1, 8, 1, 8, 1, 0xf8, 2, 0x10, 3})
	f.Add([]byte("\x07\x01\x01\x01\x02\x02\x02\x03\x03\x03\xff\xfe\xfd\x84\x85\x86\x87"))
	f.Fuzz(func(t *testing.T, events []byte) {
		const n = 8
		share := map[bool]float64{true: 0.5, false: 0.2}[len(events)%2 == 0]
		most := max(1, int(share*n))
		o := resilience.NewOutlier(resilience.OutlierConfig{
			ConsecutiveFailures: 3, RequestVolume: 6, MaxEjected: share, EjectFor: time.Second, EjectMax: 4 * time.Second,
			ProbeInterval: time.Second, Window: 2 * time.Second,
		})
		hs := make([]*resilience.EndpointHealth, n)
		row := make(map[*resilience.EndpointHealth]int)
		out := make(map[*resilience.EndpointHealth]time.Time)
		for i := range hs {
			hs[i] = new(resilience.EndpointHealth)
		}
		now := epoch
		o.SetSize(now, n, n)
		usable := n
		for len(events) > 1 {
			now = now.Add(time.Duration(events[0]>>3) * 20 * time.Millisecond)
			h := hs[events[1]&7]
			switch _, was := out[h]; events[0] & 7 {
			case 0:
				usable = int(events[1] >> 4 & 7)
				for _, back := range o.SetSize(now, n, usable) {
					delete(out, back)
					row[back] = 0
				}
			case 1:
				v := o.ProbeResult(now, h, events[1]&0x80 != 0)
				if (v.Act == resilience.Readmit) != (was && events[1]&0x80 != 0 && !now.Before(out[h])) {
					t.Fatalf("probe of %v: %v", was, v)
				}
				if v.Act == resilience.Readmit {
					delete(out, h)
					row[h] = 0
				}
			case 2, 3:
				o.Record(now, h, resilience.Outcome{Status: 200})
				if !was {
					row[h] = 0
				}
			default:
				v := o.Record(now, h, resilience.Outcome{Kind: resilience.Reset})
				row[h]++
				checkVerdict(t, v, was, row[h])
				if v.Act == resilience.Eject {
					out[h] = v.Until
				}
			}
			if len(out) != o.Ejected() || len(out) > most || usable > 0 && len(out) >= usable {
				t.Fatalf("%d ejected, it says %d, at most %d of %d usable", len(out), o.Ejected(), most, usable)
			}
			events = events[2:]
		}
		allReturn(t, o, now.Add(time.Minute), len(out))
	})
}

func checkVerdict(t *testing.T, v resilience.EjectVerdict, was bool, row int) {
	t.Helper()
	switch {
	case was && v.Act != resilience.Keep:
		t.Fatalf("ejected twice: %+v", v)
	case !was && row >= 3 && v.Act == resilience.Keep:
		t.Fatalf("%d failures in a row kept", row)
	case v.Reason == resilience.EjectConsecutive && row < 3:
		t.Fatalf("ejected after %d failures in a row", row)
	}
}

// allReturn: a service that is well again has all its endpoints after one round of probes.
func allReturn(t *testing.T, o *resilience.Outlier, now time.Time, out int) {
	due, _ := o.ProbesDue(now, nil)
	if len(due) != out {
		t.Fatalf("%d of %d probed", len(due), out)
	}
	for _, h := range due {
		if v := o.ProbeResult(now, h, true); v.Act != resilience.Readmit {
			t.Fatalf("not readmitted: %+v", v)
		}
	}
	if o.Ejected() != 0 {
		t.Fatal("still ejected")
	}
}

func FuzzLimiter(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 1, 1, 8, 9, 2, 0x81})
	f.Fuzz(func(t *testing.T, events []byte) {
		const most, places, wait = 2, 3, 50 * time.Millisecond
		l := resilience.NewLimiter(resilience.LimiterConfig{Max: most, Waiting: places, Wait: wait, Name: resilience.LimitConcurrency})
		now := epoch
		type entry struct {
			w     *resilience.Waiter
			until time.Time
		}
		var queue []entry
		runs := 0
		for _, e := range events {
			now = now.Add(time.Duration(e>>3) * time.Millisecond)
			switch e & 7 {
			case 0, 1, 2, 3:
				p := l.Acquire()
				if p.Verdict == resilience.Queue {
					w := new(resilience.Waiter)
					if p = l.Enqueue(now, time.Time{}, w); p.Verdict == resilience.Queue {
						queue = append(queue, entry{w, p.Until})
					}
				}
				if p.Verdict == resilience.Admitted {
					runs++
				}
			case 4, 5, 6:
				if runs == 0 {
					continue
				}
				runs--
				for w := l.Release(now); w != nil; w = l.Grant(now) {
					runs++
					for len(queue) > 0 && queue[0].w != w {
						if now.Before(queue[0].until) {
							t.Fatal("overtaken")
						}
						queue = queue[1:]
					}
					if len(queue) == 0 || !now.Before(queue[0].until) || !l.Granted(w) {
						t.Fatal("granted after its time, or twice")
					}
					queue = queue[1:]
				}
			case 7:
				if len(queue) > 0 {
					i := int(e>>3) % len(queue)
					if _, granted := l.Leave(queue[i].w); granted {
						t.Fatal("granted without being told")
					}
					queue = append(queue[:i:i], queue[i+1:]...)
				}
			}
			gotRuns, waits := l.InUse()
			if gotRuns != runs || runs > most || waits > places || waits > len(queue) {
				t.Fatalf("running %d, it says %d; waiting %d of at most %d", runs, gotRuns, waits, len(queue))
			}
		}
		for ; runs > 0; runs-- {
			l.Release(now.Add(time.Hour))
		}
		if r, w := l.InUse(); r != 0 || w != 0 {
			t.Fatalf("%d run and %d wait at the end", r, w)
		}
	})
}
