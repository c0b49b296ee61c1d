package simulate

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/route"
)

// Scenario is a world, what happens in it, and the policies to be tried out. docs/simulate.md describes the fields.
type Scenario struct {
	Name     string
	Story    []string // names of the rules that it shows, such as S-142
	About    string
	Seed     uint64
	Duration time.Duration
	Sidecars int
	World    map[string]*World
	Traffic  []Traffic
	Faults   []Fault
	Changes  []Change
	Variants []*Variant
	Expect   []*Expectation

	step  time.Duration
	names []string // of the services of World, in the order of the file
}

// World is one service as it really is.
type World struct{ Nodes []Class }

// Class is a number of nodes that are alike.
type Class struct {
	Name    string            `yaml:"name"`
	Count   int               `yaml:"count"`
	Latency Latency           `yaml:"latency"`
	Workers int               `yaml:"workers"` // requests worked on at one time; 0: no bound
	Network time.Duration     `yaml:"network"` // there and back
	Errors  Share             `yaml:"errors"`
	Weight  int               `yaml:"weight"`
	Group   string            `yaml:"group"`
	Zone    string            `yaml:"zone"`
	Region  string            `yaml:"region"`
	Version string            `yaml:"version"`
	Labels  map[string]string `yaml:"labels"`
}

// Traffic is what each sidecar's app calls.
type Traffic struct {
	Name    string            `yaml:"name"`
	To      string            `yaml:"to"` // the service, or a host that it takes
	Method  string            `yaml:"method"`
	Path    string            `yaml:"path"`
	Headers map[string]string `yaml:"headers"`
	Rate    Rate              `yaml:"rate"`
	Even    bool              `yaml:"even"` // at equal gaps, not at random
	From    time.Duration     `yaml:"from"`
	Until   time.Duration     `yaml:"until"`

	index  int
	fields route.FieldList
}

func (t *Traffic) host() string { return t.To }

func (t *Traffic) until(end time.Duration) time.Duration {
	if t.Until > 0 {
		return min(t.Until, end)
	}
	return end
}

// Fault is what is wrong with some nodes for a while.
type Fault struct {
	At      time.Duration `yaml:"at"`
	Until   time.Duration `yaml:"until"` // 0: to the end
	Service string        `yaml:"service"`
	Class   string        `yaml:"class"` // empty: all
	Nodes   int           `yaml:"nodes"` // the first so many; 0: Share says
	Share   Share         `yaml:"share"` // the first part of them; 0: all
	Hang    bool          `yaml:"hang"`  // takes requests and never answers
	Refuse  bool          `yaml:"refuse"`
	Silent  bool          `yaml:"silent"` // does not even answer a connect
	Errors  Share         `yaml:"errors"`
	Slower  float64       `yaml:"slower"` // times as slow
	Delay   time.Duration `yaml:"delay"`
}

// Change is news that reaches every sidecar: a configuration, or what the registry says from now on.
type Change struct {
	At       time.Duration         `yaml:"at"`
	Spread   time.Duration         `yaml:"spread"` // each sidecar hears of it within so long
	Registry map[string]*Statement `yaml:"registry"`
	Config   yaml.Node             `yaml:"config"`
	Switches map[string]bool       `yaml:"switches"` // writes to degradation switches
	Level    *int                  `yaml:"level"`    // on are the switches up to it, off those above

	configs map[string]*config.Config // by variant
}

// Variant is one set of policies.
type Variant struct {
	Name   string
	config *config.Config
}

// Share is a part of a whole, as 20% or 0.2.
type Share float64

// UnmarshalYAML implements yaml.Unmarshaler.
func (v *Share) UnmarshalYAML(n *yaml.Node) error {
	text, percent := strings.CutSuffix(n.Value, "%")
	f, err := strconv.ParseFloat(text, 64)
	if percent {
		f /= 100
	}
	if err != nil || !(f >= 0 && f <= 1) {
		return fmt.Errorf("line %d: a share is expected, like 20%% or 0.2, got %q", n.Line, n.Value)
	}
	*v = Share(f)
	return nil
}

// Rate is how often something happens in a second, as 200/s or 6000/m.
type Rate float64

// UnmarshalYAML implements yaml.Unmarshaler.
func (v *Rate) UnmarshalYAML(n *yaml.Node) error {
	text, per, _ := strings.Cut(n.Value, "/")
	f, err := strconv.ParseFloat(text, 64)
	if per == "m" {
		f /= 60
	}
	if err != nil || per != "s" && per != "m" || !(f > 0) {
		return fmt.Errorf("line %d: a rate is expected, like 200/s or 6000/m, got %q", n.Line, n.Value)
	}
	*v = Rate(f)
	return nil
}

// file is a scenario as it is written.
type file struct {
	Scenario string        `yaml:"scenario"`
	Story    []string      `yaml:"story"`
	About    string        `yaml:"about"`
	Seed     uint64        `yaml:"seed"`
	Duration time.Duration `yaml:"duration"`
	Step     time.Duration `yaml:"step"`
	Sidecars int           `yaml:"sidecars"`
	Config   yaml.Node     `yaml:"config"`
	World    yaml.Node     `yaml:"world"`
	Traffic  []Traffic     `yaml:"traffic"`
	Faults   []Fault       `yaml:"faults"`
	Changes  []Change      `yaml:"changes"`
	Variants yaml.Node     `yaml:"variants"`
	Expect   []string      `yaml:"expect"`
}

// Bounds of a scenario, so that a slip of the pen does not fill the memory.
const (
	maxSidecars = 10_000
	maxNodes    = 20_000
	maxCalls    = 20_000_000
	maxDuration = 24 * time.Hour
)

// Load reads a scenario. name is that of the file, for error messages.
func Load(name string, data []byte) (*Scenario, error) {
	f := file{Seed: 1, Duration: time.Minute, Sidecars: 1}
	strict := yaml.NewDecoder(bytes.NewReader(data))
	strict.KnownFields(true)
	if err := strict.Decode(&f); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d := loader{name: name}
	s := &Scenario{
		Name: f.Scenario, Story: f.Story, About: strings.TrimSpace(f.About), Seed: f.Seed, Duration: f.Duration,
		Sidecars: f.Sidecars, Traffic: f.Traffic, Faults: f.Faults, Changes: f.Changes, World: map[string]*World{}, step: f.Step,
	}
	if s.step <= 0 {
		s.step = roundStep(s.Duration)
	}
	d.world(s, &f.World)
	d.variants(s, data, &f)
	for i := range s.Traffic {
		s.Traffic[i].index = i
	}
	for _, text := range f.Expect {
		e, err := parseExpectation(text)
		if err != nil {
			d.fail("expect: %q: %w", text, err)
			continue
		}
		s.Expect = append(s.Expect, e)
	}
	d.check(s)
	if len(d.errs) > 0 {
		return nil, errors.Join(d.errs...)
	}
	return s, nil
}

// roundStep is the shortest of 100 ms, 200 ms, 500 ms, 1 s, 2 s … that gives no more than mostSteps points.
func roundStep(d time.Duration) time.Duration {
	const mostSteps = 120
	for unit := 100 * time.Millisecond; ; unit *= 10 {
		for _, k := range []time.Duration{1, 2, 5} {
			if step := k * unit; d/step <= mostSteps {
				return step
			}
		}
	}
}

func (s *Scenario) services() []string { return s.names }

func (s *Scenario) steps() int { return int((s.Duration + s.step - 1) / s.step) }
