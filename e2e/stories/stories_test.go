// Package stories tells what operators live through - sick nodes, dead services, deployments, reloads under load - with
// the real binary, and checks what callers notice of it. It consists of tests alone; `make soak` tells the long versions.
package stories

import (
	"os"
	"testing"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

func TestMain(m *testing.M) { sidecartest.Main(m) }

// long says whether the long version of a story is to be told.
func long() bool { return os.Getenv("SIDECAR_SOAK") != "" }

// times returns n, or many for the long version.
func times(n, many int) int {
	if long() {
		return many
	}
	return n
}
