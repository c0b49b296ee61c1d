//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sidecar-mesh/sidecar/bench/load"
)

// size is a shape of configuration.
type size struct {
	name                        string
	services, endpoints, routes int // endpoints and routes of each service
}

var sizes = []size{
	{"10 endpoints", 1, 10, 0},
	{"1 000 endpoints", 1, 1000, 0},
	{"10 000 endpoints", 1, 10_000, 0},
	{"1 000 services of 10", 1000, 10, 0},
	{"10 routes", 1, 10, 10},
	{"5 000 routes", 1, 10, 5000},
}

// target is the host and path of the last service's last route: the one a scan finds last.
func (s size) target() (host, path string) {
	return fmt.Sprintf("s%d", s.services-1), fmt.Sprintf("/r%d/x", max(0, s.routes-1))
}

// document writes the configuration. Revision shows in the answer of host "probe" and in one endpoint's weight.
func (s size) document(listen, originPort string, revision int) []byte {
	var d bytes.Buffer
	fmt.Fprintf(&d, "listen: {outbound: %q, inbound: %q, admin: %q, health: %q, metrics: %q}\n",
		listen, freeAddress(), freeAddress(), freeAddress(), freeAddress())
	fmt.Fprintf(&d, "telemetry: {access_log: {to: stdout, format: none}}\nservices:\n")
	fmt.Fprintf(&d, "  probe:\n    endpoints: [\"127.0.0.1:%s\"]\n", originPort)
	fmt.Fprintf(&d, "    routes: [{match: {path: {prefix: /}}, respond: {status: 200, body: \"%d\"}}]\n", revision)
	for i := range s.services {
		fmt.Fprintf(&d, "  s%d:\n    policy: {timeout: 20s}\n    endpoints:\n", i)
		weight := 1 + revision%2 // of the first endpoint; the others have 1
		for e := range s.endpoints {
			fmt.Fprintf(&d, "    - {address: \"127.1.%d.%d:%s\", weight: %d}\n", e/250, 1+e%250, originPort, weight)
			weight = 1
		}
		if s.routes > 0 {
			d.WriteString("    routes:\n")
		}
		for r := range s.routes {
			fmt.Fprintf(&d, "    - {name: r%d, match: {path: /r%d/*}}\n", r, r)
		}
	}
	return d.Bytes()
}

// growthRow shows what many endpoints, services and routes cost the sidecar: memory, CPU of a request, and the time and
// CPU until a changed file is in force, of which 100 ms are the quiet that it waits for.
func (b *bench) growthRow(ctx context.Context) (*table, error) {
	t := newTable("growth", "the sidecar with large configurations", column{"start, ms", low}, column{"RSS, MB", low},
		column{"RSS after load, MB", low}, column{colCPU, low}, column{"change in force after, ms", low}, column{"CPU of a change, ms", low})
	var sidecar *peer
	for _, p := range b.peers {
		if p.name == "sidecar" {
			sidecar = p
		}
	}
	if sidecar == nil {
		return nil, errors.New("needs the sidecar")
	}
	// Endpoints have addresses of their own in 127.1.0.0/16, so this origin listens on all.
	origin, err := b.startOrigin(ctx, "0.0.0.0:"+portOf(freeAddress()))
	if err != nil {
		return nil, err
	}
	defer origin.stop()
	for range b.rounds {
		for _, s := range sizes {
			if err := b.grow(ctx, t, sidecar, s, portOf(origin.address)); err != nil {
				t.note("%s: %v", s.name, err)
			}
		}
	}
	return t, ctx.Err()
}

// grow measures one size.
func (b *bench) grow(ctx context.Context, t *table, sidecar *peer, s size, originPort string) error {
	file, listen := filepath.Join(b.dir, "growth.yaml"), freeAddress()
	document := func(revision int) error {
		temporary := filepath.Join(b.dir, "growth.new")
		if err := os.WriteFile(temporary, s.document(listen, originPort, revision), 0o644); err != nil {
			return err
		}
		return os.Rename(temporary, file)
	}
	if err := document(1); err != nil {
		return err
	}
	begin := time.Now()
	p, err := b.spawn(proxyCore, "growth", "", sidecar.env, sidecar.argv(sidecar.binary, file, mode{}))
	if err != nil {
		return err
	}
	defer p.stop()
	p.address = listen
	if err := p.awaitHTTP(ctx, load.Request("probe", "/")); err != nil {
		return err
	}
	started := time.Since(begin)
	if err := pause(ctx, settle); err != nil {
		return err
	}
	fresh := p.rss()
	host, path := s.target()
	if s.endpoints > connections { // open the pools first
		if _, err := b.wrk(ctx, listen, host, path, connections, 2*time.Second); err != nil {
			return err
		}
	}
	cpu, _, _, err := b.saturate(ctx, p, host, path)
	if err != nil {
		return err
	}
	t.add(s.name, millis(started), fresh/1e6, p.rss()/1e6, cpu)

	used, begin := p.cpu(), time.Now()
	if err := document(2); err != nil {
		return err
	}
	err = p.await(ctx, func() error {
		_, body, err := load.Once(listen, load.Request("probe", "/"), time.Second)
		if err == nil && string(body) != "2" {
			err = fmt.Errorf("still revision %q", body)
		}
		return err
	})
	if err != nil {
		return err
	}
	changed := time.Since(begin)
	if err := pause(ctx, settle/4); err != nil { // for what follows a change
		return err
	}
	used = p.cpu() - used
	t.addFrom(s.name, 4, millis(changed), millis(used))
	return nil
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
