//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sidecar-mesh/sidecar/bench/load"
)

const (
	idleSlice = 200 * time.Millisecond // so short that both halves of a pair see the same machine
	idleBound = 1.10                   // the bar: governance that has nothing to do, by a plain route
)

// idleRow has one route plain and with all of governance configured that has nothing to do, in two processes that take turns on
// the proxy's core. The ratio is the median of the pairs': it stands still where the machine does not.
func (b *bench) idleRow(ctx context.Context) (*table, error) {
	t := newTable("idle", fmt.Sprintf("governance that is configured and has nothing to do, HTTP/1.1, 16 connections, slices of %v in turn; the bar: ≤ %.2f × plain", idleSlice, idleBound),
		column{colCPU, low}, column{"by plain, median of pairs", neither}, column{"by plain, quartiles", neither})
	t.Bases = []string{"plain"}
	sidecar, err := b.sidecar()
	if err != nil {
		return nil, err
	}
	// Endpoints have addresses of their own, so this origin listens on all.
	origin, err := b.startOrigin(ctx, "0.0.0.0:"+portOf(freeAddress()), false)
	if err != nil {
		return nil, err
	}
	defer origin.stop()
	var origins []string
	for i := range 4 {
		origins = append(origins, fmt.Sprintf("127.0.0.%d:%s", i+1, portOf(origin.address)))
	}
	for range b.rounds {
		if err := b.idlePairs(ctx, t, sidecar, origins); err != nil {
			return t, err
		}
	}
	return t, nil
}

// idlePairs measures one round with fresh processes.
func (b *bench) idlePairs(ctx context.Context, t *table, sidecar *peer, origins []string) error {
	who := *sidecar
	who.template = "idle.yaml"
	var sides [2]struct {
		process *process
		loop    *load.Loop
		used    []float64 // µs of a request, by slice
	}
	for i := range sides {
		s := &sides[i]
		var err error
		if s.process, err = b.start(ctx, &who, mode{Origins: origins, Governed: i == 1}); err != nil {
			return err
		}
		defer s.process.stop()
		if s.loop, err = load.NewLoop(s.process.address, plain, 16); err != nil {
			return err
		}
		defer s.loop.Close()
		if _, err := s.loop.Run(warmup); err != nil {
			return err
		}
	}
	var ratios []float64
	for pair := range int(b.seconds / idleSlice) {
		for turn := range sides {
			s := &sides[(pair+turn)%2]
			if ctx.Err() != nil {
				return ctx.Err()
			}
			before := s.process.cpu()
			n, err := s.loop.Run(idleSlice)
			if err != nil {
				return err
			}
			s.used = append(s.used, micros(s.process.cpu()-before)/float64(n))
		}
		ratios = append(ratios, sides[1].used[pair]/sides[0].used[pair])
	}
	slices.Sort(ratios)
	at := func(q float64) float64 { return ratios[int(q*float64(len(ratios)-1))] }
	for i, name := range []string{"plain", "governed"} {
		t.add(name, median(sides[i].used))
	}
	t.addFrom("governed", 1, at(0.5), at(0.75)-at(0.25))
	return nil
}
