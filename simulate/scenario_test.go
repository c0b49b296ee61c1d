package simulate_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/simulate"
)

// scenarios are the files that ship.
func scenarios(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../examples/scenarios/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	return files
}

func load(t *testing.T, name string) *simulate.Scenario {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := simulate.Load(name, data)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func play(t *testing.T, s *simulate.Scenario) *simulate.Result {
	t.Helper()
	r, err := simulate.Run(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// calls is how many calls a scenario makes, all variants together.
func calls(s *simulate.Scenario) float64 {
	n := 0.0
	for _, t := range s.Traffic {
		n += float64(t.Rate) * s.Duration.Seconds() * float64(s.Sidecars*len(s.Variants))
	}
	return n
}

// TestScenarios: each scenario that ships says what it must show, and shows it; its page is whole.
func TestScenarios(t *testing.T) {
	for _, name := range scenarios(t) {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yaml"), func(t *testing.T) {
			t.Parallel()
			s := load(t, name)
			if len(s.Story) == 0 || s.About == "" || len(s.Expect) == 0 {
				t.Error("story, about and expect belong to a scenario that ships")
			}
			if calls(s) > patience {
				t.Skip("large, and under the race detector")
			}
			r := play(t, s)
			if !r.Met() {
				t.Errorf("\n%s", r.Text())
			}
			page := r.Page()
			for _, want := range []string{"<!doctype html>", "<h2>What it must show</h2>", "<polyline", "</svg>"} {
				if !strings.Contains(page, want) {
					t.Errorf("the page has no %s", want)
				}
			}
			for _, bad := range []string{"http://", "https://", "NaN", "Inf"} {
				if strings.Contains(page, bad) {
					t.Errorf("the page has %s", bad)
				}
			}
		})
	}
}

// TestSeed: the same seed gives the same result to the last digit, on however many threads, another one another.
func TestSeed(t *testing.T) {
	threads := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(threads)
	for _, name := range []string{"retry-another-node", "degrade-by-itself", "mirror", "sick-node", "half-dead-registry"} {
		t.Run(name, func(t *testing.T) { seeded(t, "../examples/scenarios/"+name+".yaml") })
	}
}

func seeded(t *testing.T, file string) {
	text := func(seed uint64) string {
		s := load(t, file)
		s.Duration, s.Expect = min(s.Duration, 30*time.Second), nil
		s.Seed = seed
		b, err := json.Marshal(play(t, s))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	one := text(1)
	for _, n := range []int{1, 2, 4} {
		runtime.GOMAXPROCS(n)
		if text(1) != one {
			t.Errorf("the same seed gives another result on %d threads", n)
		}
	}
	if text(2) == one {
		t.Error("two seeds give the same result")
	}
}

// TestMistakes: what is wrong with a scenario is said, with its place, and all of it at once.
func TestMistakes(t *testing.T) {
	const world = "world: {a: [{latency: 1ms}]}\ntraffic: [{to: a, rate: 1/s}]\n"
	for _, row := range []struct{ text, want string }{
		{world + "wolrd: {}", "line 3: field wolrd not found"},
		{world + "duration: 5", "cannot unmarshal"},
		{"world: {a: [{}]}\ntraffic: [{to: a, rate: 1/s}]", "line 1: world.a: latency is missing"},
		{"world: {a: [{latency: 1ms, wrokers: 2}]}\ntraffic: [{to: a, rate: 1/s}]", "wrokers not found"},
		{"world: {a: [{latency: {p50: 2ms, p99: 1ms}}]}\ntraffic: [{to: a, rate: 1/s}]", "quantiles of a latency must rise"},
		{"world: {a: [{latency: {p5x: 2ms}}]}\ntraffic: [{to: a, rate: 1/s}]", "a quantile and a time are expected"},
		{"world: {a: [{latency: 1ms}]}\ntraffic: [{to: a, rate: 1}]", "a rate is expected"},
		{"world: {a: [{latency: 1ms}]}\ntraffic: [{to: a}]", "to and rate are needed"},
		{world + "faults: [{service: b}]", `there is no service "b" in world`},
		{world + "faults: [{service: a, class: c}]", `service a has no class "c"`},
		{world + "faults: [{service: a, share: 120%}]", "a share is expected"},
		{world + "sidecars: 1000000", "sidecars: 1e+06 is not from 1 to 10000"},
		{world + "expect: [p99 < 1ms, sucess > 1]", `"sucess" is no figure`},
		{world + "expect: [x.p99 < 1ms]", `there is no variant "x"`},
		{world + "expect: [p99(x) < 1ms]", `there is no "x"`},
		{world + "changes: [{switches: {away: on}}]", `there is no switch "away"`},
		{world + "changes: [{level: 4}]", "changes[0].level: 4 is not from 0 to 3"},
		{world + "expect: [p99@1.25s-2s < 1ms]", "its times are no multiples of 500ms"},
		{world + "expect: [p99 ~ 1ms]", `"~" is none of`},
		{"config:\n  services:\n    a: {timeout: 1s}\n" + world, "s.yaml:3:9: services.a.timeout: unknown key"},
		{world + "variants: {one: {services: {a: {policy: {retry: many}}}}}", "s.yaml: variants.one:"},
	} {
		_, err := simulate.Load("s.yaml", []byte(row.text))
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q: %v, want %q", row.text, err, row.want)
		}
	}
}
