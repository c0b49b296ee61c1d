package simulate

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

// node is one endpoint as it really is, whatever registries say.
type node struct {
	sim     *simulation
	service string
	class   *Class
	index   int // among the nodes of its class
	spec    *config.Endpoint
	sick    *config.Endpoint // the same, when the registry says that its health check fails
	dice    dice

	busy   int
	line   []job // waiting for a worker, first come, first served
	faults []*Fault
	served []int // requests that reached it, by step
}

// job is one request at a node. answer is called when it is done, unless it never is.
type job struct {
	answer func(status int)
}

func (sim *simulation) buildNodes() {
	for s, name := range sim.scenario.services() {
		svc := sim.scenario.World[name]
		count := 0
		for c := range svc.Nodes {
			class := &svc.Nodes[c]
			for i := range class.Count {
				count++
				n := &node{
					sim: sim, service: name, class: class, index: i, served: make([]int, sim.scenario.steps()),
					dice: dice{sim.scenario.Seed + uint64(s)<<40 + uint64(count)*golden},
					spec: &config.Endpoint{
						Address: fmt.Sprintf("10.%d.%d.%d:80", s+1, count/250, count%250+1), Weight: class.Weight,
						Group: class.Group, Zone: class.Zone, Region: class.Region, Version: class.Version, Labels: class.Labels,
					},
				}
				sick := *n.spec
				sick.Health = config.HealthCritical
				n.sick = &sick
				sim.nodes = append(sim.nodes, n)
				sim.byName[n.spec.Address] = n
			}
		}
	}
}

func (sim *simulation) nodesOf(service string) []*node {
	var list []*node
	for _, n := range sim.nodes {
		if n.service == service {
			list = append(list, n)
		}
	}
	return list
}

// hit returns the nodes that a fault is about.
func (sim *simulation) hit(f *Fault) []*node {
	return chosen(sim.nodesOf(f.Service), f.Class, f.Nodes, float64(f.Share))
}

// chosen picks nodes of a class ("" for all): the first count, or the first share of them, or with neither all.
func chosen(list []*node, class string, count int, share float64) []*node {
	if class != "" {
		list = slices.DeleteFunc(slices.Clone(list), func(n *node) bool { return n.class.Name != class })
	}
	switch {
	case count > 0:
		return list[:min(count, len(list))]
	case share > 0:
		return list[:int(math.Round(share*float64(len(list))))]
	}
	return list
}

func (n *node) begin(f *Fault) { n.faults = append(n.faults, f) }

// end ends a fault; what a hung node had taken is lost, and its workers are free again.
func (n *node) end(f *Fault) {
	n.faults = slices.DeleteFunc(n.faults, func(x *Fault) bool { return x == f })
	if f.Hang {
		n.busy = 0
		n.work()
	}
}

// fault reports whether any of the node's faults is of a kind.
func (n *node) fault(is func(*Fault) bool) bool { return slices.ContainsFunc(n.faults, is) }

func (n *node) refuses() bool { return n.fault(func(f *Fault) bool { return f.Refuse }) }
func (n *node) silent() bool  { return n.fault(func(f *Fault) bool { return f.Silent }) }
func (n *node) hangs() bool   { return n.fault(func(f *Fault) bool { return f.Hang }) }

// take is the arrival of a request.
func (n *node) take(answer func(status int)) {
	n.served[n.sim.record.step(n.sim.at())]++
	n.line = append(n.line, job{answer: answer})
	n.work()
}

// work gives waiting requests to free workers.
func (n *node) work() {
	for len(n.line) > 0 && (n.class.Workers == 0 || n.busy < n.class.Workers) {
		j := n.line[0]
		n.line = n.line[1:]
		n.busy++
		if n.hangs() {
			continue // it is never heard of again
		}
		took := n.time()
		status := n.status()
		n.sim.after(took, func() {
			if n.hangs() {
				return
			}
			n.busy = max(0, n.busy-1)
			j.answer(status)
			n.work()
		})
	}
}

// time draws how long a request is worked on.
func (n *node) time() time.Duration {
	d := n.class.Latency.draw(&n.dice)
	for _, f := range n.faults {
		if f.Slower > 0 {
			d = time.Duration(float64(d) * f.Slower)
		}
		d += f.Delay
	}
	return d
}

// status draws how a request is answered.
func (n *node) status() int {
	errors := n.class.Errors
	for _, f := range n.faults {
		errors = max(errors, f.Errors)
	}
	if errors > 0 && n.dice.unit() < float64(errors) {
		return 503
	}
	return 200
}

// Latency is a distribution, given by some of its quantiles. Between them it is drawn on a straight line of logarithms.
type Latency struct {
	quantiles []float64 // ascending, from 0 to 1
	values    []time.Duration
}

// draw draws one time.
func (l *Latency) draw(d *dice) time.Duration {
	if len(l.values) == 1 {
		return l.values[0]
	}
	return l.At(d.unit())
}

// At is the time that a share u of all, 0 ≤ u < 1, does not exceed.
func (l *Latency) At(u float64) time.Duration {
	if len(l.values) == 1 {
		return l.values[0]
	}
	i := 1
	for i < len(l.quantiles)-1 && u >= l.quantiles[i] {
		i++
	}
	low, high := float64(l.values[i-1]), float64(l.values[i])
	part := (u - l.quantiles[i-1]) / (l.quantiles[i] - l.quantiles[i-1])
	return time.Duration(low * math.Pow(high/low, part))
}
