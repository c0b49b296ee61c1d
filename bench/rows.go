//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sidecar-mesh/sidecar/bench/load"
)

const (
	warmup      = time.Second
	settle      = 2 * time.Second // until a process has done what it does by itself
	connections = 64
	idleConns   = 4000
	share       = 0.6 // of its own saturation that a proxy is asked to carry for latency
)

// The columns that more than one row has.
const (
	colCPU  = "CPU a request, µs"
	colRate = "requests/s"
)

// each starts every peer in turn, round by round, each round beginning with another, and has it measured. A peer that
// fails gets a note, not a number.
func (b *bench) each(ctx context.Context, t *table, m mode, measure func(p *process, who *peer) error) error {
	peers := b.taking(m)
	for round := range b.rounds {
		t.turn++
		for i := range peers {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p := peers[(i+round)%len(peers)]
			proc, err := b.start(ctx, p, m)
			if err == nil {
				wait := b.watchProfile(ctx, proc, p)
				err = errors.Join(measure(proc, p), wait())
				proc.stop()
			}
			if err != nil {
				t.note("%s, round %d: %v", p.name, round+1, err)
			}
		}
	}
	return nil
}

func (b *bench) cpuRow(ctx context.Context) (*table, error) {
	t := newTable("cpu", "HTTP/1.1 keep-alive, 64 connections, at saturation (of the load core where the proxy's is not busy)", column{colCPU, low}, column{colRate, high}, column{"core busy, %", neither})
	t.Bases = []string{"nginx", "envoy"}
	b.cpu = t
	return t, b.cost(ctx, t, mode{}, b.saturate(ctx))
}

func (b *bench) latencyRow(ctx context.Context) (*table, error) {
	t := newTable("latency", "latency at 60 % of own saturation, and at one rate for all that carry it, open loop",
		column{"rate, 1/s", neither}, column{"p50, µs", low}, column{"p99, µs", low},
		column{"p50 at the same rate, µs", low}, column{"p99 at the same rate, µs", low})
	saturation := map[string]float64{}
	for _, p := range b.taking(mode{}) {
		if rate, ok := b.cpu.median(p.name, colRate); ok {
			saturation[p.name] = rate
			continue
		}
		proc, err := b.start(ctx, p, mode{})
		if err == nil {
			var s shot
			s, err = b.wrk(ctx, proc.address, "bench", "/", connections, 2*time.Second)
			saturation[p.name] = s.perSecond
			proc.stop()
		}
		if err != nil {
			t.note("%s: %v", p.name, err)
		}
	}
	limit, err := b.loadLimit()
	if err != nil {
		return t, err
	}
	t.note("the load core carries at most %.0f/s; nobody is asked for more", limit)
	// The slower of the sidecar and nginx sets the common rate.
	same := limit
	for _, name := range []string{"sidecar", "nginx"} {
		if s := share * saturation[name]; s > 0 {
			same = min(same, s)
		}
	}
	t.note("the same rate is %.0f/s; peers that it would load above 80 %% are left out", same)
	return t, b.each(ctx, t, mode{}, func(p *process, who *peer) error {
		open := func(rate float64) (p50, p99 float64, err error) {
			l, err := load.Open(p.address, plain, rate, connections, warmup, b.seconds)
			if err == nil && l.Errors > 0 {
				err = fmt.Errorf("%d of %d requests failed", l.Errors, l.Errors+l.Count)
			}
			return micros(l.P50), micros(l.P99), err
		}
		if saturation[who.name] == 0 {
			return nil
		}
		rate := min(limit, share*saturation[who.name])
		p50, p99, err := open(rate)
		if err != nil {
			return err
		}
		t.add(who.name, rate, p50, p99)
		if same > 0.8*saturation[who.name] {
			return nil
		}
		if p50, p99, err = open(same); err == nil {
			t.addFrom(who.name, 3, p50, p99)
		}
		return err
	})
}

// loadLimit is the rate that generator and origin can serve with 60 % of their core; above it they would be measured.
func (b *bench) loadLimit() (float64, error) {
	const rate, duration = 5000, time.Second
	before, err := b.loadCPU()
	if err != nil {
		return 0, err
	}
	l, err := load.Open(b.origin.address, plain, rate, connections, 0, duration)
	if err != nil {
		return 0, err
	}
	after, err := b.loadCPU()
	if err != nil || l.Count == 0 || after == before {
		return 0, fmt.Errorf("cannot measure the load core: %+v, %w", l, err)
	}
	return share * float64(l.Count) / (after - before).Seconds(), nil
}

// loadCPU is the CPU time of this process and the origin.
func (b *bench) loadCPU() (time.Duration, error) {
	var used syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano()+used.Stime.Nano()) + b.origin.cpu(), err
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func (b *bench) oneRow(ctx context.Context) (*table, error) {
	t := newTable("one", "one connection, one request after the other", column{"p50, µs", neither}, column{"added p50, µs", low}, column{"p99, µs", low})
	return t, b.each(ctx, t, mode{}, func(p *process, who *peer) error {
		if _, err := load.One(p.address, plain, warmup/2); err != nil {
			return err
		}
		direct, err := load.One(b.origin.address, plain, b.seconds/5)
		if err != nil {
			return err
		}
		through, err := load.One(p.address, plain, b.seconds)
		if err != nil {
			return err
		}
		t.add("direct", micros(direct.P50), 0, micros(direct.P99))
		t.add(who.name, micros(through.P50), micros(through.P50-direct.P50), micros(through.P99))
		return nil
	})
}

func (b *bench) rssRow(ctx context.Context) (*table, error) {
	t := newTable("rss", "resident memory of a fresh, idle proxy, all its processes", column{"RSS, MB", low})
	return t, b.each(ctx, t, mode{}, func(p *process, who *peer) error {
		if err := pause(ctx, settle); err != nil {
			return err
		}
		t.add(who.name, p.rss()/1e6)
		return nil
	})
}

func (b *bench) connsRow(ctx context.Context) (*table, error) {
	t := newTable("conns", fmt.Sprintf("memory of %d idle keep-alive connections, each used once, fresh process", idleConns), column{"kB a connection", low})
	return t, b.each(ctx, t, mode{}, func(p *process, who *peer) error {
		if err := pause(ctx, settle); err != nil {
			return err
		}
		before := p.rss()
		conns, err := load.Idle(p.address, plain, idleConns)
		defer func() { closeAll(conns) }()
		if err != nil {
			return err
		}
		if err := pause(ctx, settle); err != nil {
			return err
		}
		t.add(who.name, (p.rss()-before)/idleConns/1e3)
		return nil
	})
}

func closeAll(conns []net.Conn) {
	for _, nc := range conns {
		_ = nc.Close()
	}
}

func (b *bench) logRow(ctx context.Context) (*table, error) {
	t := newTable("log", "as cpu, with a JSON access log to a file", column{colCPU, low}, column{colRate, high}, column{"added by the log, µs", neither})
	var sides []side
	for _, s := range b.sides(mode{}) {
		logs := s
		logs.mode.Log = filepath.Join(b.dir, strings.ReplaceAll(s.name, "/", "-")+".access.log")
		sides = append(sides, logs, s)
	}
	logging := map[string]float64{} // the last CPU of a request with a log
	err := b.turns(ctx, t, sides, func(s side, p *process, d time.Duration) (shot, error) {
		got, err := b.saturate(ctx)(s, p, d)
		if err == nil && s.mode.Log != "" {
			err = errors.Join(isJSONLog(s.mode.Log), os.Truncate(s.mode.Log, 0))
		}
		return got, err
	}, func(s side, f spent) {
		if s.mode.Log != "" {
			logging[s.name] = f.perRequest()
			t.add(s.name, f.perRequest(), f.perSecond)
		} else if with, ok := logging[s.name]; ok {
			t.addFrom(s.name, 2, with-f.perRequest())
		}
	})
	return t, err
}

// isJSONLog checks that a log has lines and that the last whole one is JSON with a status.
func isJSONLog(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	const tail = 8 << 10
	if at, err := file.Seek(0, io.SeekEnd); err == nil && at > tail {
		_, _ = file.Seek(-tail, io.SeekEnd) // else it is read whole
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	lines := bytes.Split(text, []byte{'\n'})
	last := lines[max(0, len(lines)-2)] // behind the last newline is the beginning of another one, or nothing
	var line map[string]any
	if err := json.Unmarshal(last, &line); err != nil {
		return fmt.Errorf("the log ends with %.200q: %w", last, err)
	}
	if line["status"] == nil {
		return fmt.Errorf("the log has no status: %.200q", last)
	}
	return nil
}

func (b *bench) tcpRow(ctx context.Context) (*table, error) {
	t := newTable("tcp", "TCP relay, 4 connections downwards", column{"GB a CPU second", high}, column{"GB/s", high}, column{"core busy, %", neither})
	source, err := load.Source()
	if err != nil {
		return nil, err
	}
	defer func() { _ = source.Close() }()
	relay := func(_ side, p *process, d time.Duration) (shot, error) {
		octets, err := load.Sink(p.address, 4, d)
		return shot{octets: float64(octets)}, err
	}
	return t, b.turns(ctx, t, b.sides(mode{TCP: true, Origin: source.Addr().String()}), relay, func(s side, f spent) {
		gb := f.octets / 1e9
		t.add(s.name, gb/f.cpu.Seconds(), gb/f.wall.Seconds(), f.busy())
	})
}

// pause waits, unless the run is over.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
