package telemetry

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestIdleSeriesAreSmall(t *testing.T) {
	const n = 5000
	r := newTest(t, Options{})
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("route-", i)
	}
	held := make([]*Series, n)
	before := heap()
	for i, name := range names {
		held[i] = r.Series(Outbound, "catalog", name)
	}
	used := int64(heap()) - int64(before)
	runtime.KeepAlive(held)
	t.Logf("%d bytes each", used/n)
	if used > 110*n {
		t.Errorf("%d bytes for each idle series", used/n)
	}
}

func TestSeriesAreShared(t *testing.T) {
	r := newTest(t, Options{})
	a, b := r.Series(Outbound, "s", "r"), r.Series(Outbound, "s", "r")
	if a != b || a == r.Series(Inbound, "s", "r") || a == r.Series(Outbound, "s", "r2") || a == r.Series(Outbound, "sr", "") {
		t.Error("series are mixed up")
	}
	if a.Service() != "s" || a.Route() != "r" {
		t.Error(a.Service(), a.Route())
	}
	var none *Series
	none.Begin()
	long := strings.Repeat("日", 500)
	if got := r.Series(Outbound, long, "\xff").Service(); len(got) > maxLabel+3 || !strings.HasSuffix(got, "日…") {
		t.Errorf("%q", got)
	}
	everything(r)
	scrapeText(t, r) // hostile names do not spoil it
}

func TestSeriesAreBounded(t *testing.T) {
	r := newTest(t, Options{MaxSeries: 100})
	for i := range 10_000 {
		s := r.Series(Outbound, fmt.Sprint("s", i), fmt.Sprint("r", i))
		s.Begin()
		r.Record(&Outcome{Series: s, Method: "GET", Status: 200, Start: day(), Total: time.Millisecond})
		r.Ejected(fmt.Sprint("e", i), "10.0.0.1:1", fmt.Sprint("why", i))
		r.Listener(Outbound, fmt.Sprint(i)).Opened()
		r.Source(fmt.Sprint(i)).Updated()
		r.LimitRefused(fmt.Sprint("limit", i))
		r.events.Add(Event{Kind: fmt.Sprint("kind", i)})
	}
	text := scrapeText(t, r)
	if n := strings.Count(text, "\n"); n > 20_000 {
		t.Errorf("%d lines", n)
	}
	if !strings.Contains(text, `sidecar_requests_total{direction="outbound",method="GET",reason="",route="_overflow",service="_overflow",status="2xx"}`) {
		t.Error("no overflow series")
	}
}

func TestRetain(t *testing.T) {
	r := newTest(t, Options{})
	for _, v := range [][2]string{{"a", "1"}, {"a", "2"}, {"a", ""}, {"b", "1"}, {"c", ""}} {
		r.Series(Outbound, v[0], v[1]).Begin()
	}
	r.UpstreamConn("d").Opened(0)
	r.UpstreamConn("e").Opened(0)
	gone := r.Series(Outbound, "b", "1")
	r.Retain(func(service, route string) bool {
		return service == "a" && route == "1" || service == "c" && route == "" || service == "e"
	})
	text := scrapeText(t, r)
	var got []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "sidecar_requests_in_flight{") || strings.HasPrefix(line, "sidecar_upstream_connections_open{") {
			got = append(got, strings.TrimSpace(line[strings.Index(line, "{"):]))
		}
	}
	want := []string{
		`{direction="outbound",route="",service="a"} 1`, `{direction="outbound",route="",service="c"} 1`,
		`{direction="outbound",route="1",service="a"} 1`, `{service="e"} 1`,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("left: %v", got)
	}
	r.Record(&Outcome{Series: gone, Start: day(), Total: 1}) // whoever still holds it may use it
	if s := r.Series(Outbound, "b", "1"); s == gone || s.Stats().InFlight != 0 {
		t.Error("a new series has an old one's counters")
	}
}

// Churn of services and routes leaves nothing behind.
func TestChurnIsFlat(t *testing.T) {
	r := newTest(t, Options{})
	churn := func(n int) {
		for i := range n {
			s := r.Series(Outbound, fmt.Sprint("s", i%50, n), fmt.Sprint("r", i))
			s.Begin()
			o := sampleOutcome(s)
			r.Record(&o)
			r.UpstreamConn(s.Service()).Opened(0)
			r.Ejected(s.Service(), fmt.Sprint("10.0.0.", i), "error_ratio")
			r.Listener(Outbound, s.Service()).Opened()
			if i%500 == 499 {
				r.Retain(func(string, string) bool { return false })
				r.RetainListeners(func(Direction, string) bool { return false })
			}
		}
	}
	churn(5000)
	before := heap()
	churn(50_000)
	if grown := int64(heap()) - int64(before); grown > 256<<10 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	if n := r.registry.size(); n != 2 {
		t.Errorf("%d series are left", n)
	}
}

func TestCells(t *testing.T) {
	var b block
	want := map[uint32]uint64{}
	var wg sync.WaitGroup
	for m := range uint32(10) {
		for s := range uint32(6) {
			for reason := range resilience.Reasons {
				key := pack(m, s, reason)
				if x, y, z := unpack(key); x != m || y != s || z != reason {
					t.Fatal("pack and unpack disagree")
				}
				want[key] = 4
			}
		}
	}
	for range 4 {
		wg.Go(func() {
			for key := range want {
				b.add(key)
			}
		})
	}
	wg.Wait()
	b.each(func(key uint32, n uint64) {
		if want[key] != n {
			t.Errorf("cell %#x: %d", key, n)
		}
		delete(want, key)
	})
	if len(want) > 0 {
		t.Errorf("%d cells are missing", len(want))
	}
}

// Everything at once, for the race detector.
func TestConcurrentUse(t *testing.T) {
	var out safeBuffer
	r := newTest(t, Options{AccessLog: AccessLog{To: "stdout"}, Stdout: &out, Now: time.Now})
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := range 100 {
				s := r.Series(Outbound, fmt.Sprint("s", i%7), fmt.Sprint("r", w))
				s.Begin()
				o := sampleOutcome(s)
				o.Start = time.Now()
				r.Record(&o)
				everything(r)
			}
		})
	}
	wg.Go(func() {
		for i := range 10 {
			scrapeText(t, r)
			r.Stats()
			r.events.Snapshot()
			r.Latency(Outbound, "s1")
			r.Retain(func(service, _ string) bool { return service == fmt.Sprint("s", i%7) })
		}
	})
	wg.Wait()
}

func TestStats(t *testing.T) {
	r := newTest(t, Options{})
	everything(r)
	list := r.Stats()
	if len(list) != 4 || list[1].Service != "catalog" || list[3].Direction != Inbound {
		t.Fatalf("%+v", list)
	}
	v := list[1]
	if v.Requests != 2 || v.InFlight != 1 || v.Status != [6]uint64{2: 1, 5: 1} || v.Reasons[resilience.Timeout] != 1 ||
		v.Attempts != 3 || v.BytesOut != 5120 || v.Breaker != "open" {
		t.Errorf("%+v", v)
	}
	if db := list[2]; db.Connections != 1 || db.Requests != 0 || db.BytesOut != 2000 {
		t.Errorf("%+v", db)
	}
	q := r.Latency(Outbound, "catalog")
	if q.Count != 2 || q.P50 < 3*time.Millisecond || q.P50 > 4*time.Millisecond || q.P99 < 980*time.Millisecond {
		t.Errorf("%+v", q)
	}
	if q := r.Latency(Outbound, "unknown"); q.Count != 0 {
		t.Errorf("%+v", q)
	}
	var g Digest
	r.MergeLatency(Outbound, "catalog", &g)
	r.MergeLatency(Inbound, "shop", &g)
	if g.Count() != 3 {
		t.Errorf("merged %d", g.Count())
	}
	if u := r.UpstreamStats("catalog"); u.Open != 1 || u.Idle != 1 || u.Known != 3 || u.Usable != 2 || u.Connects != 2 ||
		u.Failures != 1 || u.Ejections != 1 || u.Readmissions != 1 {
		t.Errorf("%+v", u)
	}
	if u := r.UpstreamStats("unknown"); u.Known != -1 {
		t.Errorf("%+v", u)
	}
}

func TestBuckets(t *testing.T) {
	for _, bad := range [][]float64{{0}, {-1, 1}, {1, 1}, {2, 1}, {math.NaN()}, {math.Inf(1)}} {
		if _, err := New(Options{Buckets: bad}); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
	r := newTest(t, Options{Buckets: []float64{0.001, 0.3}})
	for _, d := range []time.Duration{time.Millisecond, time.Millisecond + 1, 300 * time.Millisecond, time.Second} {
		r.Record(&Outcome{Start: day(), Total: d})
	}
	text := scrapeText(t, r)
	for le, n := range map[string]int{"0.001": 1, "0.3": 3, "+Inf": 4} {
		want := fmt.Sprintf(`sidecar_request_duration_seconds_bucket{direction="outbound",service="",le="%s"} %d`, le, n)
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}
