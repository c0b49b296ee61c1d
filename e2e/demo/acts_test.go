package demo

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// view is what the caller's sidecar says of a service, as far as it matters here.
type view struct {
	Sources []struct {
		Protection *struct {
			Kind string `json:"kind"`
		} `json:"protection"`
	} `json:"sources"`
	Endpoints []struct {
		Address string `json:"address"`
	} `json:"endpoints"`
}

func (s *story) look(service string) (v view) {
	s.t.Helper()
	resp, err := http.Get("http://" + s.caller.Admin + "/services/" + service)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		s.t.Fatal(err)
	}
	return v
}

// uses reports whether the caller's sidecar has so many endpoints of a service, under that protection.
func (s *story) uses(service string, endpoints int, protection string) func() bool {
	return func() bool {
		s.t.Helper()
		v := s.look(service)
		kind := ""
		if len(v.Sources) > 0 && v.Sources[0].Protection != nil {
			kind = v.Sources[0].Protection.Kind
		}
		return len(v.Endpoints) == endpoints && kind == protection
	}
}

// asked returns how many requests the apps of a group of shop have had.
func (s *story) asked(group string) (requests int) {
	for _, p := range s.pods {
		if p.group == group {
			requests += p.app.Requests()
		}
	}
	return requests
}

func (s *story) discovery() {
	s.t.Helper()
	act("1. Services are found")
	s.awaits("the caller's sidecar has three endpoints of shop and twenty of catalog", func() bool {
		return s.uses("shop", 3, "")() && s.uses("catalog", 20, "")()
	})
	for _, name := range s.services {
		s.loads[name] = sidecartest.Steady(s.t, sidecartest.Call{
			Address: s.caller.Outbound, Host: name, Path: "/", Callers: 2, Pause: 10 * time.Millisecond,
		})
	}
	s.say("callers begin to call both, without a pause until the end")
	s.watched(func() {
		p := s.newPod("bj")
		s.say("shop-6 is started in bj, an app and its sidecar")
		s.awaits("it gets calls", func() bool { return p.app.Requests() > 10 })
	})
	s.claim(s.asked("sh") == 0, "shop is called in the group bj alone")
}

func (s *story) outage() {
	s.t.Helper()
	act("2. The registry is gone")
	failing := func(n float64) func() bool {
		return func() bool { return s.caller.Metric(s.t, "sidecar_discovery_failing", `source="main"`) == n }
	}
	s.watched(func() {
		s.consul.Kill(s.t)
		s.say("Consul is killed")
		s.awaits("the caller's sidecar knows: sidecar_discovery_failing is 1", failing(1))
		<-time.After(outage)
		s.claim(s.uses("shop", 4, "")() && s.uses("catalog", 20, "")(), "after %v it still has four endpoints of shop and twenty of catalog", outage)
		s.consul.Restart(s.t)
		s.say("Consul is started again")
		s.awaits("the caller's sidecar follows it: sidecar_discovery_failing is 0", failing(0))
		s.awaits("the six of shop are registered and passing", func() bool { return s.passing() == 6 })
		s.awaits("all endpoints are in use", func() bool { return s.uses("shop", 4, "")() && s.uses("catalog", 20, "")() })
	})
}

// passing returns how many instances of shop are well, by the word of the registry.
func (s *story) passing() (n int) {
	s.t.Helper()
	for _, i := range s.consul.Instances(s.t, "shop") {
		if i.Status == "passing" {
			n++
		}
	}
	return n
}

func (s *story) massCritical() {
	s.t.Helper()
	act("3. The registry takes most of a service for dead")
	const sick = 12
	check := func(status string) {
		s.t.Helper()
		for _, id := range s.catalog[:sick] {
			s.consul.SetCheck(s.t, id, status)
		}
	}
	s.watched(func() {
		check("critical")
		s.say("%d of the 20 instances of catalog turn critical at once; their apps are well", sick)
		s.awaits("removal protection holds: 16 stay in use, a fifth goes", s.uses("catalog", 16, "removal_protection"))
	})
	s.claim(s.uses("catalog", 16, "removal_protection")(), "it still holds")
	s.watched(func() {
		check("passing")
		s.say("their checks pass again")
		s.awaits("all 20 are used, nothing is protected any more", s.uses("catalog", 20, ""))
	})
}

func (s *story) drain() {
	s.t.Helper()
	act("4. An instance leaves")
	leaving := s.pods[0]
	s.watched(func() {
		leaving.sidecar.Signal(s.t, syscall.SIGTERM)
		s.say("the sidecar of shop-1 is told to end (SIGTERM)")
		s.awaits("shop-1 is out of the registry", func() bool { return len(s.consul.Instances(s.t, "shop")) == 5 })
		s.awaits("the caller's sidecar has three endpoints of shop", s.uses("shop", 3, ""))
		asked := leaving.app.Requests()
		<-time.After(3 * glance) // without a connection to it: even that is a call, and it stays as long as there are calls
		s.claim(leaving.app.Requests() == asked, "nobody calls shop-1 any more")
		s.awaits("it lets nobody in any more", func() bool { return sidecartest.Refuses(leaving.sidecar.Inbound) })
		leaving.app.Close()
		s.say("the app of shop-1 ends")
		code := leaving.sidecar.Wait(s.t, patience)
		s.claim(code == 0, "the sidecar of shop-1 ended by itself, exit code %d", code)
	})
}

func (s *story) groupSwitch() {
	s.t.Helper()
	act("5. A group is switched away, by one key")
	quiet := func(group string) {
		s.t.Helper()
		<-time.After(glance / 4) // what was on its way arrives
		asked := s.asked(group)
		<-time.After(glance)
		s.claim(s.asked(group) == asked, "no call goes to %s", group)
	}
	called := func(group string) {
		s.t.Helper()
		asked := s.asked(group)
		s.awaits("calls go to "+group, func() bool { return s.asked(group) > asked+10 })
	}
	s.watched(func() {
		s.config(`{service: shop, from: bj, to: sh}`, "put", "groups/bj-away")
		called("sh")
		quiet("bj")
	})
	s.watched(func() {
		s.config(`{service: shop, from: bj, to: sh, enabled: false}`, "put", "groups/bj-away")
		called("bj")
		quiet("sh")
	})
}

// config runs `sidecar config` against the keys of Consul.
func (s *story) config(document string, args ...string) {
	s.t.Helper()
	told := "sidecar config " + strings.Join(args, " ")
	if document != "" {
		told = "echo '" + document + "' | " + told
	}
	cmd := exec.Command(sidecartest.Build(s.t), append(append([]string{"config"}, args...), "--consul", s.consul.HTTP)...)
	cmd.Stdin = strings.NewReader(document)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v: %s", told, err, out)
	}
	s.say("%s", told)
}
