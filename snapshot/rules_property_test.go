package snapshot_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/balance"
	"github.com/sidecar-mesh/sidecar/internal/meshtest"
	"github.com/sidecar-mesh/sidecar/route"
)

var picks = flag.Int("picks", 20_000, "generated picks of a property test")

// TestNoPickOfWhatIsExcluded: whatever the balancer, the state of endpoints and what was tried, a pick falls on nothing that
// rules, a group switch or a grey release exclude.
func TestNoPickOfWhatIsExcluded(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	balancers := []string{"random", "round_robin", "weighted_round_robin", "least_active", "{consistent_hash: source_ip}", "peak_ewma", "adaptive"}
	for n := 0; n < *picks; {
		doc := "node: {service: shop, address: 10.1.1.1, zone: a}\nservices:\n  svc:\n    endpoints:\n"
		for i := range 3 + r.IntN(8) {
			doc += fmt.Sprintf("      - {address: \"10.0.0.%d:80\", group: %s, zone: %s, weight: %d, version: %s}\n",
				i, []string{"bj", "sh"}[r.IntN(2)], []string{"a", "b"}[r.IntN(2)], r.IntN(3), []string{"v1", "grey"}[r.IntN(2)])
		}
		doc += fmt.Sprintf("    policy: {lb: %s, locality: {prefer: zone}, warmup: %ds, panic: %s}\n", balancers[r.IntN(len(balancers))], r.IntN(2)*10,
			[]string{"serve_all", "fail_fast"}[r.IntN(2)])
		doc += "    rules: [\"=> host != 10.0.0.1\", \"method = get* => host != 10.0.0.2\"]\n"
		doc += "groups: [{from: bj, to: sh}]\ngrey: {g: {match: {header: {x-uid: \"1\"}}, labels: {version: grey}, else: fail}}\n"
		s := meshtest.Compile(t, doc)
		svc, _ := s.Outbound.Get("svc")
		for range 50 {
			n++
			f := &route.Facts{Fields: route.FieldList{{Name: "x-uid", Value: []string{"1", "2"}[r.IntN(2)]}}}
			g, _ := s.GreyOf(f)
			method := []string{"getUser", "saveUser", ""}[r.IntN(3)]
			target := svc.Rest.Targets[0].For(g).Under(method, time.Time{})
			for _, e := range target.Endpoints {
				e.Meter.State.Store([]uint32{0, balance.StateEjected, balance.StateDraining}[r.IntN(3)])
			}
			h := &balance.Hint{Now: time.Unix(1000, 0), Rand: r.Uint64(), Hash: r.Uint64(), HasHash: r.IntN(2) == 0}
			for i := range target.Endpoints {
				if r.IntN(4) == 0 {
					h.Tried = append(h.Tried, i)
				}
			}
			i, _ := target.Set.Pick(h)
			if i < 0 {
				continue
			}
			e := target.Endpoints[i]
			last := e.Address[strings.LastIndexByte(e.Address, '.')+1 : strings.LastIndexByte(e.Address, ':')]
			switch {
			case e.Spec.Group == "bj":
				t.Fatalf("%s is in a group that is switched away\n%s", e.Address, doc)
			case (e.Spec.Version == "grey") != (g != nil):
				t.Fatalf("%s is %s, the request is grey: %v\n%s", e.Address, e.Spec.Version, g != nil, doc)
			}
			for _, step := range target.Steps {
				if !step.Passed && slices.Contains(step.Removed, e) {
					t.Fatalf("%s was taken out by %s\n%s", e.Address, step.Rule.Text, doc)
				}
			}
			if others := len(target.Endpoints) > 1; others && (last == "1" || last == "2" && strings.HasPrefix(method, "get")) {
				t.Fatalf("%s is excluded by a rule for %q\n%s", e.Address, method, doc)
			}
			if !slices.Contains(svc.Endpoints, e) {
				t.Fatalf("%s is none of the service's", e.Address)
			}
		}
	}
}
