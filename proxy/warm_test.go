package proxy

import (
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// TestSwitchWarms: before a group switch is in force, there are connections to the endpoints that it brings in; one that does
// not answer holds it up for no longer than the bound.
func TestSwitchWarms(t *testing.T) {
	rec, err := telemetry.New(telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rec.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	p, err := New(Options{Recorder: rec, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	apply := func(groups string) {
		t.Helper()
		document := fmt.Sprintf("listen: {outbound: none}\ngroups: [%s]\nservices: {a: {group: bj, endpoints: [{address: 127.0.0.1:1, group: bj}, "+
			"{address: %q, group: sh}, {address: 192.0.2.1:80, group: sh}]}}\n", groups, l.Addr())
		cfg, err := config.LoadBytes("test", []byte(document), config.RankFile, nil)
		if err != nil {
			t.Fatal(err)
		}
		mesh := &config.Mesh{Config: cfg, Endpoints: map[string]*config.EndpointSet{"a": {List: cfg.Services["a"].Endpoints}}}
		if err := p.Apply(mesh); err != nil {
			t.Fatal(err)
		}
	}
	apply("")
	began := time.Now()
	apply("{from: bj, to: sh}")
	if took := time.Since(began); took > 10*warmTime {
		t.Errorf("the switch took %v", took)
	}
	a, _ := p.Snapshot().Outbound.Get("a")
	if len(a.Endpoints) != 2 {
		t.Fatalf("%d endpoints after the switch", len(a.Endpoints))
	}
	if _, idle, _ := poolOf(a.Endpoints[0]).Counts(); idle != warmEach {
		t.Errorf("%d idle connections to %s, want %d", idle, a.Endpoints[0].Address, warmEach)
	}
}
