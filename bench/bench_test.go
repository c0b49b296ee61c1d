//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
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

	path := filepath.Join(t.TempDir(), "latest")
	r := &report{Absent: map[string]string{"envoy": "not here"}, Tables: []*table{findings}}
	if err := r.write(path); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(path + ".json")
	var back report
	if err := json.Unmarshal(text, &back); err != nil || back.Tables[0].Medians["sidecar"]["a"].Ratio != 1.5 {
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
	} {
		for _, p := range allPeers(&bench{}) {
			if p.template == "" {
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
	one, two := string(s.document("127.0.0.1:1", "2", 1)), string(s.document("127.0.0.1:1", "2", 2))
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
