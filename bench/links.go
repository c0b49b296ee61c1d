//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/sidecar-mesh/sidecar/bench/load"
)

const (
	linksRate  = 400 // small calls a second: few, so that what they wait for is not one another
	linksConns = 8
	linksBound = 1.3 // the bar: beside large calls with a link of their own, by alone
)

// linksRow has calls of 1 KB alone, beside calls of 20 MB that go past the proxy, beside such that have a link of their own, and
// beside such that share theirs (S-184, S-185). Load and origin have one core: what large calls cost there shows where they go past.
// They take turns; the P99 is the lower quartile of the turns', as what other programs do to it only adds.
func (b *bench) linksRow(ctx context.Context) (*table, error) {
	t := newTable("links", fmt.Sprintf("calls of 1 KB, %d a second, open loop, alone and beside two of 20 MB to the same endpoint, HTTP/1.1 to HTTP/2; the bar: p99 with link classes ≤ %.1f × alone", linksRate, linksBound),
		column{"p50, µs", neither}, column{"large, MB/s", neither}, column{"p99, µs", neither}, column{"by alone", neither}, column{"by past the proxy", neither})
	sidecar, err := b.sidecar()
	if err != nil {
		return nil, err
	}
	media := filepath.Join(b.dir, "media")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", media, "./bench/media")
	build.Dir = b.root
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	address := freeAddress()
	origin, err := b.spawn(loadCore, "media-origin", "", nil, []string{media, "-listen", address})
	if err != nil {
		return nil, err
	}
	defer origin.stop()
	who := *sidecar
	who.template = "links.yaml"
	proxy, err := b.start(ctx, &who, mode{Origin: address})
	if err != nil {
		return nil, err
	}
	defer proxy.stop()
	p99, kinds := map[string][]time.Duration{}, linksKinds(proxy.address, address)
	for turn := range b.rounds * b.inTurns() {
		for i := range kinds {
			k := kinds[(turn+i)%len(kinds)]
			l, sent, err := b.smallBeside(ctx, proxy, media, k)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k.name, err)
			}
			p99[k.name] = append(p99[k.name], l.P99)
			t.add(k.name, micros(l.P50), sent/1e6)
		}
	}
	quarter := func(k linksKind) float64 {
		v := slices.Sorted(slices.Values(p99[k.name]))
		return micros(v[len(v)/4])
	}
	for _, k := range kinds {
		t.addFrom(k.name, 2, quarter(k), quarter(k)/quarter(kinds[0]), quarter(k)/quarter(kinds[1]))
	}
	return t, nil
}

// linksKind is what small calls are beside.
type linksKind struct {
	name, host string   // of the small ones
	large      []string // how large calls are sent; nil: there are none
}

func linksKinds(proxy, origin string) []linksKind {
	return []linksKind{
		{"alone", "bench", nil},
		{"beside, past the proxy", "bench", []string{"-to", origin, "-direct"}},
		{"beside, link classes", "bench", []string{"-to", proxy, "-host", "bench"}},
		{"beside, one link", "shared", []string{"-to", proxy, "-host", "shared"}},
	}
}

// smallBeside measures small calls, beside large ones where there are any, of which it returns the octets a second.
func (b *bench) smallBeside(ctx context.Context, proxy *process, media string, k linksKind) (l load.Latency, sent float64, err error) {
	if k.large != nil {
		sender, err := b.spawn(loadCore, "media", "", nil, append([]string{media}, k.large...))
		if err != nil {
			return l, 0, err
		}
		defer sender.stop()
		if err := pause(ctx, warmup/4); err != nil { // until it sends
			return l, 0, err
		}
		before := sender.wrote()
		defer func() { sent = (sender.wrote() - before) / (inTurn + warmup/4).Seconds() }()
	}
	l, err = load.Open(proxy.address, load.Post(k.host, "/small", 1024), linksRate, linksConns, warmup/4, inTurn)
	if err == nil && l.Errors > 0 {
		err = fmt.Errorf("%d of %d requests failed", l.Errors, l.Errors+l.Count)
	}
	return l, 0, errors.Join(err, ctx.Err())
}
