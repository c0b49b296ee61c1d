package explain

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-mesh/sidecar/balance"
	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/internal/meshtest"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

var update = flag.Bool("update", false, "write the golden files anew")

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// compiled is the snapshot of testdata/shop.yaml, as it is when discovery has answered for all but one service.
func compiled(t testing.TB) *snapshot.Snapshot {
	t.Helper()
	text, err := os.ReadFile("testdata/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.LoadBytes("shop.yaml", text, config.RankFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	mesh := &config.Mesh{Config: cfg, Endpoints: map[string]*config.EndpointSet{}}
	for name, s := range cfg.Services {
		mesh.Endpoints[name] = &config.EndpointSet{List: s.Endpoints, Sources: []config.SourceState{{Name: "static", Answered: true}}}
	}
	mesh.Endpoints["empty"].Sources = []config.SourceState{{Name: "files", Err: "no such file"}}
	s, err := snapshot.Compile(mesh, nil, snapshot.Options{Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	for _, svc := range s.Outbound.List {
		svc.Outlier.SetSize(now, len(svc.Endpoints), len(svc.Endpoints))
	}
	return s
}

// questions are the cases of the golden file: what is asked, and what has happened before.
var questions = []struct {
	name   string
	ask    Request
	before func(*snapshot.Snapshot)
}{
	{"a route with its own policy", Request{URL: "http://catalog/v1/./items/%37?page=2"}, nil},
	{"a host pattern, a label that nobody has", Request{URL: "a.catalog.internal/v1/x", Header: []Header{{"X-Uid", "23"}}}, nil},
	{"a subset that is empty", Request{URL: "http://catalog/none"}, nil},
	{"a split, no request id", Request{URL: "http://catalog/v2/x"}, nil},
	{"a split, with a request id and a key", Request{URL: "http://catalog/v2/x", Header: []Header{{"x-request-id", "id-8"}, {"x-user", "7"}}}, nil},
	{"a percentage, no request id", Request{URL: "http://catalog/five"}, nil},
	{"a rewrite", Request{Method: "POST", URL: "http://catalog/old/7?x=1"}, nil},
	{"an answer", Request{URL: "http://catalog/gone"}, nil},
	{"a redirect", Request{URL: "http://catalog/moved"}, nil},
	{"nobody takes the host", Request{URL: "http://nobody/"}, nil},
	{"a path that climbs", Request{URL: "http://catalog/../x"}, nil},
	{"TCP asked over HTTP", Request{URL: "http://db/"}, nil},
	{"CONNECT", Request{Method: "CONNECT", URL: "db:3306"}, nil},
	{"CONNECT to HTTP", Request{Method: "CONNECT", URL: "catalog:80"}, nil},
	{"no endpoint", Request{URL: "http://empty/"}, nil},
	{"Host wins over the URL", Request{URL: "http://127.0.0.1:15001/", Header: []Header{{"Host", "carts"}}}, nil},
	{"its own port", Request{URL: "/x", Service: "reviews"}, nil},
	{"inbound", Request{URL: "/x", Inbound: true, Address: netip.MustParseAddr("10.9.9.8")}, nil},
	{"inbound, full", Request{URL: "/x", Inbound: true}, func(s *snapshot.Snapshot) { s.Inbound.List[0].Rest.Limiter.Acquire() }},
	{"rules, a switched group", Request{URL: "http://rooms/"}, nil},
	{"a rule that forbids", Request{URL: "http://rooms/drop"}, nil},
	{"grey", Request{URL: "http://rooms/", Header: []Header{{"x-uid", "23"}}}, nil},
	{"grey by its mark", Request{URL: "http://rooms/", Header: []Header{{"X-Grey", "other, v2"}}}, nil},
	{"inbound, banned", Request{URL: "/x", Inbound: true, Address: netip.MustParseAddr("10.9.9.9")}, nil},
	{"ejected", Request{URL: "http://catalog/"}, func(s *snapshot.Snapshot) { eject(s, "catalog", 0) }},
	{"none usable", Request{URL: "http://carts/"}, func(s *snapshot.Snapshot) { drained(s, "carts") }},
	{"panic", Request{URL: "http://reviews/"}, func(s *snapshot.Snapshot) { drained(s, "reviews") }},
	{"warming up, in use", Request{URL: "http://reviews/"}, func(s *snapshot.Snapshot) {
		svc, _ := s.Outbound.Get("reviews")
		svc.Endpoints[1].Meter.Since.Store(now.Add(-4 * time.Second).UnixNano())
		svc.Endpoints[2].Meter.Active.Add(3)
		svc.Endpoints[2].Meter.Observe(now, 1500*time.Microsecond)
	}},
	{"a switch that is on", Request{URL: "http://carts/"}, func(s *snapshot.Snapshot) { s.Switch("no-carts").State.Set(true) }},
	{"a switch that is on, a call of gRPC", Request{Method: "POST", URL: "http://carts/a.Cart/Get", Header: []Header{{"content-type", "application/grpc"}}}, func(s *snapshot.Snapshot) {
		s.Switch("no-carts").State.Set(true)
	}},
	{"a switch that asks our app", Request{URL: "http://reviews/"}, func(s *snapshot.Snapshot) { s.Switch("own-reviews").State.Set(true) }},
	{"a switch that stands in for failures alone", Request{URL: "http://reviews/"}, func(s *snapshot.Snapshot) { s.Switch("some-reviews").State.Set(true) }},
	{"breaker open", Request{URL: "http://carts/"}, func(s *snapshot.Snapshot) {
		svc, _ := s.Outbound.Get("carts")
		for range 20 {
			a := svc.Rest.Breaker.Admit(now)
			svc.Rest.Breaker.Record(now, a.Ticket, resilience.CallFailed)
		}
	}},
}

func eject(s *snapshot.Snapshot, service string, n int) {
	svc, _ := s.Outbound.Get(service)
	for range 5 {
		svc.Outlier.Record(now.Add(-2*time.Second), svc.Endpoints[n].Health, resilience.Outcome{Kind: resilience.TimedOut})
	}
	svc.Endpoints[n].Meter.State.Store(balance.StateEjected)
}

func drained(s *snapshot.Snapshot, service string) {
	svc, _ := s.Outbound.Get(service)
	for _, e := range svc.Endpoints {
		e.Meter.State.Store(balance.StateDraining)
	}
}

// TestText compares the texts of all questions with the golden file. Of the built-in fields it keeps one.
func TestText(t *testing.T) {
	var b strings.Builder
	for _, q := range questions {
		s := compiled(t)
		if q.before != nil {
			q.before(s)
		}
		e, err := Explain(s, q.ask, now)
		if err != nil {
			t.Fatalf("%s: %v", q.name, err)
		}
		fmt.Fprintf(&b, "# %s\n", q.name)
		builtIn := 0
		for line := range strings.Lines(e.Text(now)) {
			if strings.HasSuffix(line, "  built in\n") {
				if builtIn++; builtIn > 1 {
					continue
				}
			}
			b.WriteString(line)
		}
		b.WriteByte('\n')
	}
	golden(t, "text.golden", b.String())
}

// TestJSON compares one explanation as JSON with its golden file: the names in it are promises.
func TestJSON(t *testing.T) {
	e, err := Explain(compiled(t), questions[3].ask, now)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "split.json", string(text)+"\n")
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-update writes it anew):\n%s", file, diff)
	}
}

// TestLooksOnly: asking changes nothing, however often.
func TestLooksOnly(t *testing.T) {
	s := compiled(t)
	for range 3 {
		for _, q := range questions {
			first, err := Explain(s, q.ask, now)
			if err != nil {
				t.Fatal(err)
			}
			second, _ := Explain(s, q.ask, now)
			if diff := cmp.Diff(first, second); diff != "" {
				t.Errorf("%s: the second time:\n%s", q.name, diff)
			}
		}
	}
}

func TestMistakes(t *testing.T) {
	s := compiled(t)
	for _, row := range []struct {
		ask  Request
		want string
	}{
		{Request{}, "a URL like"},
		{Request{URL: "ftp://catalog/"}, "ftp://: http:// is expected"},
		{Request{URL: "http://catalog/a b"}, "must not contain blanks"},
		{Request{Method: "GET /", URL: "http://catalog/"}, "one word"},
	} {
		if _, err := Explain(s, row.ask, now); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %v, want %q", row.ask, err, row.want)
		}
	}
}

func TestSplitURL(t *testing.T) {
	for _, row := range []struct{ method, url, host, target string }{
		{"GET", "http://a/b?c#d", "a", "/b?c"},
		{"GET", "a", "a", ""},
		{"GET", "a?x", "a", "/?x"},
		{"GET", "/x", "", "/x"},
		{"GET", "https://u:p@a:8/x", "a:8", "/x"},
		{"GET", "http://[::1]:80/x", "[::1]:80", "/x"},
		{"OPTIONS", "*", "", "*"},
		{"CONNECT", "a:1", "a:1", ""},
		{"CONNECT", "tcp://a:1", "a:1", ""},
	} {
		host, target, err := split(row.method, row.url)
		if err != nil || host != row.host || target != row.target {
			t.Errorf("%s %s: %q %q %v", row.method, row.url, host, target, err)
		}
	}
}

func TestHeader(t *testing.T) {
	for text, want := range map[string]Header{"a: b": {"a", "b"}, "A:b:c ": {"A", "b:c"}, "x:": {"x", ""}} {
		if h, err := ParseHeader(text); err != nil || h != want {
			t.Errorf("%q: %+v %v", text, h, err)
		}
	}
	for _, text := range []string{"", "a", ": b", "a b: c"} {
		if _, err := ParseHeader(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// TestSubset: a service that uses some of its endpoints says of how many, and by whose choice.
func TestSubset(t *testing.T) {
	s := meshtest.Compile(t, "node: {id: shop-1}\nservices: {a: {subset: 2, endpoints: ['10.0.0.1:80', '10.0.0.2:80', '10.0.0.3:80', {address: '10.0.0.4:80', weight: 0}]}, b: {subset: 2, endpoints: ['10.0.0.1:80']}}\n")
	for url, want := range map[string]string{
		"http://a/": "uses 2 of 3 endpoints  (subset of the service, chosen by node shop-1)",
		"http://b/": "",
	} {
		e, err := Explain(s, Request{URL: url}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if text := e.Text(time.Now()); want == "" && strings.Contains(text, "uses ") || !strings.Contains(text, want) {
			t.Error(text)
		}
	}
}
