//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParseWrk(t *testing.T) {
	const out = `Running 1s test @ http://127.0.0.1:1/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.50ms    1.16ms   9.14ms   80.00%
    Req/Sec    10.78k     1.21k   12.18k    75.00%
  10731 requests in 1.00s, 2.65MB read
  Socket errors: connect 0, read 2, write 0, timeout 1
  Non-2xx or 3xx responses: 7
Requests/sec:  10727.55
Transfer/sec:      2.65MB
`
	s, err := parseWrk(out)
	if err != nil || s != (shot{requests: 10731, perSecond: 10727.55, failed: 10}) {
		t.Errorf("%+v %v", s, err)
	}
	if _, err := parseWrk("unable to connect to 127.0.0.1:1 Connection refused"); err == nil {
		t.Error("took a failed run")
	}
}

func TestParseH2load(t *testing.T) {
	const out = `starting benchmark...
progress: 100% of clients started
finished in 2.00s, 39412.00 req/s, 4.92MB/s
requests: 78824 total, 78952 started, 78824 done, 78820 succeeded, 4 failed, 1 errored, 0 timeout
status codes: 78821 2xx, 0 3xx, 0 4xx, 3 5xx
traffic: 9.83MB (10310924) total, 926.61KB (948848) headers (space savings 92.92%), 7.52MB (7882400) data
                     min         max         mean         sd        +/- sd
time for request:      253us     12.06ms      3.24ms      1.21ms    72.36%
req/s           :    4898.10     4960.56     4926.29       19.77    62.50%
`
	s, err := parseH2load(out)
	if err != nil || s != (shot{requests: 78821, perSecond: 39412, failed: 4, octets: 7882400}) {
		t.Errorf("%+v %v", s, err)
	}
	const stalled = `finished in 2.01s, 0.00 req/s, 0B/s
requests: 0 total, 0 started, 0 done, 0 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 0 2xx, 0 3xx, 0 4xx, 0 5xx
`
	for _, bad := range []string{stalled, "", "could not resolve host\n"} {
		if _, err := parseH2load(bad); err == nil {
			t.Errorf("took %q", bad)
		}
	}
}

func TestPerChange(t *testing.T) {
	if got := perChange(changes*20*time.Millisecond, 0); got != 20*time.Millisecond {
		t.Error(got)
	}
	if got := perChange(0, time.Second); got != 0 {
		t.Error(got)
	}
}

func TestTable(t *testing.T) {
	findings := newTable("cpu", "title", column{"a", low}, column{"b", neither})
	for _, v := range []float64{3, 1, 2} {
		findings.add("nginx", v*10, v)
		findings.add("sidecar", v*15, v)
	}
	findings.add("new")
	findings.note("a %s", "note")
	want := "\n## cpu: title\n\n|  | a | b |\n|---|---|---|\n| nginx | 20.0 (1.00) | 2.00 |\n" +
		"| sidecar | 30.0 (1.50) | 2.00 |\n| new | – | – |\n\nNote: a note\n"
	if got := findings.markdown(); got != want {
		t.Errorf("got %s", got)
	}

	// The machine got slower by the turn, and one turn of a peer failed: ratios are of what the same turn saw.
	slower := newTable("cpu", "title", column{"a", low})
	for slower.turn = 1; slower.turn <= 4; slower.turn++ {
		speed := float64(slower.turn * slower.turn)
		if slower.turn != 2 {
			slower.add("sidecar", 3*speed)
		}
		slower.add("nginx", 2*speed)
	}
	if r, ok := slower.ratio("sidecar", "nginx", "a"); !ok || r != 1.5 {
		t.Errorf("ratio %v", r)
	}

	two := newTable("h2", "title", column{"a", low})
	two.Bases = []string{"haproxy", "absent"}
	two.add("sidecar", 15)
	two.add("haproxy", 20)
	want = "\n## h2: title\n\nIn brackets: the ratio to haproxy, to absent.\n\n|  | a |\n|---|---|\n| sidecar | 15.0 (0.75, –) |\n| haproxy | 20.0 (1.00, –) |\n"
	if got := two.markdown(); got != want {
		t.Errorf("got %s", got)
	}

	path := filepath.Join(t.TempDir(), "latest")
	r := &report{Absent: map[string]string{"envoy": "not here"}, Tables: []*table{findings}}
	if err := r.write(path); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(path + ".json")
	var back report
	if err := json.Unmarshal(text, &back); err != nil || back.Tables[0].Medians["sidecar"]["a"].Ratios["nginx"] != 1.5 {
		t.Errorf("%v: %s", err, text)
	}
	if text, _ := os.ReadFile(path + ".md"); !strings.Contains(string(text), "- envoy: not here") {
		t.Errorf("an absent peer is not told: %s", text)
	}
}

func TestTemplatesRender(t *testing.T) {
	for _, m := range []mode{
		{Dir: "/d", Listen: "127.0.0.1:1", Origin: "127.0.0.1:2", HTTP: "127.0.0.1:1"},
		{Dir: "/d", Listen: "127.0.0.1:1", Origin: "127.0.0.1:2", HTTP: "127.0.0.1:1", Log: "/d/log"},
		{Dir: "/d", Listen: "127.0.0.1:1", Origin: "127.0.0.1:2", HTTP: "127.0.0.1:3", TCP: true},
		{Dir: "/d", Listen: "127.0.0.1:1", Origin: "127.0.0.1:2", HTTP: "127.0.0.1:1", HTTP2: true},
		{Dir: "/d", Listen: "127.0.0.1:1", Origin: "127.0.0.1:2", HTTP: "127.0.0.1:1", HTTP2: true, OriginHTTP2: true},
	} {
		for _, p := range allPeers(&bench{}) {
			if p.template == "" || p.takes != nil && !p.takes(m) {
				continue
			}
			text, err := render(p.template, m)
			if err != nil {
				t.Error(err)
			}
			for _, address := range []string{m.Listen, m.Origin} {
				if !strings.Contains(string(text), address) && !strings.Contains(string(text), "port_value: "+portOf(address)) {
					t.Errorf("%s: no %s in\n%s", p.name, address, text)
				}
			}
			if m.Log != "" && p.name != "haproxy" && !strings.Contains(string(text), m.Log) {
				t.Errorf("%s: no log in\n%s", p.name, text)
			}
		}
	}
}

func TestGrowthDocument(t *testing.T) {
	s := size{services: 2, endpoints: 300, routes: 3}
	one, two := string(s.document(places{}, "2", 1)), string(s.document(places{}, "2", 2))
	if n := strings.Count(one, "127.1."); n != 600 {
		t.Errorf("%d endpoints", n)
	}
	if strings.Count(one, "weight: 2") != 2 || strings.Count(two, "weight: 2") != 0 {
		t.Error("a revision does not change one endpoint of each service")
	}
	if host, path := s.target(); host != "s1" || path != "/r2/x" {
		t.Error(host, path)
	}
}

func TestCombinedDocument(t *testing.T) {
	s := size{services: 3, endpoints: 2, routes: 4, combined: true}
	text := string(s.document(places{files: "/d"}, "1", 1))
	if strings.Count(text, "from: files") != 3 || strings.Count(text, "name: r") != 4 || strings.Contains(text, "127.1.") {
		t.Error(text)
	}
	dir := t.TempDir()
	if err := s.files(dir, "1"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "s2.yaml")); err != nil || strings.Count(string(text), "127.1.") != 2 {
		t.Errorf("%s %v", text, err)
	}
}

func TestGrown(t *testing.T) {
	samples := func(at func(i int) sample) (all []sample) {
		for i := range 16 {
			all = append(all, at(i))
		}
		return all
	}
	if err := grown(samples(func(i int) sample { return sample{20 + float64(i%3), 100} })); err != nil {
		t.Error(err)
	}
	for what, at := range map[string]func(i int) sample{
		"memory":      func(i int) sample { return sample{20 + 2*float64(i), 100} },
		"descriptors": func(i int) sample { return sample{20, 100 + 50*float64(i)} },
	} {
		if err := grown(samples(at)); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("growing %s: %v", what, err)
		}
	}
}

func TestChoose(t *testing.T) {
	names := []string{"cpu", "tcp", "soak"}
	if got, err := choose(names, ""); err != nil || fmt.Sprint(got) != "[cpu tcp]" {
		t.Error(got, err)
	}
	if got, err := choose(names, "soak,cpu"); err != nil || len(got) != 2 {
		t.Error(got, err)
	}
	if _, err := choose(names, "cpu,nonsense"); err == nil {
		t.Error("took nonsense")
	}
}
