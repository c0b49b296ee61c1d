// Package reported re-creates, with the real binary, what users of other proxies have reported as bugs, one test each.
// The number in a test's name is that of the report in our list of them.
package reported

import (
	"testing"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

func TestMain(m *testing.M) { sidecartest.Main(m) }
