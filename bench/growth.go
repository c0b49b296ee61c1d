//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
		column{"RSS after load, MB", low}, column{colCPU, neither}, column{"by " + small + " in turn", neither}, column{"change in force after, ms", low}, column{"CPU of a change, ms", low},
		column{"CPU of one endpoint's change, ms", low})
	t.Bases = []string{small}
	sidecar, err := b.sidecar()
	if err != nil {
		return nil, err
	}
	// Endpoints have addresses of their own in 127.1.0.0/16, so this origin listens on all.
	origin, err := b.startOrigin(ctx, "0.0.0.0:"+portOf(freeAddress()), false)
	if err != nil {
		return nil, err
	}
	defer origin.stop()
	for range b.rounds {
		if err := b.growRound(ctx, t, sidecar, portOf(origin.address)); err != nil {
			return t, err
		}
	}
	return t, ctx.Err()
}

// growRound measures each size once, beside a sidecar with the small one.
func (b *bench) growRound(ctx context.Context, t *table, sidecar *peer, originPort string) error {
	i := slices.IndexFunc(sizes, func(s size) bool { return s.name == small })
	ref, err := b.prepare(sizes[i], "growth-small", originPort)
	if err != nil {
		return err
	}
	if err := ref.start(ctx, b, sidecar); err != nil {
		return err
	}
	defer ref.stop()
	for _, s := range sizes {
		g, err := b.prepare(s, "growth", originPort)
		if err == nil {
			err = b.grow(ctx, t, sidecar, g, ref)
		}
		if err != nil {
			t.note("%s: %v", s.name, err)
		}
	}
	return nil
}

// sized is a sidecar of one size.
type sized struct {
	*process // nil until it is started
	size
	places
	file, originPort string
}

// prepare writes the configuration of a size.
func (b *bench) prepare(s size, name, originPort string) (*sized, error) {
	g := &sized{size: s, places: newPlaces(), file: filepath.Join(b.dir, name+".yaml"), originPort: originPort}
	if s.combined {
		g.places.files = filepath.Join(b.dir, "endpoints")
		if err := s.files(g.places.files, originPort); err != nil {
			return nil, err
		}
	}
	return g, g.write(1)
}

// write puts a revision of the configuration into its file.
func (g *sized) write(revision int) error {
	return replace(g.file, g.document(g.places, g.originPort, revision))
}

// start runs it until the last route of the last service answers.
func (g *sized) start(ctx context.Context, b *bench, sidecar *peer) (err error) {
	name := strings.TrimSuffix(filepath.Base(g.file), ".yaml")
	if g.process, err = b.spawn(proxyCore, name, "", sidecar.env, sidecar.argv(sidecar.binary, g.file, mode{})); err != nil {
		return err
	}
	g.address = g.outbound
	host, path := g.target()
	if err := g.awaitHTTP(ctx, load.Request(host, path)); err != nil {
		g.stop()
		return err
	}
	return nil
}

// grow measures one size.
func (b *bench) grow(ctx context.Context, t *table, sidecar *peer, g, ref *sized) error {
	if g.combined {
		defer func() { _ = os.RemoveAll(g.places.files) }()
	}
	begin := time.Now()
	if err := g.start(ctx, b, sidecar); err != nil {
		return err
	}
	defer g.stop()
	p, s, at := g.process, g.size, g.places
	host, path := g.target()
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
	cpu, times, err := b.besideSmall(ctx, g, ref)
	if err != nil {
		return err
	}
	t.add(s.name, millis(started), fresh/1e6, p.rss()/1e6, cpu, times)

	used, begin := p.cpu(), time.Now()
	if err := g.write(2); err != nil {
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
	t.addFrom(s.name, 5, millis(changed), millis(used))
	if !s.combined {
		return nil
	}
	one, err := s.replaceEndpoints(ctx, p, at, g.originPort)
	if err == nil {
		t.addFrom(s.name, 7, millis(one))
	}
	return err
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// besideSmall loads two sidecars in turn, for a second each. It returns the CPU of a request of the first in µs, and the median of
// what that was to the other's.
func (b *bench) besideSmall(ctx context.Context, g, ref *sized) (cpu, times float64, err error) {
	each := func(g *sized, d time.Duration) (float64, error) {
		host, path := g.target()
		used := g.cpu()
		s, err := b.wrk(ctx, g.outbound, host, path, connections, d)
		return micros(g.cpu()-used) / s.requests, err
	}
	var all, ratios []float64
	for turn := range 1 + b.inTurns() {
		large, err := each(g, inTurn)
		if err != nil {
			return 0, 0, err
		}
		other, err := each(ref, inTurn)
		if err != nil {
			return 0, 0, err
		}
		if turn > 0 { // the first one warms
			all, ratios = append(all, large), append(ratios, large/other)
		}
	}
	return median(all), median(ratios), nil
}
