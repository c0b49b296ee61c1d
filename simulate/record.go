package simulate

import (
	"math"
	"slices"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

// maxEvents bounds the events that are kept of a variant; all are counted.
const maxEvents = 500

// recorder takes down what happens in one variant, by traffic and step.
type recorder struct {
	s      *Scenario
	flows  []*flow // in the order of Scenario.Traffic
	states [][]float64
	events []Event
	counts map[string]int
}

// flow is what became of one kind of traffic.
type flow struct {
	calls    []int             // by step of their beginning, as all below
	good     []int             // answered with a status below 500
	attempts []int             // of any sort
	stood    []int             // answered by what stands in for the service
	reasons  []map[string]int  // of those that failed
	times    [][]time.Duration // of all calls
	whys     map[string]int
}

func newRecorder(s *Scenario) *recorder {
	r := &recorder{s: s, counts: map[string]int{}}
	n := s.steps()
	for range s.Traffic {
		f := &flow{
			calls: make([]int, n), good: make([]int, n), attempts: make([]int, n), reasons: make([]map[string]int, n),
			stood: make([]int, n), times: make([][]time.Duration, n), whys: map[string]int{},
		}
		r.flows = append(r.flows, f)
	}
	return r
}

// step is the number of the step that a time is in; what comes after the end counts in the last.
func (r *recorder) step(at time.Duration) int { return min(int(at/r.s.step), r.s.steps()-1) }

func (r *recorder) began(t *Traffic, at time.Duration) { r.flows[t.index].calls[r.step(at)]++ }

// tried counts an attempt where its call began, so that attempts per call is what it says.
func (r *recorder) tried(x *call, why resilience.Why) {
	f := r.flows[x.t.index]
	f.attempts[r.stepOf(x)]++
	f.whys["tried: "+why.String()]++
}

func (r *recorder) stepOf(x *call) int { return r.step(x.start.Sub(x.c.sim.start)) }

// decided counts why there was no further attempt.
func (r *recorder) decided(x *call, why resilience.Why) {
	switch why {
	case resilience.WhyNone, resilience.WhyRetry, resilience.WhyBackup, resilience.WhyDual, resilience.WhyStale, resilience.WhyFirst:
		return
	}
	r.flows[x.t.index].whys["not tried: "+why.String()]++
}

func (r *recorder) ended(x *call, reason resilience.Reason, status int) {
	f, i := r.flows[x.t.index], r.stepOf(x)
	f.times[i] = append(f.times[i], x.c.sim.now.Sub(x.start))
	if reason == resilience.None && status < 500 {
		f.good[i]++
		return
	}
	name := reason.String()
	if name == "" {
		name = "status 5xx"
	}
	if f.reasons[i] == nil {
		f.reasons[i] = map[string]int{}
	}
	f.reasons[i][name]++
}

// stoodIn takes down an answer that stands in for the service's. ok: it is a good one.
func (r *recorder) stoodIn(x *call, ok bool, by string) {
	f, i := r.flows[x.t.index], r.stepOf(x)
	f.times[i] = append(f.times[i], x.c.sim.now.Sub(x.start))
	f.stood[i]++
	f.whys["stood in: "+by]++
	if ok {
		f.good[i]++
		return
	}
	if f.reasons[i] == nil {
		f.reasons[i] = map[string]int{}
	}
	f.reasons[i][resilience.Degraded.String()]++
}

// mirrored counts what became of a copy.
func (r *recorder) mirrored(x *call, fate string) { r.flows[x.t.index].whys["mirrored: "+fate]++ }

// Event is a change of verdict at one sidecar.
type Event struct {
	At       time.Duration `json:"at"`
	Sidecar  int           `json:"sidecar"`
	Kind     string        `json:"kind"`
	Service  string        `json:"service"`
	Endpoint string        `json:"endpoint,omitempty"`
	Detail   string        `json:"detail,omitempty"`
}

func (r *recorder) event(c *sidecar, kind, service, endpoint, detail string) {
	r.counts[kind]++
	if kind == "panic" && r.counts[kind] > 1 {
		return // it is the same story each time
	}
	if len(r.events) < maxEvents {
		r.events = append(r.events, Event{c.sim.at(), c.id, kind, service, endpoint, detail})
	}
}

// look takes down how the sidecars stand: the share of (sidecar, service) whose breaker is not closed, of (sidecar,
// endpoint) that is not usable, how many endpoints a sidecar knows, and the share of (sidecar, switch) that is not off.
func (r *recorder) look(sim *simulation) {
	var open, breakers, out, known, on, switches float64
	for _, c := range sim.sidecars {
		for _, w := range c.snap.Switches {
			switches++
			if w.State.State() != resilience.SwitchOff {
				on++
			}
		}
		for _, s := range c.snap.Outbound.List {
			breakers++
			if s.Rest.Breaker.State(sim.now) != resilience.Closed {
				open++
			}
			for _, e := range s.Endpoints {
				known++
				if !e.Usable() {
					out++
				}
			}
		}
	}
	r.states = append(r.states, []float64{
		open / max(1, breakers), out / max(1, known), known / float64(len(sim.sidecars)), on / max(1, switches),
	})
}

// window is the part of a variant that a figure is about.
type window struct {
	flow     int // -1: all
	from, to int // steps, to excluded
}

// figures sums up a window.
func (r *recorder) figures(w window) Figures {
	var v Figures
	var times []time.Duration
	failed := map[string]int{}
	for i, f := range r.flows {
		if w.flow >= 0 && i != w.flow {
			continue
		}
		for k := w.from; k < w.to; k++ {
			v.Calls += f.calls[k]
			v.Good += f.good[k]
			v.Attempts += f.attempts[k]
			v.StoodIn += f.stood[k]
			times = append(times, f.times[k]...)
			for reason, n := range f.reasons[k] {
				failed[reason] += n
			}
		}
	}
	slices.Sort(times)
	v.P50, v.P90, v.P99, v.P999 = quantile(times, 0.5), quantile(times, 0.9), quantile(times, 0.99), quantile(times, 0.999)
	v.Max = quantile(times, 1)
	if v.Calls > 0 {
		v.Success, v.Load = float64(v.Good)/float64(v.Calls), float64(v.Attempts)/float64(v.Calls)
	}
	if len(failed) > 0 {
		v.Failed = failed
	}
	return v
}

// quantile of sorted times: the value that a share q of them does not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, min(len(sorted), int(math.Ceil(q*float64(len(sorted)))))-1)]
}

// requests are those that reached nodes of a class ("" for all), node by node.
func requests(sim *simulation, class string, from, to int) []int {
	var list []int
	for _, n := range sim.nodes {
		if class != "" && n.class.Name != class {
			continue
		}
		sum := 0
		for _, k := range n.served[from:to] {
			sum += k
		}
		list = append(list, sum)
	}
	return list
}
