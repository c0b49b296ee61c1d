package consul

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// centre is what /config says of the config centre.
func centre(t *testing.T, p *sidecartest.Process) (v struct {
	Heard     bool
	Restored  *time.Time
	Documents []struct{ Name, State string }
},
) {
	t.Helper()
	resp, err := http.Get("http://" + p.Admin + "/config")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var all struct {
		Center json.RawMessage `json:"config_center"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(all.Center, &v); err != nil {
		t.Fatalf("%s: %v", all.Center, err)
	}
	return v
}

// stop ends a sidecar as its platform does.
func stop(t *testing.T, p *sidecartest.Process) {
	t.Helper()
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t, 10*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Consul and the sidecar are both restarted, and Consul is dead: services, policies and switches of the config centre are those of
// before, and say that they are old. When Consul answers, what it says replaces them whole (S-22, S-49).
func TestDocumentsOfTheDisk(t *testing.T) {
	agent := consultest.Dev(t)
	a, b := who(t, "a"), who(t, "b")
	kept := filepath.Join(t.TempDir(), "kept")
	config := `
registries: {main: {consul: {address: %q}}}
config_center: {consul: {registry: main}}
discovery: {snapshot_dir: %q}
services: {quiet: {endpoints: [%q]}}`
	agent.RegisterAt(t, "web", a.Address)
	put(t, agent, "policies/reads", "timeout: 4321ms")
	put(t, agent, "services/web", "from: main\npolicy: {use: reads}")
	put(t, agent, "switches/off", `{service: quiet, enabled: true, answer: {body: "instead"}}`)
	p := sidecartest.Run(t, config, agent.HTTP, kept, b.Address)
	seen(t, p, "web", soon, "a")
	seen(t, p, "quiet", soon, "instead")
	if c := centre(t, p); !c.Heard || c.Restored != nil || len(c.Documents) != 3 || c.Documents[0].State != "in_force" {
		t.Errorf("%+v", c)
	}
	agent.PutKV(t, "sidecar/policies/reads", "timeout: 5") // with a mistake: the version before it is what counts, and what is kept
	sidecartest.Eventually(t, soon, "it is told", func() bool { return p.Metric(t, "sidecar_config_documents", `state="kept"`) == 1 })
	stop(t, p)
	agent.Kill(t)

	p = sidecartest.Run(t, config, agent.HTTP, kept, b.Address)
	seen(t, p, "web", soon, "a")
	seen(t, p, "quiet", soon, "instead")
	if c := centre(t, p); c.Heard || c.Restored == nil || len(c.Documents) != 3 || c.Documents[0].Name != "policies/reads" || c.Documents[0].State != "restored" {
		t.Errorf("%+v", c)
	}
	if n := p.Metric(t, "sidecar_config_documents", `state="restored"`); n != 3 {
		t.Errorf("%v documents are restored", n)
	}
	p.Says(t, "its documents are those of the disk")
	agent.Restart(t)
	agent.DeleteKV(t, "sidecar/switches/off")
	seen(t, p, "quiet", 20*time.Second, "b")
	sidecartest.Eventually(t, soon, "nothing is old any more", func() bool {
		c := centre(t, p)
		return c.Heard && c.Restored == nil && p.Metric(t, "sidecar_config_documents", `state="restored"`) == 0
	})
	if n := p.Metric(t, "sidecar_config_documents", `state="kept"`); n != 1 {
		t.Errorf("the mistake is forgotten: %v documents are kept", n)
	}
	stop(t, p)
	agent.Kill(t)

	// What was damaged meanwhile is told, and not used.
	files, _ := filepath.Glob(filepath.Join(kept, "[^.]*.documents"))
	if len(files) != 1 {
		t.Fatalf("%v", files)
	}
	if err := os.WriteFile(files[0], []byte("sidecar-documents 1 0\n{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	p = sidecartest.Run(t, config, agent.HTTP, kept, b.Address)
	seen(t, p, "web", soon, "404")
	if n := p.Metric(t, "sidecar_discovery_snapshot_failures_total"); n != 1 {
		t.Errorf("%v failures", n)
	}
	p.Says(t, "damaged")
}
