package config

import (
	"fmt"
	"strings"
	"testing"
)

// large writes a document with services of ten endpoints and five routes each.
func large(services int, json bool) []byte {
	var b strings.Builder
	end := "\n"
	if json {
		b.WriteString(`{"node": {"service": "shop"}, "services": {`)
	} else {
		b.WriteString("node: {service: shop}\nservices:\n")
	}
	for i := range services {
		if json {
			if end = ","; i == services-1 {
				end = ""
			}
			fmt.Fprintf(&b, `"s%d": {"endpoints": [`, i)
			for j := range 10 {
				fmt.Fprintf(&b, `%s{"address": "10.%d.%d.%d:8080", "weight": %d, "labels": {"version": "v%d"}}`, strings.Repeat(",", min(j, 1)), i>>8, i&255, j, j+1, j&1)
			}
			b.WriteString(`], "policy": {"timeout": "1s", "retry": 1}, "routes": [`)
			for j := range 5 {
				fmt.Fprintf(&b, `%s{"name": "r%d", "match": "GET /v%d/*", "policy": {"timeout": "50ms", "retry": {"count": 2, "when": ["connect", 503]}}}`, strings.Repeat(",", min(j, 1)), j, j)
			}
			b.WriteString("]}" + end)
			continue
		}
		fmt.Fprintf(&b, "  s%d:\n    policy: {timeout: 1s, retry: 1}\n    endpoints:\n", i)
		for j := range 10 {
			fmt.Fprintf(&b, "      - {address: \"10.%d.%d.%d:8080\", weight: %d, labels: {version: v%d}}\n", i>>8, i&255, j, j+1, j&1)
		}
		b.WriteString("    routes:\n")
		for j := range 5 {
			fmt.Fprintf(&b, "      - name: r%d\n        match: GET /v%d/*\n        policy: {timeout: 50ms, retry: {count: 2, when: [connect, 503]}}\n", j, j)
		}
	}
	if json {
		b.WriteString("}}")
	}
	return []byte(b.String())
}

func benchmarkLoad(b *testing.B, data []byte) {
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := LoadBytes("large", data, RankFile, noEnv); err != nil {
			b.Fatal(err)
		}
	}
}

// The goal: 10 000 endpoints and 5 000 routes in at most 1 s.
func BenchmarkLoadYAML(b *testing.B) { benchmarkLoad(b, large(1000, false)) }

func BenchmarkLoadJSON(b *testing.B) { benchmarkLoad(b, large(1000, true)) }

func BenchmarkLoadSmall(b *testing.B) { benchmarkLoad(b, large(1, false)) }

func BenchmarkRoutePolicies(b *testing.B) {
	c, err := LoadBytes("large", large(1000, false), RankFile, noEnv)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		for _, s := range c.Services {
			for _, r := range s.Routes {
				c.RoutePolicy(s, r)
			}
		}
	}
}

// TestLoadGrowsWithTheDocument sees to it that four times the services cost about four times the allocations, in both
// forms, and that a service costs no more than it did when this was written (about 950, and 1600 as JSON).
func TestLoadGrowsWithTheDocument(t *testing.T) {
	for _, json := range []bool{false, true} {
		few, many := large(50, json), large(200, json)
		count := func(data []byte) float64 {
			return testing.AllocsPerRun(1, func() {
				if _, err := LoadBytes("large", data, RankFile, noEnv); err != nil {
					t.Fatal(err)
				}
			})
		}
		small, big := count(few), count(many)
		if big > 4.5*small || big/200 > 2000 {
			t.Errorf("json %v: %v allocations for 50 services, %v for 200", json, small, big)
		}
		t.Logf("json %v: %.0f allocations a service", json, big/200)
	}
}

// TestManyRoutesOfOneService sees to it that no check looks at each pair of routes or endpoints.
func TestManyRoutesOfOneService(t *testing.T) {
	var b strings.Builder
	b.WriteString("services:\n  a:\n    endpoints:\n")
	for i := range 10_000 {
		fmt.Fprintf(&b, "    - 10.0.%d.%d:80\n", i>>8, i&255)
	}
	b.WriteString("    routes:\n")
	for i := range 5_000 {
		fmt.Fprintf(&b, "    - {name: r%d, match: {path: /%d, header: {x: y}}}\n", i, i)
	}
	c := parseText(t, b.String())
	if s := c.Services["a"]; len(s.Routes) != 5000 || len(s.Endpoints) != 10_000 || len(c.Warnings) != 0 {
		t.Errorf("%d routes, %d endpoints, %d warnings", len(s.Routes), len(s.Endpoints), len(c.Warnings))
	}
}
