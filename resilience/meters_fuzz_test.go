package resilience_test

import (
	"slices"
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

// breakerModel watches a Breaker of 4 × 100 ms.
type breakerModel struct {
	t     *testing.T
	b     *resilience.Breaker
	n     int // probes
	now   time.Time
	win   naiveWindow
	out   []resilience.Ticket // probes on their way that can still report
	since time.Time           // of the last probe
}

const (
	modelSleep  = 700 * time.Millisecond
	modelBucket = 100 * time.Millisecond
	modelVolume = 3
)

// call asks for a call, and ends it at once if it is an ordinary one.
func (m *breakerModel) call(bad bool) {
	before := m.b.State(m.now)
	a := m.b.Admit(m.now)
	switch {
	case a.OK && before == resilience.Open:
		m.t.Fatal("an open breaker admitted a call")
	case !a.OK && !a.Until.After(m.now):
		m.t.Fatalf("refused until %v, now %v", a.Until.Sub(epoch), m.now.Sub(epoch))
	case a.Probe:
		if a.Change == resilience.HalfOpened || m.now.Sub(m.since) >= modelSleep {
			m.out = m.out[:0]
		}
		if m.out, m.since = append(m.out, a.Ticket), m.now; len(m.out) > m.n {
			m.t.Fatalf("%d probes at once", len(m.out))
		}
	case a.OK:
		bucket := int64(m.now.Sub(epoch) / modelBucket)
		m.win.add(bucket, bad)
		wantBad, all := m.win.sums(bucket)
		trips := wantBad > 0 && all >= modelVolume && 2*wantBad >= all
		got := m.b.Record(m.now, a.Ticket, map[bool]resilience.CallResult{true: resilience.CallFailed}[bad])
		if (got == resilience.Opened) != trips {
			m.t.Fatalf("%d of %d bad: %v", wantBad, all, got)
		}
	}
}

// probed ends the oldest probe.
func (m *breakerModel) probed(cancel bool, r resilience.CallResult) {
	if len(m.out) == 0 {
		return
	}
	ticket := m.out[0]
	m.out = m.out[1:]
	if cancel {
		m.b.Cancel(m.now, ticket)
	} else if m.b.Record(m.now, ticket, r) == resilience.ClosedAgain {
		m.win = naiveWindow{}
	}
}

func FuzzBreaker(f *testing.F) {
	f.Add(byte(0), []byte{0, 9, 9, 9, 9, 0xff, 0xff, 8, 9})
	f.Add(byte(2), []byte("\x09\x09\x09\x09\xfc\xfc\xfc\xfc\xfc\xfc\x08\x08\x09\x0a\x0b"))
	f.Fuzz(runBreaker)
}

// runBreaker plays what happens to one breaker.
func runBreaker(t *testing.T, probes byte, events []byte) {
	n := 1 + int(probes&3)
	m := &breakerModel{t: t, n: n, now: epoch, b: resilience.NewBreaker(resilience.BreakerConfig{
		RequestVolume: modelVolume, Window: 4 * modelBucket, Buckets: 4, SleepWindow: modelSleep, HalfOpenProbes: n,
	})}
	for _, e := range events {
		m.now = m.now.Add(time.Duration(e>>2) * 7 * time.Millisecond)
		if e&2 == 0 {
			m.call(e&1 == 1)
		} else {
			m.probed(e&1 == 1, resilience.CallResult(e>>3&3))
		}
	}
	neverWedged(t, m.b, m.now.Add(modelSleep), n)
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

// outlierModel watches an Outlier over eight endpoints that ejects after three failures in a row.
type outlierModel struct {
	t            *testing.T
	o            *resilience.Outlier
	now          time.Time
	most, usable int
	row          map[*resilience.EndpointHealth]int       // failures since the last success
	out          map[*resilience.EndpointHealth]time.Time // ejected until
}

func (m *outlierModel) back(h *resilience.EndpointHealth) {
	delete(m.out, h)
	m.row[h] = 0
}

func (m *outlierModel) event(what, detail byte, h *resilience.EndpointHealth) {
	until, was := m.out[h]
	switch what {
	case 0:
		m.usable = int(detail >> 4 & 7)
		for _, h := range m.o.SetSize(m.now, 8, m.usable) {
			m.back(h)
		}
	case 1:
		ok := detail&0x80 != 0
		v := m.o.ProbeResult(m.now, h, ok)
		if (v.Act == resilience.Readmit) != (was && ok && !m.now.Before(until)) {
			m.t.Fatalf("probe %t of %t: %v", ok, was, v)
		}
		if v.Act == resilience.Readmit {
			m.back(h)
		}
	case 2, 3:
		m.o.Record(m.now, h, resilience.Outcome{Status: 200})
		if !was {
			m.row[h] = 0
		}
	default:
		v := m.o.Record(m.now, h, resilience.Outcome{Kind: resilience.Reset})
		m.row[h]++
		checkVerdict(m.t, v, was, m.row[h])
		if v.Act == resilience.Eject {
			m.out[h] = v.Until
		}
	}
	if n := len(m.out); n != m.o.Ejected() || n > m.most || m.usable > 0 && n >= m.usable {
		m.t.Fatalf("%d ejected, it says %d, at most %d of %d usable", n, m.o.Ejected(), m.most, m.usable)
	}
}

func FuzzOutlier(f *testing.F) {
	f.Add([]byte{4, 0, 8, 1, 8, 1, 8, 1, 8, 1, 0xf8, 2, 0x10, 3})
	f.Add([]byte("\x07\x01\x01\x01\x02\x02\x02\x03\x03\x03\xff\xfe\xfd\x84\x85\x86\x87"))
	f.Fuzz(runOutlier)
}

// runOutlier plays what happens to one service.
func runOutlier(t *testing.T, events []byte) {
	share := map[bool]float64{true: 0.5, false: 0.2}[len(events)%2 == 0]
	m := &outlierModel{
		t: t, now: epoch, most: max(1, int(share*8)), usable: 8,
		row: map[*resilience.EndpointHealth]int{}, out: map[*resilience.EndpointHealth]time.Time{},
		o: resilience.NewOutlier(resilience.OutlierConfig{
			ConsecutiveFailures: 3, RequestVolume: 6, MaxEjected: share, EjectFor: time.Second,
			EjectMax: 4 * time.Second, ProbeInterval: time.Second, Window: 2 * time.Second,
		}),
	}
	hs := make([]resilience.EndpointHealth, 8)
	m.o.SetSize(m.now, 8, 8)
	for len(events) > 1 {
		m.now = m.now.Add(time.Duration(events[0]>>3) * 20 * time.Millisecond)
		m.event(events[0]&7, events[1], &hs[events[1]&7])
		events = events[2:]
	}
	allReturn(t, m.o, m.now.Add(time.Minute), len(m.out))
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

// limiterModel watches a Limiter of two places and a queue of three.
type limiterModel struct {
	t     *testing.T
	l     *resilience.Limiter
	now   time.Time
	runs  int
	queue []queued
}

type queued struct {
	w     *resilience.Waiter
	until time.Time
}

func (m *limiterModel) acquire(rank uint8) {
	p := m.l.Acquire()
	if p.Verdict == resilience.Queue {
		w := &resilience.Waiter{Rank: rank}
		if p = m.l.Enqueue(m.now, time.Time{}, w); p.Verdict == resilience.Queue {
			m.shed(p.Shed, rank)
			at := len(m.queue)
			for at > 0 && m.queue[at-1].w.Rank > rank {
				at--
			}
			m.queue = slices.Insert(m.queue, at, queued{w, p.Until})
		} else if p.Verdict == resilience.Turned {
			for _, q := range m.queue {
				if q.w.Rank > rank && m.now.Before(q.until) {
					m.t.Fatalf("rank %d is refused while %d waits", rank, q.w.Rank)
				}
			}
		}
	}
	if p.Verdict == resilience.Admitted {
		m.runs++
	}
}

// shed takes out who lost its place to a newcomer: the last of those that matter least, and less than the newcomer.
func (m *limiterModel) shed(w *resilience.Waiter, rank uint8) {
	if w == nil {
		return
	}
	at := slices.IndexFunc(m.queue, func(q queued) bool { return q.w == w })
	if at < 0 || w.Rank <= rank {
		m.t.Fatalf("rank %d sheds %+v", rank, w)
	}
	for _, q := range m.queue[at+1:] {
		if m.now.Before(q.until) {
			m.t.Fatalf("rank %d is shed while %d waits", w.Rank, q.w.Rank)
		}
	}
	if p, granted := m.l.Leave(w); granted || p.Limit != resilience.LimitPriorities {
		m.t.Fatalf("shed: granted %v, limit %v", granted, p.Limit)
	}
	m.queue = slices.Delete(m.queue, at, at+1)
}

func (m *limiterModel) release() {
	if m.runs == 0 {
		return
	}
	m.runs--
	for w := m.l.Release(m.now); w != nil; w = m.l.Grant(m.now) {
		m.runs++
		for len(m.queue) > 0 && m.queue[0].w != w {
			if m.now.Before(m.queue[0].until) {
				m.t.Fatal("overtaken")
			}
			m.queue = m.queue[1:]
		}
		if len(m.queue) == 0 || !m.now.Before(m.queue[0].until) || m.l.Waits(w) {
			m.t.Fatal("granted after its time, or twice")
		}
		m.queue = m.queue[1:]
	}
}

func (m *limiterModel) leave(i int) {
	if len(m.queue) == 0 {
		return
	}
	i %= len(m.queue)
	if _, granted := m.l.Leave(m.queue[i].w); granted {
		m.t.Fatal("granted without being told")
	}
	m.queue = append(m.queue[:i:i], m.queue[i+1:]...)
}

func FuzzLimiter(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 4, 4, 8, 9, 7, 0x84})
	f.Fuzz(runLimiter)
}

// runLimiter plays what happens to one limiter.
func runLimiter(t *testing.T, events []byte) {
	const most, places = 2, 3
	m := &limiterModel{t: t, now: epoch, l: resilience.NewLimiter(resilience.LimiterConfig{
		Max: most, Waiting: places, Wait: 50 * time.Millisecond, Name: resilience.LimitConcurrency,
		Ranked: true,
	})}
	for _, e := range events {
		m.now = m.now.Add(time.Duration(e>>3) * time.Millisecond)
		switch e & 7 {
		case 0, 1, 2, 3:
			m.acquire(e >> 5 & 3)
		case 4, 5, 6:
			m.release()
		case 7:
			m.leave(int(e >> 3))
		}
		runs, waits := m.l.InUse()
		if runs != m.runs || runs > most || waits > places || waits > len(m.queue) {
			t.Fatalf("running %d, it says %d; waiting %d of at most %d", m.runs, runs, waits, len(m.queue))
		}
	}
	for ; m.runs > 0; m.runs-- {
		m.l.Release(m.now.Add(time.Hour))
	}
	if r, w := m.l.InUse(); r != 0 || w != 0 {
		t.Fatalf("%d run and %d wait at the end", r, w)
	}
}
