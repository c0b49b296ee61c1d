package proxy

import (
	"context"
	"log/slog"
	"testing"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// applied is a proxy into which documents are put one after the other.
type applied struct {
	t *testing.T
	*Proxy
	rec *telemetry.Recorder
}

func newApplied(t *testing.T) *applied {
	t.Helper()
	rec, err := telemetry.New(telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Options{Recorder: rec, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		if err := rec.Close(context.WithoutCancel(t.Context())); err != nil { // a cleanup comes after the context's end
			t.Error(err)
		}
	})
	return &applied{t, p, rec}
}

func (a *applied) apply(document string) {
	a.t.Helper()
	cfg, err := config.LoadBytes("test", []byte(document), config.RankFile, func(string) (string, bool) { return "", false })
	if err != nil {
		a.t.Fatal(err)
	}
	a.applyConfig(cfg)
}

func (a *applied) applyConfig(cfg *config.Config) {
	a.t.Helper()
	mesh := &config.Mesh{Config: cfg, Endpoints: map[string]*config.EndpointSet{}}
	for name, s := range cfg.Services {
		mesh.Endpoints[name] = &config.EndpointSet{List: s.Endpoints}
	}
	if err := a.Apply(mesh); err != nil {
		a.t.Fatal(err)
	}
}
