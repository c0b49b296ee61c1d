package snapshot_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
)

// chosen compiles a service of n endpoints, without the one at gone, for a sidecar, and returns the addresses that it uses.
func chosen(t *testing.T, who string, subset, n, gone int) []string {
	t.Helper()
	var list []string
	for i := range n {
		if i != gone {
			list = append(list, fmt.Sprintf("10.0.%d.%d:80", i/250, i%250))
		}
	}
	list = append(list, "{address: 10.9.9.9:80, weight: 0}")
	s := meshtest.Compile(t, fmt.Sprintf("node: {id: %s}\nservices: {a: {subset: %d, endpoints: [%s]}}\n", who, subset, strings.Join(list, ", ")))
	a, _ := s.Outbound.Get("a")
	var used []string
	for _, e := range a.Endpoints {
		if e.Spec.Weight > 0 {
			used = append(used, e.Address)
		}
	}
	if len(a.Endpoints) != len(used)+1 {
		t.Error("the endpoint without weight is gone")
	}
	return used
}

// TestSubset: each sidecar uses so many endpoints, always the same, which differ from sidecar to sidecar so that every
// endpoint has its share; one that goes changes the subsets that had it by one, and no other.
func TestSubset(t *testing.T) {
	const sidecars, endpoints, size = 60, 200, 20 // each in 6 subsets on average
	in := map[string]int{}
	moved := 0
	for i := range sidecars {
		who := fmt.Sprintf("shop-%d", i)
		used := chosen(t, who, size, endpoints, -1)
		if len(used) != size || !slices.Equal(used, chosen(t, who, size, endpoints, -1)) {
			t.Fatalf("%s uses %v", who, used)
		}
		for _, a := range used {
			in[a]++
		}
		if i%10 > 0 {
			continue
		}
		const gone = 7
		left := chosen(t, who, size, endpoints, gone)
		had := slices.Contains(used, "10.0.0.7:80")
		kept := 0
		for _, a := range left {
			if slices.Contains(used, a) {
				kept++
			}
		}
		if want := map[bool]int{true: size - 1, false: size}[had]; kept != want || len(left) != size {
			t.Errorf("%s keeps %d of its %d endpoints", who, kept, size)
		}
		if had {
			moved++
		}
	}
	for a, n := range in {
		if n > 20 {
			t.Errorf("%s is in %d subsets", a, n)
		}
	}
	if len(in) < endpoints*98/100 {
		t.Errorf("%d endpoints of %d are used", len(in), endpoints)
	}
	t.Logf("%d of the %d looked at had the one that went", moved, sidecars/10)
	for _, subset := range []int{0, endpoints, 10 * endpoints} {
		if used := chosen(t, "shop-1", subset, endpoints, -1); len(used) != endpoints {
			t.Errorf("subset %d: %d are used", subset, len(used))
		}
	}
}
