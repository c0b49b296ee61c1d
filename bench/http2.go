//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/sidecar-mesh/sidecar/bench/load"
)

// The load of the HTTP/2 rows.
const (
	http2Conns   = 8
	http2Streams = 16 // at once on each connection
	bulkOctets   = 1 << 30
)

// http2Row has HTTP/2 on both sides.
func (b *bench) http2Row(ctx context.Context) (*table, error) {
	t := b.http2Table("h2", "HTTP/2 to HTTP/2")
	t.Bases = []string{"haproxy", "envoy"}
	origin, err := b.startOrigin(ctx, freeAddress(), true)
	if err != nil {
		return nil, err
	}
	defer origin.stop()
	return t, b.cost(ctx, t, mode{HTTP2: true, OriginHTTP2: true, Many: true, Origin: origin.address}, saturateHTTP2(ctx))
}

// http2ToHTTP1Row has HTTP/2 on the side of the clients only.
func (b *bench) http2ToHTTP1Row(ctx context.Context) (*table, error) {
	t := b.http2Table("h2h1", "HTTP/2 to HTTP/1.1")
	t.Bases = []string{"nginx", "haproxy", "envoy"}
	return t, b.cost(ctx, t, mode{HTTP2: true}, saturateHTTP2(ctx))
}

func (b *bench) http2Table(name, title string) *table {
	return newTable(name, fmt.Sprintf("%s, %d connections with %d streams each, at saturation", title, http2Conns, http2Streams),
		column{colCPU, low}, column{colRate, high}, column{"core busy, %", neither})
}

// http2BulkRow sends bodies of 1 GiB, one after the other in one stream each, one for each second of the measurement and four at most.
func (b *bench) http2BulkRow(ctx context.Context) (*table, error) {
	t := newTable("h2bulk", "bodies of 1 GiB, HTTP/2 to HTTP/2, one stream at a time on one connection",
		column{"GB a CPU second", high}, column{"GB/s", high}, column{"core busy, %", neither})
	t.Bases = []string{"envoy", "nghttpx"}
	if err := b.bulkFile(); err != nil {
		return nil, err
	}
	origin, err := b.startOrigin(ctx, freeAddress(), true)
	if err != nil {
		return nil, err
	}
	defer origin.stop()
	return t, b.each(ctx, t, mode{HTTP2: true, OriginHTTP2: true, Origin: origin.address}, func(p *process, who *peer) error {
		n := min(4, max(1, math.Round(b.seconds.Seconds())))
		used, begin := p.cpu(), time.Now()
		s, err := h2load(ctx, time.Minute, p.address, "/bulk", "-c1", "-m1", "-n", fmt.Sprint(n))
		if err != nil {
			return err
		}
		used = p.cpu() - used
		wall := time.Since(begin)
		if s.octets != n*bulkOctets {
			return fmt.Errorf("%g octets of %g", s.octets, n*bulkOctets)
		}
		t.add(who.name, s.octets/1e9/used.Seconds(), s.octets/1e9/wall.Seconds(), 100*float64(used)/float64(wall))
		return nil
	})
}

// bulkFile makes the file behind /bulk, with a hole: it takes no space.
func (b *bench) bulkFile() error {
	file, err := os.Create(filepath.Join(b.dir, "bulk"))
	if err != nil {
		return err
	}
	return errors.Join(file.Truncate(bulkOctets), file.Close())
}

func (b *bench) http2ConnsRow(ctx context.Context) (*table, error) {
	t := newTable("h2conns", fmt.Sprintf("memory of %d idle HTTP/2 connections, each used once, fresh process", idleConns), column{"kB a connection", low})
	t.Bases = []string{"nginx", "haproxy", "envoy"}
	return t, b.each(ctx, t, mode{HTTP2: true}, func(p *process, who *peer) error {
		if err := pause(ctx, settle); err != nil {
			return err
		}
		before := p.rss()
		conns, err := load.IdleHTTP2(p.address, "bench", "/", idleConns)
		defer func() { closeAll(conns) }()
		if err != nil {
			return fmt.Errorf("after %d connections: %w", len(conns), err)
		}
		if err := pause(ctx, settle); err != nil {
			return err
		}
		t.add(who.name, (p.rss()-before)/idleConns/1e3)
		return nil
	})
}
