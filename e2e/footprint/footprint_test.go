// Package footprint tests what an idle sidecar costs beside each pod: the size of its binary and its memory.
package footprint

import (
	"fmt"
	"os"
	"strings"
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
	idle := residentKB(t, p.PID)
	t.Logf("idle: %.1f MB resident", float64(idle)/1024)
	if idle > maxIdle {
		t.Errorf("idle it takes %d kB, more than %d", idle, maxIdle)
	}
}

// residentKB reads a process's resident set.
func residentKB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("this system does not tell a process's memory: %v", err)
	}
	for line := range strings.Lines(string(status)) {
		var kB int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kB); n == 1 {
			return kB
		}
	}
	t.Fatal("no VmRSS in the status")
	return 0
}
