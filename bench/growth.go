//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/bench/load"
)

// size is a shape of configuration.
type size struct {
	name                        string
	services, endpoints, routes int  // endpoints and routes of each service
	combined                    bool // only the last service has routes, and endpoints come from a folder of files
}

var sizes = []size{
	{"10 endpoints", 1, 10, 0, false},
	{"1 000 endpoints", 1, 1000, 0, false},
	{"10 000 endpoints", 1, 10_000, 0, false},
	{"1 000 services of 10", 1000, 10, 0, false},
	{small, 1, 10, 10, false},
	{"5 000 routes", 1, 10, 5000, false},
	{"1 000 services of 10 + 5 000 routes", 1000, 10, 5000, true},
}

// small is the size that the others are compared with.
const small = "10 routes"

// target is the host and path of the last service's last route: the one a scan finds last.
func (s size) target() (host, path string) {
	return fmt.Sprintf("s%d", s.services-1), fmt.Sprintf("/r%d/x", max(0, s.routes-1))
}

// places are where a sidecar listens, and the folder its endpoints come from, if any.
type places struct{ outbound, inbound, admin, health, metrics, files string }

func newPlaces() places {
	return places{freeAddress(), freeAddress(), freeAddress(), freeAddress(), freeAddress(), ""}
}

// document writes the configuration. Revision shows in the answer of host "probe" and in one endpoint's weight.
func (s size) document(at places, originPort string, revision int) []byte {
	var d bytes.Buffer
	fmt.Fprintf(&d, "listen: {outbound: %q, inbound: %q, admin: %q, health: %q, metrics: %q}\n",
		at.outbound, at.inbound, at.admin, at.health, at.metrics)
	if s.combined {
		fmt.Fprintf(&d, "registries: {files: {file: {path: %q}}}\n", at.files)
	}
	fmt.Fprintf(&d, "telemetry: {access_log: {to: stdout, format: none}}\nservices:\n")
	fmt.Fprintf(&d, "  probe:\n    endpoints: [\"127.0.0.1:%s\"]\n", originPort)
	fmt.Fprintf(&d, "    routes: [{match: {path: {prefix: /}}, respond: {status: 200, body: \"%d\"}}]\n", revision)
	for i := range s.services {
		fmt.Fprintf(&d, "  s%d:\n    policy: {timeout: 20s}\n", i)
		if s.combined {
			d.WriteString("    from: files\n")
		} else {
			d.WriteString("    endpoints:\n" + s.list(originPort, 1+revision%2))
		}
		if s.routes == 0 || s.combined && i < s.services-1 {
			continue
		}
		d.WriteString("    routes:\n")
		for r := range s.routes {
			fmt.Fprintf(&d, "    - {name: r%d, match: {path: /r%d/*}}\n", r, r)
		}
	}
	return d.Bytes()
}

// list is the endpoints of a service; the first one has a weight, the others have 1.
func (s size) list(originPort string, weight int) string {
	var d strings.Builder
	for e := range s.endpoints {
		fmt.Fprintf(&d, "    - {address: \"127.1.%d.%d:%s\", weight: %d}\n", e/250, 1+e%250, originPort, weight)
		weight = 1
	}
	return d.String()
}

// growthRow shows what many endpoints, services and routes cost the sidecar: memory, CPU of a request, and the time and
// CPU until a changed configuration is in force, of which 100 ms are the quiet that it waits for. Where endpoints come from
// files, one of a service is replaced again and again, too.
func (b *bench) growthRow(ctx context.Context) (*table, error) {
	t := newTable("growth", "the sidecar with large configurations", column{"start, ms", low}, column{"RSS, MB", low},
		column{"RSS after load, MB", low}, column{colCPU, low}, column{"change in force after, ms", low}, column{"CPU of a change, ms", low},
		column{"CPU of one endpoint's change, ms", low})
	t.Bases = []string{small}
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
	origin, err := b.startOrigin(ctx, "0.0.0.0:"+portOf(freeAddress()), false)
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
	file, at := filepath.Join(b.dir, "growth.yaml"), newPlaces()
	if s.combined {
		at.files = filepath.Join(b.dir, "endpoints")
		if err := s.files(at.files, originPort); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(at.files) }()
	}
	document := func(revision int) error {
		return replace(file, s.document(at, originPort, revision))
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
	p.address = at.outbound
	host, path := s.target()
	if err := p.awaitHTTP(ctx, load.Request(host, path)); err != nil {
		return err
	}
	started := time.Since(begin)
	if err := pause(ctx, settle); err != nil {
		return err
	}
	fresh := p.rss()
	if s.endpoints > connections { // open the pools first
		if _, err := b.wrk(ctx, at.outbound, host, path, connections, 2*time.Second); err != nil {
			return err
		}
	}
	cpu, err := b.saturated(ctx, p, host, path)
	if err != nil {
		return err
	}
	t.add(s.name, millis(started), fresh/1e6, p.rss()/1e6, cpu)

	used, begin := p.cpu(), time.Now()
	if err := document(2); err != nil {
		return err
	}
	err = p.await(ctx, func() error {
		_, body, err := load.Once(at.outbound, load.Request("probe", "/"), time.Second)
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
	if !s.combined {
		return nil
	}
	one, err := s.replaceEndpoints(ctx, p, at, originPort)
	if err == nil {
		t.addFrom(s.name, 6, millis(one))
	}
	return err
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// saturated loads a proxy as much as it takes, and returns the CPU of a request in µs.
func (b *bench) saturated(ctx context.Context, p *process, host, path string) (float64, error) {
	if _, err := b.wrk(ctx, p.address, host, path, connections, warmup); err != nil {
		return 0, err
	}
	used := p.ran()
	s, err := b.wrk(ctx, p.address, host, path, connections, b.seconds)
	return micros(p.ran()-used) / s.requests, err
}
