package simulate

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/route"
)

// loader reads what needs more than decoding, and collects mistakes.
type loader struct {
	name string
	errs []error
}

func (d *loader) fail(format string, a ...any) {
	d.errs = append(d.errs, fmt.Errorf("%s: %w", d.name, fmt.Errorf(format, a...)))
}

// world reads the services in the order in which they are written.
func (d *loader) world(s *Scenario, n *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		w := &World{}
		for _, c := range n.Content[i+1].Content {
			class := Class{Name: name, Count: 1, Weight: 1}
			if err := strictly(c, &class); err != nil {
				d.fail("world.%s: %w", name, err)
				continue
			}
			if len(class.Latency.values) == 0 {
				d.fail("line %d: world.%s: latency is missing", c.Line, name)
			}
			w.Nodes = append(w.Nodes, class)
		}
		s.World[name] = w
		s.names = append(s.names, name)
	}
}

// strictly decodes a node and refuses unknown keys.
func strictly(n *yaml.Node, out any) error {
	text, err := yaml.Marshal(n)
	if err != nil {
		return err
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(out); err != nil {
		return fmt.Errorf("below line %d: %w", n.Line, err)
	}
	return nil
}

// variants reads the policies to be tried out: the configuration, with the entries of each variant in place of its own.
func (d *loader) variants(s *Scenario, data []byte, f *file) {
	base, err := config.LoadBytes(d.name, part(data, &f.Config), config.RankFile, noEnv)
	if err != nil {
		d.errs = append(d.errs, err)
		return
	}
	if len(f.Variants.Content) == 0 {
		s.Variants = []*Variant{{Name: "run", config: base}}
	}
	for i := 0; i+1 < len(f.Variants.Content); i += 2 {
		name := f.Variants.Content[i].Value
		cfg, err := over(base, d.name+": variants."+name, f.Variants.Content[i+1])
		if err != nil {
			d.errs = append(d.errs, err)
			continue
		}
		s.Variants = append(s.Variants, &Variant{Name: name, config: cfg})
	}
	for i := range s.Changes {
		c := &s.Changes[i]
		if c.Config.IsZero() {
			continue
		}
		c.configs = map[string]*config.Config{}
		for _, v := range s.Variants {
			cfg, err := over(v.config, fmt.Sprintf("%s: changes[%d].config", d.name, i), &c.Config)
			if err != nil {
				d.errs = append(d.errs, err)
				break
			}
			c.configs[v.Name] = cfg
		}
	}
}

// part is a document with nothing but the value of a node of it, which keeps its place, so that mistakes are reported where
// they are.
func part(data []byte, n *yaml.Node) []byte {
	if n.IsZero() {
		return []byte("{}\n")
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	last := len(lines)
	for i := n.Line; i < len(lines); i++ { // to the next key of the scenario
		if l := lines[i]; len(l) > 0 && l[0] != ' ' && l[0] != '#' && l[0] != '\n' && l[0] != '}' {
			last = i
			break
		}
	}
	var out bytes.Buffer
	out.WriteString(strings.Repeat("\n", n.Line-1))
	for i := n.Line - 1; i < last; i++ {
		if i == n.Line-1 {
			out.WriteString(strings.Repeat(" ", n.Column-1))
			out.Write(lines[i][n.Column-1:])
			continue
		}
		out.Write(lines[i])
	}
	return out.Bytes()
}

// over lays a partial configuration over another: its entries win.
func over(base *config.Config, name string, n *yaml.Node) (*config.Config, error) {
	text, err := yaml.Marshal(n)
	if err != nil {
		return nil, err
	}
	top, err := config.LoadBytes(name, text, config.RankDynamic, noEnv)
	if err != nil {
		return nil, err
	}
	top.Node, top.Listen, top.Limits, top.Registries = base.Node, base.Listen, base.Limits, base.Registries
	top.Discovery, top.Inbound, top.Telemetry, top.Bulkheads = base.Discovery, base.Inbound, base.Telemetry, base.Bulkheads
	return config.Merge(top, config.Layer{Rank: config.RankCenter, Config: base})
}

func noEnv(string) (string, bool) { return "", false }

// check looks at what decoding does not.
func (d *loader) check(s *Scenario) {
	nodes, calls := 0, 0.0
	for _, name := range s.names {
		for i := range s.World[name].Nodes {
			nodes += s.World[name].Nodes[i].Count
		}
	}
	for i := range s.Traffic {
		t := &s.Traffic[i]
		t.Method, t.Path, t.Name = cmp.Or(t.Method, "GET"), cmp.Or(t.Path, "/"), cmp.Or(t.Name, t.To)
		calls += float64(t.Rate) * t.until(s.Duration).Seconds() * float64(s.Sidecars)
		if t.To == "" || t.Rate <= 0 {
			d.fail("traffic[%d]: to and rate are needed", i)
		}
		for _, k := range slices.Sorted(maps.Keys(t.Headers)) {
			t.fields = append(t.fields, route.Field{Name: k, Value: t.Headers[k]})
		}
		if t.fields == nil {
			t.fields = route.FieldList{}
		}
	}
	for i := range s.Faults {
		d.known(s, fmt.Sprintf("faults[%d]", i), s.Faults[i].Service, s.Faults[i].Class)
	}
	for i := range s.Changes {
		for _, name := range slices.Sorted(maps.Keys(s.Changes[i].Switches)) {
			if !slices.ContainsFunc(s.Variants, func(v *Variant) bool { return v.config.Switches[name] != nil }) {
				d.fail("changes[%d].switches: there is no switch %q", i, name)
			}
		}
		if l := s.Changes[i].Level; l != nil && (*l < 0 || *l > 3) {
			d.fail("changes[%d].level: %d is not from 0 to 3", i, *l)
		}
		for _, name := range slices.Sorted(maps.Keys(s.Changes[i].Registry)) {
			class := ""
			if st := s.Changes[i].Registry[name]; st != nil {
				class = st.Class
			}
			d.known(s, fmt.Sprintf("changes[%d].registry", i), name, class)
		}
	}
	for _, bound := range []struct {
		what    string
		is, max float64
	}{
		{"duration (seconds)", s.Duration.Seconds(), maxDuration.Seconds()},
		{"sidecars", float64(s.Sidecars), maxSidecars},
		{"nodes", float64(nodes), maxNodes},
		{"calls", calls, maxCalls},
	} {
		if bound.is <= 0 || bound.is > bound.max {
			d.fail("%s: %g is not from 1 to %g", bound.what, bound.is, bound.max)
		}
	}
	for _, e := range s.Expect {
		if err := e.known(s); err != nil {
			d.fail("expect: %q: %w", e.Text, err)
		}
	}
}

// known fails unless a service and a class of it are part of the world.
func (d *loader) known(s *Scenario, where, service, class string) {
	w := s.World[service]
	switch {
	case w == nil:
		d.fail("%s: there is no service %q in world", where, service)
	case class != "" && !slices.ContainsFunc(w.Nodes, func(c Class) bool { return c.Name == class }):
		d.fail("%s: service %s has no class %q", where, service, class)
	}
}

// UnmarshalYAML reads one time, or quantiles: {p50: 5ms, p90: 50ms, p99: 200ms, p999: 1s, max: 1.2s}.
func (l *Latency) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		d, err := time.ParseDuration(n.Value)
		if err != nil || d < 0 {
			return fmt.Errorf("line %d: a time is expected, like 10ms, got %q", n.Line, n.Value)
		}
		l.values = []time.Duration{d}
		return nil
	}
	var points map[string]time.Duration
	if err := n.Decode(&points); err != nil {
		return err
	}
	at := map[float64]time.Duration{}
	for name, d := range points {
		q, err := quantileOf(name)
		if err != nil || d <= 0 {
			return fmt.Errorf("line %d: a quantile and a time are expected, like p99: 200ms, got %s: %s", n.Line, name, d)
		}
		at[q] = d
	}
	l.quantiles = slices.Sorted(maps.Keys(at))
	for _, q := range l.quantiles {
		l.values = append(l.values, at[q])
	}
	if len(l.values) == 0 || !slices.IsSorted(l.values) {
		return fmt.Errorf("line %d: quantiles of a latency must rise", n.Line)
	}
	// The ends, where they are not given: half of the lowest value, and twice the highest.
	if l.quantiles[0] > 0 {
		l.quantiles, l.values = slices.Insert(l.quantiles, 0, 0), slices.Insert(l.values, 0, l.values[0]/2)
	}
	if last := len(l.values) - 1; l.quantiles[last] < 1 {
		l.quantiles, l.values = append(l.quantiles, 1), append(l.values, 2*l.values[last])
	}
	return nil
}

// quantileOf reads min, max, p50, p99, p999: what stands behind the p are the digits behind "0.".
func quantileOf(name string) (float64, error) {
	switch name {
	case "min":
		return 0, nil
	case "max":
		return 1, nil
	}
	digits, ok := strings.CutPrefix(name, "p")
	if !ok || digits == "" {
		return 0, fmt.Errorf("%q is no quantile", name)
	}
	return strconv.ParseFloat("0."+digits, 64)
}
