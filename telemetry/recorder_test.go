package telemetry

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

// scrapeText returns the exposition of our own metrics.
func scrapeText(t testing.TB, r *Recorder) string {
	t.Helper()
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	var b strings.Builder
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE "), "sidecar_") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// everything uses each metric once.
func everything(r *Recorder) {
	items := r.Series(Outbound, "catalog", "items")
	o := sampleOutcome(items)
	items.Begin()
	r.Record(&o)
	items.Begin()
	bad := Outcome{
		Series: items, Method: "POST", Status: 504, Reason: resilience.Timeout, Start: day(), Total: time.Second, Attempts: 1,
		GRPC: resilience.GRPCDeadlineExceeded, MessagesIn: 1, MessagesOut: 2,
	}
	r.Record(&bad)
	items.Begin()
	own := r.Series(Inbound, "shop", "")
	own.Begin()
	r.Record(&Outcome{
		Series: own, Direction: Inbound, Method: "BREW", Reason: resilience.CallerGone, Start: day(),
		Total: 20 * time.Millisecond, Attempts: 2, Replays: 1, Backups: 1, BackupWon: true,
	})
	r.Record(&Outcome{Method: "GET", Status: 404, Reason: resilience.NoRoute, Start: day(), Total: 90 * time.Microsecond})
	db := r.Series(Outbound, "db", "")
	db.Begin()
	r.Record(&Outcome{Series: db, Protocol: "tcp", Start: day(), Total: time.Minute, BytesIn: 10, BytesOut: 2000, Attempts: 1})

	r.RegistrationChanged("shop", "main", "registering", "passing", "")
	r.RegistrationTried("main", "register", "ok")
	r.AppProbed("shop", true)
	r.AppProbed("shop", false)
	r.AppChanged("shop", false, "connection refused")
	up := r.UpstreamConn("catalog")
	up.Opened(300 * time.Microsecond)
	up.Opened(300 * time.Microsecond)
	up.Closed()
	up.Idle(1)
	up.Failed(resilience.ConnectTimeout)
	up.Endpoints(3, 2)
	up.Subset(7)
	up.Decided(resilience.WhyRetry)
	up.Decided(resilience.WhyBudget)
	up.BodyTooLarge()
	up.Away("ENHANCE_YOUR_CALM")
	up.Version("v2").add(&Outcome{Status: 200}, 250*time.Millisecond)
	up.Version("v2").add(&Outcome{Status: 503}, 250*time.Millisecond)
	up.LimitRefused("in_flight")
	r.LimitRefused("connections")
	up.StoodIn("shield")
	up.Mirrored("sent")
	r.SwitchState("reviews-off", 2)
	l := r.Listener(Outbound, "outbound")
	l.Opened()
	l.Opened()
	l.Closed()
	l.Refused("connections")
	src := r.Source("main")
	src.Updated()
	src.Failed("unreachable", "dial tcp 127.0.0.1:8500: connection refused")
	r.Ejected("catalog", "10.0.0.1:8080", "consecutive_failures")
	r.Readmitted("catalog", "10.0.0.1:8080")
	r.Spared("catalog", "10.0.0.2:8080", "error_ratio")
	r.Panic("catalog", "10.0.0.2:8080")
	r.BreakerChanged("catalog", "items", "closed", "open", "")
	r.EndpointBreakerChanged("catalog", "10.0.0.2:8080", "closed", "open", "")
	r.Protected(Protection{Source: "main", Service: "catalog", Mode: "half_dead", Endpoints: map[string]int{"remembered": 3}})
	r.Protected(Protection{Source: "main", Service: "cart"})
	r.Reload(true, 12*time.Millisecond, "3 services")
	r.Reload(false, time.Millisecond, "a.yaml:3:4: unknown key")
	r.Revision(0xffff_0000_0000_beef)
	r.Retired("downstream", "age")
	r.Retired("upstream", "requests")
	r.Abuse(Inbound, AbuseEnded, "10.0.0.3")
	r.Moderated(func() int { return 2 })
	r.WindowMemory(func() int64 { return 65536 })
	r.Documents(Documents{InForce: 3, Kept: 1})
	r.Inherited([]InheritedCount{{Service: "catalog", Route: "items", Fields: 2}})
	r.Rules([]RuleCount{{Service: "catalog", Rank: "file", Rules: 2}})
}

func TestExposition(t *testing.T) {
	r := newTest(t, Options{Version: "1.2.3", Revision: "abcdef"})
	everything(r)
	got := strings.ReplaceAll(scrapeText(t, r), runtime.Version(), "GO")
	golden(t, "testdata/exposition.txt", got)
}

// The page about metrics names exactly the metrics that exist.
func TestMetricsPage(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented, registered []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(sidecar_[a-z_]+)` \\| ([a-z]+) \\|([^|]*)\\|").FindAllSubmatch(page, -1) {
		labels := regexp.MustCompile("[a-z_]+").FindAllString(string(m[3]), -1)
		slices.Sort(labels)
		documented = append(documented, fmt.Sprint(string(m[1]), labels))
	}
	desc := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	for _, d := range newDescriptions().all {
		m := desc.FindStringSubmatch(d.String())
		registered = append(registered, fmt.Sprint(m[1], strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' })))
	}
	slices.Sort(documented)
	slices.Sort(registered)
	if !slices.Equal(documented, registered) {
		t.Errorf("docs/metrics.md names\n%s\nregistered are\n%s", strings.Join(documented, "\n"), strings.Join(registered, "\n"))
	}
	shown := regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)`)
	r := newTest(t, Options{})
	everything(r)
	for _, m := range shown.FindAllStringSubmatch(scrapeText(t, r), -1) {
		if !strings.Contains(string(page), "| `"+m[1]+"` | "+m[2]+" |") {
			t.Errorf("docs/metrics.md: %s is a %s", m[1], m[2])
		}
	}
	if got := strings.Count(scrapeText(t, r), "# TYPE"); got != len(registered) {
		t.Errorf("%d of %d metrics are shown", got, len(registered))
	}
}

// Nothing that a client sends becomes a label.
func TestCardinality(t *testing.T) {
	r := newTest(t, Options{})
	s := r.Series(Outbound, "catalog", "items")
	lines := 0
	for i := range 100_000 {
		o := Outcome{
			Series: s, Method: fmt.Sprintf("M%d", i), Host: fmt.Sprintf("h%d.example", i), Path: fmt.Sprintf("/%d", i),
			Status: i % 1000, Reason: resilience.Reason(i), Caller: fmt.Sprint(i), Detail: fmt.Sprint(i),
			RequestID: fmt.Sprint(i), Service: fmt.Sprint("s", i), Route: fmt.Sprint("r", i), Endpoint: fmt.Sprint(i),
		}
		if i%2 == 0 {
			o.Series = nil
		}
		s.Begin()
		r.Record(&o)
		if i == 50_000 {
			lines = strings.Count(scrapeText(t, r), "\n")
		}
	}
	if got := strings.Count(scrapeText(t, r), "\n"); got != lines {
		t.Errorf("%d lines became %d", lines, got)
	}
}

func TestRecordAllocatesNothing(t *testing.T) {
	for name, log := range map[string]AccessLog{
		"no log": {}, "json": {To: "stdout"}, "text": {To: "stdout", Format: "text"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTest(t, Options{AccessLog: log, Stdout: io.Discard})
			s := r.Series(Outbound, "catalog", "items")
			o := sampleOutcome(s)
			r.Record(&o)
			if n := testing.AllocsPerRun(2000, func() {
				s.Begin()
				o.countedIn, o.countedOut = 0, 0
				r.Record(&o)
			}); n > 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

func TestOngoing(t *testing.T) {
	r := newTest(t, Options{})
	s := r.Series(Outbound, "db", "")
	s.Begin()
	o := Outcome{Series: s, Protocol: "tcp", BytesIn: 10, BytesOut: 100, Ongoing: true}
	r.Record(&o)
	o.BytesIn, o.BytesOut = 15, 500
	r.Record(&o)
	text := scrapeText(t, r)
	for _, want := range []string{
		`sidecar_requests_in_flight{direction="outbound",route="",service="db"} 1`,
		`sidecar_tcp_received_bytes_total{direction="outbound",route="",service="db"} 15`,
		`sidecar_tcp_sent_bytes_total{direction="outbound",route="",service="db"} 500`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	o.Ongoing, o.BytesOut = false, 501
	r.Record(&o)
	text = scrapeText(t, r)
	for _, want := range []string{
		`sidecar_requests_in_flight{direction="outbound",route="",service="db"} 0`,
		`sidecar_tcp_sent_bytes_total{direction="outbound",route="",service="db"} 501`,
		`sidecar_tcp_connections_total{direction="outbound",reason="",route="",service="db"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// A scrape of many busy series stays quick and small.
func TestScrapeOfManySeries(t *testing.T) {
	r := busy(t, 5000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	req := httptest.NewRequest("GET", "/metrics", nil)
	req.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, req)
	runtime.ReadMemStats(&after)
	z, err := gzip.NewReader(bytes.NewReader(w.Body.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("sidecar_requests_total{")); n < 5000 {
		t.Errorf("%d series shown", n)
	}
	used := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d bytes of text, %d allocated", len(text), used)
	if used > 64<<20 {
		t.Errorf("one scrape allocated %d bytes", used)
	}
}

func busy(t testing.TB, n int) *Recorder {
	r := newTest(t, Options{})
	for i := range n {
		s := r.Series(Outbound, fmt.Sprintf("service-%d", i/10), fmt.Sprintf("route-%d", i))
		o := sampleOutcome(s)
		s.Begin()
		r.Record(&o)
	}
	return r
}

func BenchmarkScrape5000(b *testing.B) {
	r := busy(b, 5000)
	h := r.Handler()
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil))
	}
}

func BenchmarkRecord(b *testing.B) {
	for name, log := range map[string]AccessLog{
		"metrics": {}, "json": {To: "stdout"}, "text": {To: "stdout", Format: "text"},
	} {
		b.Run(name, func(b *testing.B) {
			r := newTest(b, Options{AccessLog: log, Stdout: io.Discard})
			s := r.Series(Outbound, "catalog", "items")
			o := sampleOutcome(s)
			b.ReportAllocs()
			for b.Loop() {
				s.Begin()
				o.countedIn, o.countedOut = 0, 0
				r.Record(&o)
			}
		})
	}
}
