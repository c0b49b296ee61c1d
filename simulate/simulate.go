// Package simulate plays a scenario in virtual time: callers, each behind a sidecar of its own, services with latencies,
// queues and faults, and registries that lie. What the sidecars do is decided by the packages that decide in the running
// proxy (snapshot, route, balance, resilience) under policies written in the same language; only the world around them is
// made up. It is pure: no clock, no socket, no goroutine, and the same seed gives the same result to the last digit. Tests:
// the scenarios of examples/scenarios with what each must show, hand-computed worlds, and twins on real sockets.
package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// epoch is when every scenario begins.
func epoch() time.Time { return time.Unix(1_700_000_000, 0) }

// Run plays all variants of a scenario, one after the other, each in the same world: what does not depend on the sidecars'
// decisions is drawn alike.
func Run(s *Scenario) (*Result, error) {
	r := &Result{Name: s.Name, About: s.About, Story: s.Story, Seed: s.Seed, Duration: s.Duration, Sidecars: s.Sidecars, step: s.step}
	for i := range s.Faults {
		f := &s.Faults[i]
		r.faults = append(r.faults, [2]time.Duration{f.At, min(cmp.Or(f.Until, s.Duration), s.Duration)})
	}
	slices.SortFunc(r.faults, func(a, b [2]time.Duration) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	r.faults = slices.Compact(r.faults)
	for i := range s.Changes {
		r.changes = append(r.changes, s.Changes[i].At)
	}
	for _, v := range s.Variants {
		sim, err := newSimulation(s, v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.Name, err)
		}
		if err := sim.run(); err != nil {
			return nil, fmt.Errorf("%s: %w", v.Name, err)
		}
		r.Variants = append(r.Variants, sim.record.finish(sim))
	}
	for _, e := range s.Expect {
		r.Checks = append(r.Checks, e.check(r))
	}
	return r, nil
}

// simulation is one variant being played.
type simulation struct {
	scenario *Scenario
	variant  *Variant
	now      time.Time
	start    time.Time
	queue    queue
	nodes    []*node // all, in the order of the scenario
	byName   map[string]*node
	sidecars []*sidecar
	record   *recorder
	dice     dice // of the sidecars' decisions
	err      error
}

func newSimulation(s *Scenario, v *Variant) (*simulation, error) {
	sim := &simulation{scenario: s, variant: v, now: epoch(), start: epoch(), byName: map[string]*node{}, dice: dice{s.Seed ^ 0x51de}}
	sim.record = newRecorder(s)
	sim.buildNodes()
	for i := range s.Sidecars {
		c := &sidecar{sim: sim, id: i, seed: sim.dice.next(), lists: map[string]*listed{}, config: v.config}
		for _, name := range s.services() {
			c.lists[name] = &listed{}
			c.answer(name, (*Statement)(nil).list(sim.nodesOf(name)))
		}
		if err := c.apply(v.config); err != nil {
			return nil, err
		}
		c.aside = dice{c.seed ^ golden}
		sim.sidecars = append(sim.sidecars, c)
	}
	sim.schedule()
	return sim, nil
}

// run plays until the time is over and nothing that began before is under way.
func (sim *simulation) run() error {
	for sim.err == nil {
		e, ok := sim.queue.pop()
		if !ok {
			break
		}
		sim.now = sim.start.Add(e.at)
		e.do()
	}
	return sim.err
}

func (sim *simulation) at() time.Duration { return sim.now.Sub(sim.start) }

// after does something later.
func (sim *simulation) after(d time.Duration, do func()) { sim.queue.push(sim.at()+max(d, 0), do) }

// on does something at a time of the scenario.
func (sim *simulation) on(at time.Duration, do func()) { sim.queue.push(at, do) }

// schedule sets up all that happens by the clock: arrivals, faults, changes and what the registry says.
func (sim *simulation) schedule() {
	s := sim.scenario
	for i := range s.Traffic {
		t := &s.Traffic[i]
		for _, c := range sim.sidecars {
			draw := &dice{s.Seed + uint64(i)<<32 + uint64(c.id)*golden}
			sim.arrive(c, t, draw, t.From)
		}
	}
	for i := range s.Faults {
		f := &s.Faults[i]
		hit := sim.hit(f)
		sim.on(f.At, func() {
			for _, n := range hit {
				n.begin(f)
			}
		})
		if f.Until > 0 {
			sim.on(f.Until, func() {
				for _, n := range hit {
					n.end(f)
				}
			})
		}
	}
	for i := range s.Changes {
		sim.change(&s.Changes[i])
	}
	for at := s.step; at <= s.Duration; at += s.step {
		sim.on(at, func() { sim.record.look(sim) })
	}
}

// arrive plans the next call of a kind of traffic at one sidecar.
func (sim *simulation) arrive(c *sidecar, t *Traffic, draw *dice, from time.Duration) {
	gap := time.Duration(float64(time.Second) / float64(t.Rate))
	if !t.Even {
		gap = time.Duration(float64(gap) * draw.exponential())
	} else if from == t.From {
		gap = time.Duration(float64(gap) * draw.unit()) // not all sidecars at one moment
	}
	at := from + gap
	if at >= t.until(sim.scenario.Duration) {
		return
	}
	id := draw.next()
	sim.on(at, func() {
		c.call(t, id)
		sim.arrive(c, t, draw, at)
	})
}

// change plans when each sidecar hears of a change: all within its spread.
func (sim *simulation) change(ch *Change) {
	draw := &dice{sim.scenario.Seed ^ uint64(ch.At)}
	for _, c := range sim.sidecars {
		sim.on(ch.At+time.Duration(draw.unit()*float64(ch.Spread)), func() {
			if err := c.hear(ch); err != nil && sim.err == nil {
				sim.err = fmt.Errorf("change at %s: %w", ch.At, err)
			}
		})
	}
}

// queue is what is to happen, soonest first; of the same moment what was planned first.
type queue struct {
	heap  []event
	count uint64
}

type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

func (q *queue) push(at time.Duration, do func()) {
	q.count++
	q.heap = append(q.heap, event{at, q.count, do})
	for i := len(q.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.heap[i].before(&q.heap[up]) {
			return
		}
		q.heap[i], q.heap[up] = q.heap[up], q.heap[i]
		i = up
	}
}

func (q *queue) pop() (event, bool) {
	n := len(q.heap)
	if n == 0 {
		return event{}, false
	}
	first := q.heap[0]
	n--
	q.heap[0] = q.heap[n]
	q.heap[n] = event{}
	q.heap = q.heap[:n]
	for i := 0; ; {
		low := 2*i + 1
		if low >= n {
			return first, true
		}
		if low+1 < n && q.heap[low+1].before(&q.heap[low]) {
			low++
		}
		if !q.heap[low].before(&q.heap[i]) {
			return first, true
		}
		q.heap[i], q.heap[low] = q.heap[low], q.heap[i]
		i = low
	}
}
