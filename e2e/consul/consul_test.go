// Package consul runs the real sidecar against real Consul agents. It consists of tests alone.
package consul

import (
	"os"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/consultest"
	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// soak says that the long versions are wanted.
var soak = os.Getenv("SIDECAR_SOAK") != ""

// soon bounds what is in force as soon as Consul says so; TestHowSoon says how soon.
const soon = 15 * time.Second

func TestMain(m *testing.M) { sidecartest.Main(m) }

// TestAgents shows that the helpers do what they say.
func TestAgents(t *testing.T) {
	c := consultest.Start(t, 3, 1)
	client := c.Clients[0]
	id := client.RegisterAt(t, "web", "127.0.0.1:8080")
	client.SetCheck(t, id, "critical")
	c.Leader(t).Kill(t)
	leader := c.Leader(t)
	leader.PutKV(t, "a/b", "c")
	if v, ok := client.KV(t, "a/b"); v != "c" || !ok {
		t.Errorf("a/b is %q, %v", v, ok)
	}
	client.DeleteKV(t, "a/")
	if v, ok := client.KV(t, "a/b"); ok {
		t.Errorf("a/b is %q", v)
	}
	if list := client.Instances(t, "web"); len(list) != 1 || list[0].Status != "critical" || list[0].Address != "127.0.0.1:8080" {
		t.Errorf("%+v", list)
	}
	client.Deregister(t, id)
	if list := client.Instances(t, "web"); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}
