package main

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
	"github.com/sidecar-mesh/sidecar/discovery/dns"
	"github.com/sidecar-mesh/sidecar/discovery/file"
	"github.com/sidecar-mesh/sidecar/discovery/watch"
	"github.com/sidecar-mesh/sidecar/proxy"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

func runCommand() *cobra.Command {
	var paths []string
	c := &cobra.Command{
		Use:     "run -c FILE|DIR",
		Short:   "Run the proxy",
		Example: "  sidecar run -c sidecar.yaml",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return run(paths)
		},
	}
	c.Flags().StringArrayVarP(&paths, "config", "c", nil, "configuration file or folder (may be repeated)")
	_ = c.MarkFlagRequired("config")
	return c
}

func run(paths []string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg, err := config.Load(paths, os.LookupEnv)
	if err != nil {
		return err
	}
	rec, err := telemetry.New(telemetry.Options{Log: log, AccessLog: telemetry.AccessLog{To: cfg.Telemetry.AccessLog.To, Format: cfg.Telemetry.AccessLog.Format}, Version: version, Revision: revision})
	if err != nil {
		return err
	}
	p, err := proxy.New(proxy.Options{Recorder: rec, Log: log, Seed: rand.Uint64()})
	if err != nil {
		return err
	}
	merger := discovery.New(discovery.Options{Open: openRegistry, Apply: p.Apply})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	done := make(chan error, 2)
	go func() { done <- merger.Run(ctx, cfg) }()
	go func() { done <- p.Run(ctx) }()
	err = errors.Join(<-done, <-done)
	p.Close()
	return errors.Join(err, rec.Close(context.Background()))
}

func openRegistry(r *config.Registry) (discovery.Source, error) {
	if r.File != nil {
		return file.New(r, watchPath)
	}
	return dns.New(r)
}

// watchPath takes note of what a path holds now, and returns what reports its changes.
func watchPath(path string) func(context.Context, func()) error {
	return watch.New([]string{path}, 0).Run
}
