//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/sidecar-mesh/sidecar/bench/load"
)

// slice is how often the soak looks, and changes the configuration.
const slice = 10 * time.Second

// sample is what one look found.
type sample struct{ rss, descriptors float64 }

// soakRow loads the sidecar for the whole time, changing its configuration again and again, and fails when requests fail or
// when memory or descriptors grow from the second quarter to the last.
func (b *bench) soakRow(ctx context.Context) (*table, error) {
	t := newTable("soak", fmt.Sprintf("the sidecar under load and reloads for %v", b.seconds),
		column{colRate, high}, column{"RSS, MB", low}, column{"descriptors", low})
	found := slices.IndexFunc(b.peers, func(p *peer) bool { return p.name == "sidecar" })
	if found < 0 {
		return nil, errors.New("needs the sidecar")
	}
	sidecar, s := b.peers[found], size{name: "soak", services: 20, endpoints: 20, routes: 20}
	origin, err := b.startOrigin(ctx, "0.0.0.0:"+portOf(freeAddress()), false)
	if err != nil {
		return nil, err
	}
	defer origin.stop()
	file, at := filepath.Join(b.dir, "soak.yaml"), newPlaces()
	document := func(revision int) error {
		return replace(file, s.document(at, portOf(origin.address), revision))
	}
	if err := document(0); err != nil {
		return nil, err
	}
	p, err := b.spawn(proxyCore, "soak", "", sidecar.env, sidecar.argv(sidecar.binary, file, mode{}))
	if err != nil {
		return nil, err
	}
	defer p.stop()
	p.address = at.outbound
	if err := p.awaitHTTP(ctx, load.Request("probe", "/")); err != nil {
		return nil, err
	}

	var samples []sample
	host, path := s.target()
	for end := time.Now().Add(b.seconds); time.Now().Before(end); {
		if err := document(len(samples) + 1); err != nil {
			return t, err
		}
		shot, err := b.wrk(ctx, at.outbound, host, path, connections, min(slice, max(time.Second, b.seconds/8)))
		if err == nil && shot.failed > 0 {
			err = fmt.Errorf("%g of %g requests failed", shot.failed, shot.requests)
		}
		if err != nil {
			return t, err
		}
		samples = append(samples, sample{p.rss() / 1e6, float64(p.descriptors())})
		t.add("sidecar", shot.perSecond, samples[len(samples)-1].rss, samples[len(samples)-1].descriptors)
	}
	return t, grown(samples)
}

// grown compares the last quarter with the second one.
func grown(samples []sample) error {
	quarter := len(samples) / 4
	if quarter == 0 {
		return nil
	}
	median := func(from int, value func(sample) float64) float64 {
		var v []float64
		for _, s := range samples[from : from+quarter] {
			v = append(v, value(s))
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	rss := func(s sample) float64 { return s.rss }
	descriptors := func(s sample) float64 { return s.descriptors }
	last := len(samples) - quarter
	var err error
	if before, after := median(quarter, rss), median(last, rss); after > 1.2*before+2 {
		err = errors.Join(err, fmt.Errorf("memory grew from %.1f to %.1f MB", before, after))
	}
	if before, after := median(quarter, descriptors), median(last, descriptors); after > 1.2*before+50 {
		err = errors.Join(err, fmt.Errorf("descriptors grew from %.0f to %.0f", before, after))
	}
	return err
}
