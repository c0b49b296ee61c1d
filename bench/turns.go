//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"
)

// inTurn is how long one peer is measured until it is another's turn.
const inTurn = time.Second

// side is what takes turns with others: a peer in a mode.
type side struct {
	*peer
	mode mode
}

// sides lists the peers that can be set up in a mode.
func (b *bench) sides(m mode) (all []side) {
	for _, p := range b.taking(m) {
		all = append(all, side{p, m})
	}
	return all
}

// loader loads a proxy for so long.
type loader func(s side, p *process, d time.Duration) (shot, error)

// spent is what one slice took.
type spent struct {
	shot
	cpu, wall time.Duration
}

// perRequest is the CPU of a request in µs.
func (s *spent) perRequest() float64 { return micros(s.cpu) / s.requests }

// busy is how much of its core the proxy used, in percent.
func (s *spent) busy() float64 { return 100 * float64(s.cpu) / float64(s.wall) }

// turns has peers measured in slices of a second, one after the other and all over again for the length of a measurement, so
// that they see the same machine: its speed may double from one second to the next. Each round starts them anew and warms
// them; each turn begins with another. A peer that fails gets a note, not a number.
func (b *bench) turns(ctx context.Context, t *table, sides []side, run loader, found func(s side, f spent)) error {
	for range b.rounds {
		if err := b.round(ctx, t, sides, run, found); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) round(ctx context.Context, t *table, sides []side, run loader, found func(s side, f spent)) error {
	procs := make([]*process, len(sides))
	defer func() {
		for _, p := range procs {
			if p != nil {
				p.stop()
			}
		}
	}()
	for i, s := range sides {
		p, err := b.start(ctx, s.peer, s.mode)
		if err == nil {
			if _, err = run(s, p, warmup); err != nil {
				p.stop()
			}
		}
		if err != nil {
			t.note("%s: %v", s.name, err)
			continue
		}
		procs[i] = p
	}
	for i, p := range procs {
		if p != nil {
			wait := b.watchProfile(ctx, p, sides[i].peer)
			defer func() {
				if err := wait(); err != nil {
					t.note("%s: %v", sides[i].name, err)
				}
			}()
		}
	}
	for turn := range b.inTurns() {
		t.turn++
		for k := range sides {
			i := (turn + k) % len(sides)
			p := procs[i]
			if p == nil {
				continue
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			used, began := p.cpu(), time.Now()
			s, err := run(sides[i], p, inTurn)
			if err != nil {
				t.note("%s: %v", sides[i].name, err)
				continue
			}
			found(sides[i], spent{s, p.cpu() - used, time.Since(began)})
		}
	}
	return nil
}

// inTurns is how many turns each peer has in a round.
func (b *bench) inTurns() int { return max(1, int(math.Round(b.seconds.Seconds()/inTurn.Seconds()))) }

// cost is turns for tables whose columns are the CPU of a request, requests a second and how busy the proxy's core was.
func (b *bench) cost(ctx context.Context, t *table, m mode, run loader) error {
	return b.turns(ctx, t, b.sides(m), run, func(s side, f spent) {
		t.add(s.name, f.perRequest(), f.perSecond, f.busy())
	})
}

// saturate has wrk load a proxy as much as it takes.
func (b *bench) saturate(ctx context.Context) loader {
	return func(_ side, p *process, d time.Duration) (shot, error) {
		return b.wrk(ctx, p.address, "bench", "/", connections, d)
	}
}

// saturateHTTP2 has h2load load a proxy as much as it takes.
func saturateHTTP2(ctx context.Context) loader {
	return func(_ side, p *process, d time.Duration) (shot, error) {
		return h2load(ctx, d+10*time.Second, p.address, "/", "-c", strconv.Itoa(http2Conns), "-m", strconv.Itoa(http2Streams),
			"-D", fmt.Sprint(max(1, math.Round(d.Seconds()))))
	}
}
