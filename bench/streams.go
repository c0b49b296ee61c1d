//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sidecar-mesh/sidecar/bench/load"
)

// messageOctets is the size of a message of the streaming row, callOctets of one of the gRPC row.
const (
	messageOctets = 128
	callOctets    = 100
)

// streamRow has messages go up and come back on streams that stay open.
func (b *bench) streamRow(ctx context.Context) (*table, error) {
	return b.echoRow(ctx, "h2stream", fmt.Sprintf("messages of %d octets up and back on open streams, HTTP/2 to HTTP/2", messageOctets),
		"CPU a message, µs", load.Messages, messageOctets)
}

// grpcRow has unary calls.
func (b *bench) grpcRow(ctx context.Context) (*table, error) {
	return b.echoRow(ctx, "grpc", fmt.Sprintf("gRPC unary calls with messages of %d octets, HTTP/2 to HTTP/2", callOctets),
		"CPU a call, µs", load.GRPC, callOctets)
}

func (b *bench) echoRow(ctx context.Context, name, title, cost string, kind load.Kind, size int) (*table, error) {
	t := newTable(name, fmt.Sprintf("%s, %d connections with %d streams each, at saturation", title, http2Conns, http2Streams),
		column{cost, low}, column{"1/s", high})
	t.Bases = []string{"haproxy", "envoy"}
	origin, err := load.Echo(kind)
	if err != nil {
		return nil, err
	}
	defer func() { _ = origin.Close() }()
	m := mode{HTTP2: true, OriginHTTP2: true, Many: true, GRPC: kind == load.GRPC, Origin: origin.Addr().String()}
	echo := func(_ side, p *process, d time.Duration) (shot, error) {
		n, err := load.Streams(p.address, "bench", kind, http2Conns, http2Streams, size, d)
		return shot{requests: float64(n), perSecond: float64(n) / d.Seconds()}, err
	}
	return t, b.turns(ctx, t, b.sides(m), echo, func(s side, f spent) {
		t.add(s.name, f.perRequest(), f.perSecond)
	})
}

// besideRow has small calls alone, and beside a large body on the same connection.
func (b *bench) besideRow(ctx context.Context) (*table, error) {
	t := newTable("h2beside", "calls of 1 KB on one connection, alone and beside a stream with bodies of 1 GiB, HTTP/2 to HTTP/2",
		column{"p99 alone, µs", low}, column{"p99 beside, µs", low}, column{"beside by alone", low})
	t.Bases = []string{"haproxy", "envoy"}
	if err := b.bulkFile(); err != nil {
		return nil, err
	}
	origin, err := b.startOrigin(ctx, freeAddress(), true)
	if err != nil {
		return nil, err
	}
	defer origin.stop()
	return t, b.each(ctx, t, mode{HTTP2: true, OriginHTTP2: true, Origin: origin.address}, func(p *process, who *peer) error {
		if _, err := load.Beside(p.address, "bench", "/kb", "", warmup); err != nil {
			return err
		}
		alone, err := load.Beside(p.address, "bench", "/kb", "", b.seconds)
		if err != nil {
			return err
		}
		beside, err := load.Beside(p.address, "bench", "/kb", "/bulk", b.seconds)
		if err != nil {
			return err
		}
		t.add(who.name, micros(alone.P99), micros(beside.P99), micros(beside.P99)/micros(alone.P99))
		return nil
	})
}
