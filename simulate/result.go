package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Result is what a scenario showed.
type Result struct {
	Name     string        `json:"scenario"`
	Story    []string      `json:"story,omitempty"`
	About    string        `json:"about,omitempty"`
	Seed     uint64        `json:"seed"`
	Duration time.Duration `json:"duration_ns"`
	Sidecars int           `json:"sidecars"`
	Variants []*Outcome    `json:"variants"`
	Checks   []Check       `json:"checks,omitempty"`

	step    time.Duration
	faults  [][2]time.Duration // when they begin and end
	changes []time.Duration
}

// Met reports whether all that was expected came true.
func (r *Result) Met() bool {
	return !slices.ContainsFunc(r.Checks, func(c Check) bool { return !c.Met })
}

func (r *Result) variant(name string) *Outcome {
	for _, v := range r.Variants {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// Outcome is how one variant went.
type Outcome struct {
	Name    string         `json:"name"`
	Traffic []Flow         `json:"traffic"`
	Nodes   []NodeLoad     `json:"nodes"`
	Events  []Event        `json:"events"`
	Counts  map[string]int `json:"event_counts"`
	Steps   []Step         `json:"steps"`

	sim *simulation
}

// Flow is what became of one kind of traffic.
type Flow struct {
	Name string `json:"name"`
	Figures
	Attempted map[string]int `json:"decisions"` // why attempts were made, or not
}

// Figures sum up calls. Times are those of all calls, failed ones included, up to the head of the answer.
type Figures struct {
	Calls    int            `json:"calls"`
	Good     int            `json:"good"` // answered with a status below 500
	Success  float64        `json:"success"`
	StoodIn  int            `json:"stood_in"` // answered by a switch or a fallback, well or not
	Attempts int            `json:"attempts"`
	Load     float64        `json:"attempts_per_call"`
	P50      time.Duration  `json:"p50_ns"`
	P90      time.Duration  `json:"p90_ns"`
	P99      time.Duration  `json:"p99_ns"`
	P999     time.Duration  `json:"p999_ns"`
	Max      time.Duration  `json:"max_ns"`
	Failed   map[string]int `json:"failed,omitempty"` // by reason
}

// NodeLoad is what a class of nodes was asked for.
type NodeLoad struct {
	Service  string `json:"service"`
	Class    string `json:"class"`
	Nodes    int    `json:"nodes"`
	Requests int    `json:"requests"`
	Least    int    `json:"least"` // of one node
	Most     int    `json:"most"`
}

// Step is how things stood in one part of the time.
type Step struct {
	At          time.Duration `json:"at_ns"` // its end
	Calls       int           `json:"calls"`
	Success     float64       `json:"success"`
	Load        float64       `json:"attempts_per_call"`
	P50         time.Duration `json:"p50_ns"`
	P99         time.Duration `json:"p99_ns"`
	P999        time.Duration `json:"p999_ns"`
	BreakerOpen float64       `json:"breakers_open"` // share of the breakers of all sidecars
	Unusable    float64       `json:"unusable"`      // share of the endpoints that sidecars know
	Known       float64       `json:"known"`         // endpoints that one sidecar knows
	SwitchedOn  float64       `json:"switches_on"`   // share of the switches of all sidecars, automatic ones that let some calls through included
	StoodIn     float64       `json:"stood_in"`      // share of the calls
	Requests    []int         `json:"requests"`      // by class, in the order of nodes
}

// finish sums up a variant.
func (r *recorder) finish(sim *simulation) *Outcome {
	v := &Outcome{Name: sim.variant.Name, Events: r.events, Counts: r.counts, sim: sim}
	whole := window{from: 0, to: r.s.steps()}
	for i := range r.s.Traffic {
		whole.flow = i
		v.Traffic = append(v.Traffic, Flow{Name: r.s.Traffic[i].Name, Figures: r.figures(whole), Attempted: r.flows[i].whys})
	}
	for _, name := range r.s.services() {
		for i := range r.s.World[name].Nodes {
			class := &r.s.World[name].Nodes[i]
			list := requests(sim, class.Name, 0, r.s.steps())
			l := NodeLoad{Service: name, Class: class.Name, Nodes: class.Count, Least: slices.Min(list), Most: slices.Max(list)}
			for _, n := range list {
				l.Requests += n
			}
			v.Nodes = append(v.Nodes, l)
		}
	}
	for k := range r.s.steps() {
		f := r.figures(window{flow: -1, from: k, to: k + 1})
		st := Step{
			At: min(r.s.Duration, time.Duration(k+1)*r.s.step), Calls: f.Calls, Success: f.Success, Load: f.Load,
			P50: f.P50, P99: f.P99, P999: f.P999, StoodIn: float64(f.StoodIn) / float64(max(1, f.Calls)),
		}
		if k < len(r.states) {
			st.BreakerOpen, st.Unusable, st.Known, st.SwitchedOn = r.states[k][0], r.states[k][1], r.states[k][2], r.states[k][3]
		}
		for _, l := range v.Nodes {
			sum := 0
			for _, n := range requests(sim, l.Class, k, k+1) {
				sum += n
			}
			st.Requests = append(st.Requests, sum)
		}
		v.Steps = append(v.Steps, st)
	}
	return v
}

// Text is a result as tables for people.
func (r *Result) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", r.Name)
	if len(r.Story) > 0 {
		fmt.Fprintf(&b, " (%s)", strings.Join(r.Story, ", "))
	}
	fmt.Fprintf(&b, "\n%s, %s, seed %d\n\n", r.Duration, several(r.Sidecars, "sidecar"), r.Seed)
	w := tabwriter.NewWriter(&b, 0, 1, 2, ' ', 0)
	fmt.Fprintln(w, "VARIANT\tTRAFFIC\tCALLS\tSUCCESS\tSTOOD IN\tATTEMPTS/CALL\tP50\tP90\tP99\tP999\tMAX\tFAILED")
	for _, v := range r.Variants {
		for _, f := range v.Traffic {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%.3f\t%s\t%s\t%s\t%s\t%s\t%s\n", v.Name, f.Name, f.Calls, percent(f.Success), f.StoodIn, f.Load,
				rounded(f.P50), rounded(f.P90), rounded(f.P99), rounded(f.P999), rounded(f.Max), counted(f.Failed))
		}
	}
	fmt.Fprintln(w, "\nVARIANT\tNODES\tCOUNT\tREQUESTS\tOF ONE NODE\tEVENTS")
	for _, v := range r.Variants {
		events := counted(v.Counts)
		for _, n := range v.Nodes {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d … %d\t%s\n", v.Name, n.Class, n.Nodes, n.Requests, n.Least, n.Most, events)
			events = ""
		}
	}
	_ = w.Flush() // a builder takes everything
	if len(r.Checks) > 0 {
		b.WriteString("\n")
		for _, c := range r.Checks {
			mark := "met    "
			if !c.Met {
				mark = "NOT MET"
			}
			fmt.Fprintf(&b, "%s  %s   (%s)\n", mark, c.Text, c.Found)
		}
	}
	return b.String()
}

func counted(m map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, m[k]))
	}
	return strings.Join(parts, ", ")
}
