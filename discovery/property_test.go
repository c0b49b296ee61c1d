package discovery_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
)

// model is what the merger should know, the naive way: by registry and service, the last good addresses.
type model map[string]map[string][]string

func (m model) want(s *config.Service) []string {
	var all []string
	add := func(list []string) {
		for _, a := range list {
			if !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	for _, e := range s.Endpoints {
		add([]string{e.Address})
	}
	for _, r := range s.Registry {
		add(m[r][s.Name])
	}
	return all
}

// Random answers, failures and restarts of several sources, and reloads: every service always has what its own sources
// said last, whatever happens to the others.
func TestProperty(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { property(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func property(t *testing.T, rnd *rand.Rand) {
	registries := []string{"x", "y", "z"}
	services := make(map[string][]string)
	for i := range 8 {
		parts := []string{registries[i%3]}
		if i%2 == 0 {
			parts = append(parts, registries[(i+1)%3])
		}
		if i%3 == 0 {
			parts = append(parts, fmt.Sprintf("10.9.0.%d:1", i))
		}
		services[fmt.Sprintf("s%d", i)] = parts
	}
	r := start(t, doc(registries, services), registries...)
	known := make(model)
	cfg := doc(registries, services)
	for _, reg := range registries {
		known[reg] = make(map[string][]string)
	}
	names := slices.Sorted(maps.Keys(services))
	for step := range 200 {
		reg := registries[rnd.IntN(3)]
		src := r.sources[reg]
		asked := src.asked()
		name := asked[rnd.IntN(len(asked))]
		switch n := rnd.IntN(20); {
		case n < 13:
			var list []string
			for i := range 6 {
				if rnd.IntN(2) == 0 {
					list = append(list, fmt.Sprintf("10.0.0.%d:1", i))
				}
			}
			known[reg][name] = list
			src.say(name, slices.Clone(list)...)
		case n < 18:
			src.out <- discovery.Update{Service: name, Err: errors.New("no")}
		case n == 18:
			src.fail <- errors.New("source died")
			r.after(time.Minute) // it comes back after a pause
		default:
			if err := r.m.SetConfig(t.Context(), doc(registries, services)); err != nil {
				t.Fatal(err)
			}
		}
		if rnd.IntN(3) == 0 {
			mesh := r.after(time.Second)
			for _, s := range names {
				got, want := addresses(mesh, s), known.want(cfg.Services[s])
				if !slices.Equal(got, want) {
					t.Fatalf("step %d, %s: %v, want %v", step, s, got, want)
				}
			}
		}
	}
}

// big makes services with n endpoints each from one registry, and their answers.
func big(services, n int) (*config.Config, map[string][]string) {
	parts, lists := make(map[string][]string), make(map[string][]string)
	for i := range services {
		name := fmt.Sprintf("s%04d", i)
		parts[name] = []string{"x"}
		for k := range n {
			lists[name] = append(lists[name], fmt.Sprintf("10.%d.%d.%d:8080", i/200, i%200, k))
		}
	}
	return doc([]string{"x"}, parts), lists
}

// One change among a thousand services: one new pointer, everything else is shared.
func TestSharing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg, lists := big(1000, 10)
		r := start(t, cfg, "x")
		for name, list := range lists {
			r.sources["x"].say(name, list...)
		}
		before := r.after(time.Second)
		if len(before.Endpoints) != 1000 || !r.isReady() {
			t.Fatalf("%d services", len(before.Endpoints))
		}
		r.sources["x"].say("s0500", append(slices.Clone(lists["s0500"][1:]), "10.200.0.1:8080")...)
		after := r.after(time.Second)
		changed := 0
		for name, set := range after.Endpoints {
			if set != before.Endpoints[name] {
				changed++
			}
		}
		if changed != 1 || after.Config != before.Config || after.Revision != before.Revision {
			t.Errorf("%d sets changed", changed)
		}
		kept := 0
		for _, e := range after.Endpoints["s0500"].List {
			if slices.Contains(before.Endpoints["s0500"].List, e) {
				kept++
			}
		}
		if kept != 9 {
			t.Errorf("%d of 9 endpoints kept their pointer", kept)
		}
		if got := len(before.Endpoints["s0500"].List); got != 10 || before.Endpoints["s0500"].List[0].Address != lists["s0500"][0] {
			t.Error("the mesh of before was written to")
		}
	})
}

// An edit of one service leaves the endpoints of all, also its own, as they are.
func TestSharingOverReload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		services := map[string][]string{"a": {"10.0.0.1:1", "cache.internal:1"}, "b": {"10.0.0.2:1"}}
		r := start(t, doc(nil, services))
		r.sources["resolver"].say("cache.internal:1", "10.1.0.1:1")
		before := r.after(time.Second)
		next := doc(nil, services)
		next.Services["a"].Critical = true
		if err := r.m.SetConfig(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		m := r.after(0)
		if m.Config.Services["a"] == before.Config.Services["a"] || m.Config.Services["b"] != before.Config.Services["b"] {
			t.Error("service pointers")
		}
		for name := range services {
			if m.Endpoints[name] != before.Endpoints[name] {
				t.Errorf("%s: the set changed", name)
			}
		}
		next = doc(nil, services)
		next.Services["a"].Endpoints = append(next.Services["a"].Endpoints, &config.Endpoint{Address: "10.0.0.9:1", Weight: 1})
		if err := r.m.SetConfig(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		m = r.after(0)
		r.expect(m, "a", "10.0.0.1:1", "10.1.0.1:1", "10.0.0.9:1")
		if !slices.Equal(m.Endpoints["a"].List[:2], before.Endpoints["a"].List) {
			t.Error("endpoints that did not change have new pointers")
		}
	})
}

func TestRevision(t *testing.T) {
	revision := func(change func(*config.Config)) string {
		var got string
		bubble(t, func(t *testing.T) {
			c := doc([]string{"x"}, map[string][]string{"a": {"10.0.0.1:1"}, "b": {"x"}})
			change(c)
			got = start(t, c, "x").after(5 * time.Second).Revision
		})
		return got
	}
	base := revision(func(*config.Config) {})
	for name, f := range map[string]func(*config.Config){
		"node":   func(c *config.Config) { c.Node.ID = "other" },
		"origin": func(c *config.Config) { c.Services["a"].From.Line = 99 },
	} {
		if revision(f) != base {
			t.Errorf("%s changes the revision", name)
		}
	}
	for name, f := range map[string]func(*config.Config){
		"listen": func(c *config.Config) { c.Listen.Admin = "127.0.0.1:1" },
		"policy": func(c *config.Config) { c.Services["a"].Policy.Retry.Count = config.Opt[int]{Set: true} },
		"ratio":  func(c *config.Config) { c.Services["a"].Policy.Outlier.ErrorRatio.Value = 0.5 },
		"labels": func(c *config.Config) { c.Services["a"].Endpoints[0].Labels = map[string]string{"a": "b"} },
		"gone":   func(c *config.Config) { delete(c.Services, "b") },
	} {
		if revision(f) == base {
			t.Errorf("%s does not change the revision", name)
		}
	}
	if len(base) != 12 {
		t.Errorf("revision %q", base)
	}
}
