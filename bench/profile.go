//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// watchProfile takes a CPU profile of a sidecar while it is measured, when one is wanted. The function that it returns waits
// for the profile.
func (b *bench) watchProfile(ctx context.Context, proc *process, who *peer) (wait func() error) {
	if b.profile == "" || who.name != "sidecar" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() { done <- b.takeProfile(ctx, proc) }()
	return func() error { return <-done }
}

func (b *bench) takeProfile(ctx context.Context, proc *process) error {
	select { // until it is warm
	case <-time.After(warmup):
	case <-ctx.Done():
		return ctx.Err()
	}
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", proc.admin, max(1, int(b.seconds.Seconds())))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("profile: %s", response.Status)
	}
	file, err := os.CreateTemp(b.dir, "*.pprof")
	if err != nil {
		return err
	}
	if _, err := file.ReadFrom(response.Body); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

// mergeProfiles makes one profile of those taken, in the form that "go build -pgo" wants.
func (b *bench) mergeProfiles(ctx context.Context) error {
	taken, err := filepath.Glob(filepath.Join(b.dir, "*.pprof"))
	if err != nil || len(taken) == 0 {
		return fmt.Errorf("profile: none was taken (%w)", err)
	}
	out := b.profile
	if !filepath.IsAbs(out) {
		out = filepath.Join(b.root, out)
	}
	merge := exec.CommandContext(ctx, "go", append([]string{"tool", "pprof", "-proto", "-output=" + out}, taken...)...)
	if said, err := merge.CombinedOutput(); err != nil {
		return fmt.Errorf("profile: %w: %s", err, said)
	}
	fmt.Fprintf(os.Stderr, "wrote %s of %d profiles\n", b.profile, len(taken))
	return nil
}
