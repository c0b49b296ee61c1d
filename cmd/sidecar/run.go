package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidecar-mesh/sidecar/admin"
	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
	"github.com/sidecar-mesh/sidecar/discovery/consul"
	"github.com/sidecar-mesh/sidecar/discovery/disk"
	"github.com/sidecar-mesh/sidecar/discovery/dns"
	"github.com/sidecar-mesh/sidecar/discovery/file"
	"github.com/sidecar-mesh/sidecar/discovery/registrar"
	"github.com/sidecar-mesh/sidecar/discovery/watch"
	"github.com/sidecar-mesh/sidecar/proxy"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

func runCommand() *cobra.Command {
	var paths []string
	c := &cobra.Command{
		Use:   "run -c FILE|DIR",
		Short: "Run the proxy",
		Long: `Run the proxy until SIGTERM, SIGINT or POST /quit. It reads its files again when they change and on SIGHUP; a bad
configuration is refused as a whole and the last good one stays in force.`,
		Example: "  sidecar run -c sidecar.yaml\n  sidecar run -c /etc/sidecar/",
		Args:    takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := needsConfig(c, paths); err != nil {
				return err
			}
			return run(paths)
		},
	}
	configFlag(c, &paths)
	return c
}

// process is the running proxy: what the parts of run share.
type process struct {
	// Set by newProcess, then read-only.
	log    *slog.Logger
	rec    *telemetry.Recorder
	proxy  *proxy.Proxy
	disk   *disk.Store
	gate   *discovery.Gate
	merger *discovery.Merger
	own    *registrar.Registrar
	admin  *admin.Server
	life   *life
	leases *leases
	reload *reloader
}

// run is the life of the process.
func run(paths []string) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)

	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	changes := watch.New(paths, 0)
	cfg, err := load(paths)
	if err != nil {
		return err
	}
	p, err := newProcess(log, paths, cfg)
	if err != nil {
		return err
	}
	logLimits(log)
	logWarnings(log, cfg.Warnings)

	ctx, cancel := context.WithCancel(context.Background())
	if cfg, err = p.reload.begin(ctx); err == nil {
		err = p.own.SetConfig(cfg)
	}
	if err != nil {
		cancel()
		p.close()
		return errors.Join(err, p.rec.Close(closing()))
	}
	failed := make(chan error, 5)
	var parts sync.WaitGroup
	parts.Go(func() { failed <- p.merger.Run(ctx, cfg) })
	parts.Go(func() { failed <- p.own.Run(ctx) })
	parts.Go(func() { failed <- p.proxy.Run(ctx) })
	parts.Go(func() { failed <- p.disk.Run(ctx) })
	parts.Go(func() { failed <- changes.Run(ctx, func() { p.reload.ask("file") }) })
	parts.Go(func() { p.reload.run(ctx) })
	parts.Go(func() { p.giveBack(ctx) })
	log.Info("started", "version", version, "revision", sourceRevision(), "pid", os.Getpid())
	err = p.live(signals, failed)
	cancel()
	p.close()
	if ended(&parts) {
		p.disk.Flush()
		log.Info("ended")
	} else {
		log.Warn("ended without waiting any longer for what is under way, such as a file that cannot be read to its end")
	}
	return errors.Join(err, p.rec.Close(closing()))
}

// newProcess wires the parts together and opens what answers before there is a configuration in force.
func newProcess(log *slog.Logger, paths []string, cfg *config.Config) (*process, error) {
	p := &process{log: log}
	var err error
	p.rec, err = telemetry.New(telemetry.Options{Log: log, AccessLog: accessLog(cfg), Version: version, Revision: sourceRevision()})
	if err != nil {
		return nil, err
	}
	p.proxy, err = proxy.New(proxy.Options{
		Recorder: p.rec, Log: log, Seed: rand.Uint64(), Scripts: scripts(p.rec.ScriptFailed),
		Leaving: func(service, endpoint string) { p.merger.Left(service, endpoint) },
		Failing: func(service, endpoint string) { p.merger.Suspect(service, endpoint) },
		Left:    func(service, endpoint string) { p.merger.Left(service, endpoint) },
		App:     func(service string, well bool, why string) { p.own.App(service, well, why) },
	})
	if err != nil {
		return nil, errors.Join(err, p.rec.Close(closing()))
	}
	p.disk, p.gate = p.newDisk(cfg), p.newGate(cfg)
	p.merger = discovery.New(discovery.Options{
		Open: openRegistry, Apply: p.proxy.Apply, Observer: newObserver(p), Check: reach, Memory: p.disk, Gate: p.gate,
	})
	p.own = registrar.New(registrar.Options{
		Open: openRegistrations, Observer: (*registrations)(p), Policy: admin.Published, Publish: publishPolicy,
	})
	p.leases = newLeases(p)
	p.life = newLife(p, cfg)
	p.reload = newReloader(p, paths, cfg)
	p.admin = admin.New(admin.Options{Process: (*view)(p), Recorder: p.rec, Log: log})
	change, err := p.admin.Prepare(&cfg.Listen)
	if err != nil {
		return nil, errors.Join(err, p.rec.Close(closing()))
	}
	change.Commit()
	return p, nil
}

// giveBack returns to the system what the start needed and never will again. With 1 000 services that is 8 MB of 61; the
// runtime itself would come to it after minutes, as a sidecar that only watches allocates next to nothing.
func (p *process) giveBack(ctx context.Context) {
	select {
	case <-p.merger.Ready():
	case <-ctx.Done():
		return
	}
	select {
	case <-time.After(disk.MinGap): // what answered last is taken in and stored
		debug.FreeOSMemory()
	case <-ctx.Done():
	}
}

// live waits for what ends the process, and for the end of draining.
func (p *process) live(signals <-chan os.Signal, failed <-chan error) error {
	var drained <-chan struct{} // once the process is to end
	quitting := p.life.quitting
	for {
		select {
		case err := <-failed:
			return err // nothing ends by itself before its context
		case s := <-signals:
			switch {
			case s == syscall.SIGHUP:
				p.rec.Reopen()
				p.reload.ask("SIGHUP")
			case drained != nil:
				p.log.Warn("ends at once", "signal", s)
				return exitCode(128 + int(s.(syscall.Signal)))
			default:
				p.life.begin(s.String())
				drained = p.life.done
			}
		case <-quitting:
			drained, quitting = p.life.done, nil
		case <-drained:
			return nil
		}
	}
}

// close ends all at once.
func (p *process) close() {
	p.life.stop()
	p.leases.close(p.life.forGood())
	p.proxy.Close()
	p.admin.Close(closing())
}

// ended waits for the parts of the process, and reports whether they came to an end in time: a read from a file system that does
// not answer cannot be interrupted, and must not keep the process.
func ended(parts *sync.WaitGroup) bool {
	all := make(chan struct{})
	go func() {
		parts.Wait()
		close(all)
	}()
	select {
	case <-all:
		return true
	case <-closing().Done():
		return false
	}
}

// closing bounds what is done after the last exchange.
func closing() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	context.AfterFunc(ctx, cancel)
	return ctx
}

func accessLog(c *config.Config) telemetry.AccessLog {
	return telemetry.AccessLog{To: c.Telemetry.AccessLog.To, Format: c.Telemetry.AccessLog.Format}
}

func logWarnings(log *slog.Logger, list []config.Error) {
	for i := range list {
		log.Warn("configuration", "warning", list[i].Error())
	}
}

func openRegistry(r *config.Registry) (discovery.Source, error) {
	switch {
	case r.File != nil:
		return file.New(r, watchPath)
	case r.DNS != nil:
		return dns.New(r)
	case r.Consul != nil:
		return consul.New(r)
	}
	return nil, fmt.Errorf("registry %q is of no known kind", r.Name)
}

// reach asks an endpoint directly whether it lives.
func reach(ctx context.Context, c discovery.Check) error {
	return proxy.Reach(ctx, c.Address, c.Service, c.Probe)
}

// watchPath takes note of what a path holds now, and returns what reports its changes.
func watchPath(path string) func(context.Context, func()) error {
	return watch.New([]string{path}, 0).Run
}
