// Package footprint tests what an idle sidecar costs beside each pod: the size of its binary and its memory.
package footprint

import (
	"os"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

const (
	maxBinary = 30 << 20 // bytes
	maxIdle   = 25 << 10 // kB of resident memory
	settle    = 2 * time.Second
)

// TestFootprint measures a fresh process that has served nothing: a grown heap would hide what it needs.
func TestFootprint(t *testing.T) {
	binary := sidecartest.Build(t)
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("binary: %.1f MB", float64(info.Size())/(1<<20))
	if info.Size() > maxBinary {
		t.Errorf("the binary has %d bytes, more than %d", info.Size(), maxBinary)
	}

	p := sidecartest.Start(t, binary, `
node: {service: shop}
services:
  catalog:
    endpoints: [127.0.0.1:1]
`)
	<-time.After(settle)
	idle := p.ResidentKB(t)
	t.Logf("idle: %.1f MB resident", float64(idle)/1024)
	if idle > maxIdle {
		t.Errorf("idle it takes %d kB, more than %d", idle, maxIdle)
	}
}
