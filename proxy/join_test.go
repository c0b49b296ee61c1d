package proxy

import (
	"log/slog"
	"testing"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// TestSlowStartOfThoseThatJoin: an endpoint that joins others begins with a small share; those that are there at the start
// do not, and neither does one that only changes its labels.
func TestSlowStartOfThoseThatJoin(t *testing.T) {
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
	apply := func(list string) map[string]*snapshot.Endpoint {
		t.Helper()
		cfg, err := config.LoadBytes("test", []byte("listen: {outbound: none}\nservices: {a: {endpoints: ["+list+"]}}\n"),
			config.RankFile, func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		mesh := &config.Mesh{Config: cfg, Endpoints: map[string]*config.EndpointSet{"a": {List: cfg.Services["a"].Endpoints}}}
		if err := p.Apply(mesh); err != nil {
			t.Fatal(err)
		}
		a, _ := p.Snapshot().Outbound.Get("a")
		all := map[string]*snapshot.Endpoint{}
		for _, e := range a.Endpoints {
			all[e.Address] = e
		}
		return all
	}
	first := apply("10.0.0.1:80")
	second := apply("{address: 10.0.0.1:80, labels: {x: y}}, 10.0.0.2:80")
	if first["10.0.0.1:80"].Meter.Since.Load() != 0 || second["10.0.0.1:80"].Meter.Since.Load() != 0 {
		t.Error("an endpoint that was there from the start warms up")
	}
	if second["10.0.0.2:80"].Meter.Since.Load() == 0 {
		t.Error("an endpoint that joined does not warm up")
	}
}
