package snapshot_test

import (
	"slices"
	"testing"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// TestEndpointsThatAreOurselves: what a registry lists is not called when it is our own outbound listener, and is noted.
func TestEndpointsThatAreOurselves(t *testing.T) {
	const document = `
listen: {outbound: "127.0.0.1:15001"}
registries: {names: {dns: {}}}
services:
  a: {from: names, policy: {mirror: {service: b, ratio: 1}}}
  b: {from: names}
`
	cfg, err := config.LoadBytes("test.yaml", []byte(document), config.RankFile, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	set := &config.EndpointSet{
		List:  []*config.Endpoint{{Address: "10.0.0.1:80", Weight: 1}, {Address: "127.0.0.1:15001", Weight: 1}, {Address: "10.0.0.2:80", Weight: 1}},
		Notes: []config.EndpointNote{{Address: "10.0.0.3:80", Why: "unhealthy"}},
	}
	mesh := &config.Mesh{Config: cfg, Endpoints: map[string]*config.EndpointSet{"a": set, "b": set}}
	snap, err := snapshot.Compile(mesh, nil, snapshot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append(slices.Clone(snap.Outbound.List), snap.Aside.List...) {
		var used []string
		for _, e := range s.Endpoints {
			used = append(used, e.Address)
		}
		if want := []string{"10.0.0.1:80", "10.0.0.2:80"}; !slices.Equal(used, want) {
			t.Errorf("%s uses %v, want %v", s.Name, used, want)
		}
		if !slices.ContainsFunc(s.Notes, func(n config.EndpointNote) bool {
			return n.Address == "127.0.0.1:15001" && n.Why == "own_listener" && !n.Used
		}) {
			t.Errorf("%s says nothing of it: %v", s.Name, s.Notes)
		}
	}
	if len(snap.Aside.List) != 1 || len(set.Notes) != 1 {
		t.Errorf("%d mirrors, notes of the source %v", len(snap.Aside.List), set.Notes)
	}
}
