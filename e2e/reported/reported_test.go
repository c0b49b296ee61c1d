// Package reported re-creates, with the real binary, what users of other proxies have reported as bugs, one test each.
// It consists of tests alone; what stands in their names is the number of the report in our list.
package reported

import (
	"testing"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

func TestMain(m *testing.M) { sidecartest.Main(m) }
