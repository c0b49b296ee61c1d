package demo

import (
	"path/filepath"
	"syscall"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// keySwitch turns a service off by one key, and on again by its end.
func (s *story) keySwitch() {
	s.t.Helper()
	act("6. A service is switched off, by one key")
	s.watched(func() {
		s.config(`{service: catalog, enabled: true, answer: {status: 200, body: "[]"}}`, "put", "switches/no-catalog")
		s.awaits("the caller gets the answer of the switch", func() bool { return s.call(s.caller, "catalog") == "[]" })
		<-time.After(glance / 4) // what was on its way arrives
		asked := s.callsOfCatalog()
		<-time.After(glance)
		s.claim(s.callsOfCatalog() == asked, "no call goes to catalog")
	})
	s.watched(func() {
		s.config("", "delete", "switches/no-catalog")
		s.awaits("catalog answers again", func() bool { return s.call(s.caller, "catalog") == "catalog" })
	})
}

// halfDead shows a registry that has lost most of a service without a word from its instances.
func (s *story) halfDead() {
	s.t.Helper()
	act("7. The registry has lost most of a service")
	s.watched(func() {
		for _, id := range s.catalog[:15] {
			s.consul.Deregister(s.t, id)
		}
		s.say("15 of the 20 instances of catalog are gone from Consul at once; their apps are well")
		s.awaits("half-dead protection holds: all 20 stay in use", s.uses("catalog", 20, "half_dead"))
	})
	s.claim(s.uses("catalog", 20, "half_dead")(), "it still holds")
}

// deadStart starts a sidecar while Consul is dead.
func (s *story) deadStart() {
	s.t.Helper()
	act("8. A sidecar is started while Consul is dead")
	kept := filepath.Join(s.t.TempDir(), "kept")
	start := func() *sidecartest.Process {
		s.t.Helper()
		return sidecartest.Start(s.t, sidecartest.Build(s.t), example(s.t, "consumer.yaml"), "CONSUL="+s.consul.HTTP, "SNAPSHOTS="+kept)
	}
	second := start()
	s.awaits("a second caller's sidecar serves", func() bool { return s.call(second, "shop") != "" })
	second.Signal(s.t, syscall.SIGTERM)
	s.claim(second.Wait(s.t, patience) == 0, "it is ended")
	s.watched(func() {
		s.consul.Kill(s.t)
		s.say("Consul is killed, and nobody starts it again")
		second = start()
		s.awaits("the second sidecar is started again and calls shop, with what is kept on the disk", func() bool { return s.call(second, "shop") != "" })
		documents := second.Metric(s.t, "sidecar_config_documents", `state="restored"`)
		s.claim(documents == 1, "it has the document of the config centre too: groups/bj-away")
	})
}

// call makes one call by a sidecar, and returns the body of an answer that is well.
func (s *story) call(p *sidecartest.Process, service string) string {
	s.t.Helper()
	c := sidecartest.Dial(s.t, p.Outbound)
	defer func() { _ = c.Close() }()
	m := c.Ask(s.t, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", service)
	if m.Status() != 200 {
		return ""
	}
	return string(m.Body)
}

// callsOfCatalog returns how many requests the apps of catalog have had.
func (s *story) callsOfCatalog() (requests int) {
	for _, app := range s.catalogApps {
		requests += app.Requests()
	}
	return requests
}
