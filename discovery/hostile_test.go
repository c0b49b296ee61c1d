package discovery_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
)

// TestHostileRegistry plays registries that lie in every way (empty, short, doubled, full of strangers, all critical, errors,
// the source dying), with endpoints that live throughout, restarts of the merger over one memory, and reloads. Whatever is
// said, the five that live are never all lost, nothing that no check reaches is used without the registry's word, and when
// the registry tells the truth for long enough, that is what is used.
func TestHostileRegistry(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { hostile(t, rand.New(rand.NewPCG(seed, 3))) })
		})
	}
}

// strangers are addresses that a registry may name and that nobody answers at.
func strangers(rnd *rand.Rand, n int) []string {
	var list []string
	for range n {
		list = append(list, fmt.Sprintf("10.9.%d.%d:80", rnd.IntN(250), rnd.IntN(250)))
	}
	return list
}

func hostile(t *testing.T, rnd *rand.Rand) {
	truth := numbered(5)
	d := &disk{kept: map[string][]*config.Endpoint{}}
	cfg := guarded(map[string][]string{"a": {"x"}})
	r := startWith(t, d, cfg, "x")
	x := r.sources["x"]
	x.say("a", truth...)
	r.expect(r.after(time.Second), "a", truth...)
	for step := range 120 {
		lie(r, x, rnd, truth)
		pause := time.Duration(600+rnd.IntN(4000)) * time.Millisecond
		m := r.after(pause)
		used := addresses(m, "a")
		if !slices.ContainsFunc(used, func(a string) bool { return slices.Contains(truth, a) }) {
			t.Fatalf("step %d: none of the living is used: %v; %+v %+v", step, used, m.Endpoints["a"].Sources, m.Endpoints["a"].Notes)
		}
		switch rnd.IntN(30) {
		case 0: // the sidecar is restarted, and the registry is silent
			r.stop()
			<-r.done
			r = startWith(t, d, cfg, "x")
			x = r.sources["x"]
			r.mu.Lock()
			for _, e := range d.kept["a"] {
				if !slices.Contains(truth, e.Address) {
					r.dead[e.Address] = true
				}
			}
			r.mu.Unlock()
			r.after(5 * time.Second)
		case 1:
			if err := r.m.SetConfig(t.Context(), guarded(map[string][]string{"a": {"x"}})); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 20 {
		x.say("a", truth...)
		r.after(5 * time.Second)
	}
	r.expect(r.after(time.Minute), "a", truth...)
	if set := r.after(0).Endpoints["a"]; set.Sources[0].Protection != "" || len(set.Notes) > 0 {
		t.Errorf("%+v %+v", set.Sources, set.Notes)
	}
}

// lie says something. It never replaces all that live by strangers of the same number: that is a deployment.
func lie(r *rig, x *fake, rnd *rand.Rand, truth []string) {
	some := func(list []string, share float64) []string {
		return slices.DeleteFunc(slices.Clone(list), func(string) bool { return rnd.Float64() >= share })
	}
	switch rnd.IntN(9) {
	case 0, 1:
		x.say("a")
	case 2:
		list := some(truth, 0.4)
		x.say("a", list...)
	case 3:
		list := append(slices.Clone(truth), truth...)
		x.say("a", list...)
	case 4:
		list := strangers(rnd, 1+rnd.IntN(8))
		r.kill(list...)
		list = append(list, truth[rnd.IntN(3):]...)
		x.say("a", list...)
	case 5:
		n := 1 + rnd.IntN(5)
		x.ill(n, truth...)
	case 6:
		x.out <- discovery.Update{Service: "a", Err: errors.New("no leader")}
	case 7:
		x.fail <- errors.New("gone")
		r.after(time.Minute)
	case 8:
		for _, a := range some(truth, 0.5) {
			r.m.Suspect("a", a)
		}
		x.say("a", truth...)
	}
}
