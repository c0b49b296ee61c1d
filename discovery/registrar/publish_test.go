package registrar_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/registrar"
	"github.com/sidecar-mesh/sidecar/discovery/registration"
)

// center is a config centre that writes down what it was asked.
type center struct {
	mu    sync.Mutex
	has   map[string]string
	tries []string
	fails bool
}

func (c *center) publish(_ context.Context, p *registrar.Publication) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := p.Registry.Name + ":" + p.Prefix + p.Service
	c.tries = append(c.tries, key)
	if c.fails {
		return false, errors.New("no leader")
	}
	written := c.has[key] != string(p.Text)
	c.has[key] = string(p.Text)
	return written, nil
}

// tried returns how often it was asked to write, and what it has of shop.
func (c *center) tried() (int, string) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.tries), c.has["old:mesh/shop"]
}

// policy stands for what is published.
func policy(in *config.Inbound, routes bool) ([]byte, error) {
	switch {
	case in.App == "":
		return nil, nil
	case routes:
		return []byte(in.App + " with routes"), nil
	}
	return []byte(in.App), nil
}

// publishing is a configuration whose service shop is registered in main and says how it is to be called in old.
func publishing(which, text string) *config.Config {
	c := cfg(map[string][]string{"shop": {"main"}}, func(r *config.Register) { r.PublishPolicy = which })
	c.Registries["old"] = &config.Registry{Name: "old"}
	c.Center = &config.ConfigCenter{Consul: &config.ConsulCenter{Registry: "old", Prefix: "mesh/"}}
	c.Inbound[0].App = text // which policy takes for what is said
	return c
}

// TestPublish: once, when the service is registered and when what is said changes; never because instances come and go (S-9).
func TestPublish(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		want := func(tries int, text string) {
			t.Helper()
			if n, got := r.center.tried(); n != tries || got != text {
				t.Errorf("%d tries, %q; want %d, %q", n, got, tries, text)
			}
		}
		set := func(which, text string) {
			t.Helper()
			if err := r.SetConfig(publishing(which, text)); err != nil {
				t.Fatal(err)
			}
		}
		r.main.set(func() {
			r.main.next[registration.Register] = registration.Result{Kind: registration.Failed, Text: "no"}
		})
		set(config.PublishService, "a")
		time.Sleep(time.Minute)
		want(0, "") // not registered
		r.main.set(func() { delete(r.main.next, registration.Register) })
		time.Sleep(time.Minute)
		want(1, "a")
		if !r.log.has("published shop in old: true <nil> again=false") {
			t.Errorf("%q", r.log.lines)
		}

		r.Listening()
		for range 20 { // flaps, and an agent that forgets
			r.App("shop", true, "")
			time.Sleep(time.Second)
			r.App("shop", false, "refused")
			r.main.set(func() { clear(r.main.has) })
			time.Sleep(10 * time.Second)
		}
		if n := countOf(r.main.calls(), "register shop-pod-80"); n < 5 {
			t.Fatalf("registered %d times: the agent did not forget", n)
		}
		set(config.PublishService, "a") // a reload that changes nothing
		want(1, "a")
		set(config.PublishMethod, "a")
		want(2, "a with routes")
		set(config.PublishService, "b")
		want(3, "b")
		set(config.PublishNone, "b") // what callers have stays
		set(config.PublishService, "")
		want(3, "b")
	})
}

func countOf(list []string, what string) int {
	n := 0
	for _, s := range list {
		if s == what {
			n++
		}
	}
	return n
}

// TestPublishFails: the registration does not wait for it; it is tried again, with pauses that grow, and told once.
func TestPublishFails(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.center.fails = true
		if err := r.SetConfig(publishing(config.PublishService, "a")); err != nil {
			t.Fatal(err)
		}
		r.Listening()
		r.App("shop", true, "")
		r.want(t, r.main, "+shop-pod-80")
		time.Sleep(10 * time.Minute)
		n, _ := r.center.tried()
		if n < 10 || n > 20 {
			t.Errorf("%d tries in ten minutes", n)
		}
		first := slices.IndexFunc(r.log.lines, func(s string) bool { return strings.HasPrefix(s, "published") })
		if first < 0 || r.log.lines[first] != "published shop in old: false no leader again=false" || !r.log.has("published shop in old: false no leader again=true") {
			t.Errorf("%q", r.log.lines)
		}
		r.center.mu.Lock()
		r.center.fails = false
		r.center.mu.Unlock()
		time.Sleep(time.Minute)
		if n, text := r.center.tried(); text != "a" {
			t.Errorf("%d tries, %q", n, text)
		}
		if err := r.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestPublishEnds: who leaves tries no more.
func TestPublishEnds(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.center.fails = true
		if err := r.SetConfig(publishing(config.PublishService, "a")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := r.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		before, _ := r.center.tried()
		time.Sleep(10 * time.Minute)
		if n, _ := r.center.tried(); n != before || n == 0 {
			t.Errorf("%d tries, %d before it left", n, before)
		}
	})
}
