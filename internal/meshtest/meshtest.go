// Package meshtest gives tests of the data path what a publisher would: a compiled snapshot, and what is bound to it.
package meshtest

import (
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/internal/loopback"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// Compile compiles a document in YAML, which has ORIGIN where the address of each origin stands, in turn. Endpoints are
// those that the document lists.
func Compile(t testing.TB, document string, origins ...string) *snapshot.Snapshot {
	t.Helper()
	for _, o := range origins {
		document = strings.Replace(document, "ORIGIN", o, 1)
	}
	cfg, err := config.LoadBytes("test.yaml", []byte(document), config.RankFile, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	mesh := &config.Mesh{Config: cfg, Endpoints: map[string]*config.EndpointSet{}}
	for name, svc := range cfg.Services {
		mesh.Endpoints[name] = &config.EndpointSet{List: svc.Endpoints}
	}
	snap, err := snapshot.Compile(mesh, nil, snapshot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// Bind gives routes their counters and endpoints their pools.
func Bind(snap *snapshot.Snapshot, rec *telemetry.Recorder, pool func(*snapshot.Service, *snapshot.Endpoint)) {
	for d, dir := range map[*snapshot.Directory]telemetry.Direction{
		snap.Outbound: telemetry.Outbound, snap.Inbound: telemetry.Inbound, snap.Aside: telemetry.Outbound,
	} {
		for _, s := range d.List {
			s.Rest.Meters = rec.Series(dir, s.Name, "")
			for _, rt := range s.Routes {
				rt.Meters = rec.Series(dir, s.Name, rt.Name)
			}
			for _, e := range s.Endpoints {
				pool(s, e)
			}
		}
	}
}

// Quiet is an observer of the pipeline to whom nothing matters.
type Quiet struct{}

// Ejected implements pipeline.Observer.
func (Quiet) Ejected(*snapshot.Service, *snapshot.Endpoint, resilience.EjectVerdict) {}

// Breaker implements pipeline.Observer.
func (Quiet) Breaker(*snapshot.Route, resilience.BreakerChange) {}

// EndpointBreaker implements pipeline.Observer.
func (Quiet) EndpointBreaker(*snapshot.Endpoint, resilience.BreakerChange) {}

// Switched implements pipeline.Observer.
func (Quiet) Switched(*snapshot.Switch, resilience.SwitchChange) {}

// Offline implements pipeline.Observer.
func (Quiet) Offline(*snapshot.Endpoint, time.Time) {}

// Online implements pipeline.Observer.
func (Quiet) Online(*snapshot.Endpoint, time.Time) {}

// FreeAddress is one of loopback that nobody listens on.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, err := loopback.Free(loopback.Own(), "0")
	if err != nil {
		t.Fatal(err)
	}
	return address
}
