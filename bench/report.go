//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// base is the peer that ratios refer to where a table names no others.
const base = "nginx"

// Which end of a column is good.
const (
	low     = "low"
	high    = "high"
	neither = ""
)

// column is one quantity of a table.
type column struct {
	Name   string `json:"name"`
	Better string `json:"better"`
}

// table is what one row found: values of each round by peer and column.
type table struct {
	Name    string                            `json:"name"`
	Title   string                            `json:"title"`
	Columns []column                          `json:"columns"`
	Bases   []string                          `json:"bases"` // what ratios refer to
	Order   []string                          `json:"order"`
	Values  map[string]map[string][]float64   `json:"values"`
	Medians map[string]map[string]measurement `json:"medians"`
	Notes   []string                          `json:"notes,omitempty"`

	turn  int                         // of what is added now; 0: values of a peer are numbered as they come
	turns map[string]map[string][]int // the turn of each value
}

// measurement is a median and how it compares.
type measurement struct {
	Median float64            `json:"median"`
	Ratios map[string]float64 `json:"ratios,omitempty"` // by base
}

func newTable(name, title string, columns ...column) *table {
	return &table{Name: name, Title: title, Columns: columns, Bases: []string{base}, Values: map[string]map[string][]float64{}, turns: map[string]map[string][]int{}}
}

// add notes one round's values of the first columns.
func (t *table) add(peer string, values ...float64) { t.addFrom(peer, 0, values...) }

// addFrom notes one round's values from a column on.
func (t *table) addFrom(peer string, first int, values ...float64) {
	if t.Values[peer] == nil {
		t.Values[peer], t.turns[peer] = map[string][]float64{}, map[string][]int{}
		t.Order = append(t.Order, peer)
	}
	for i, v := range values {
		name := t.Columns[first+i].Name
		t.Values[peer][name] = append(t.Values[peer][name], v)
		turn := t.turn
		if turn == 0 {
			turn = len(t.Values[peer][name])
		}
		t.turns[peer][name] = append(t.turns[peer][name], turn)
	}
}

func (t *table) note(format string, args ...any) {
	t.Notes = append(t.Notes, fmt.Sprintf(format, args...))
	fmt.Fprintln(os.Stderr, "  "+t.Notes[len(t.Notes)-1])
}

// median returns the median of a peer's values; of no table it has none.
func (t *table) median(peer, column string) (float64, bool) {
	if t == nil || len(t.Values[peer][column]) == 0 {
		return 0, false
	}
	return median(t.Values[peer][column]), true
}

// median is the middle of some values, or between the two.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// ratio is the median of what a peer's values are to those of a base in the same turns.
func (t *table) ratio(peer, base, column string) (float64, bool) {
	of := map[int]float64{}
	for i, turn := range t.turns[base][column] {
		of[turn] = t.Values[base][column][i]
	}
	var ratios []float64
	for i, turn := range t.turns[peer][column] {
		if b, ok := of[turn]; ok && b > 0 {
			ratios = append(ratios, t.Values[peer][column][i]/b)
		}
	}
	if len(ratios) == 0 {
		return 0, false
	}
	return median(ratios), true
}

// measure returns the median with its ratios to those of the bases.
func (t *table) measure(peer string, c column) (m measurement, ok bool) {
	if m.Median, ok = t.median(peer, c.Name); !ok {
		return m, false
	}
	for _, base := range t.Bases {
		if r, has := t.ratio(peer, base, c.Name); has && peer != "direct" && c.Better != neither {
			if m.Ratios == nil {
				m.Ratios = map[string]float64{}
			}
			m.Ratios[base] = r
		}
	}
	return m, true
}

// markdown renders the medians, with the medians of ratios to the bases in brackets.
func (t *table) markdown() string {
	var s strings.Builder
	fmt.Fprintf(&s, "\n## %s: %s\n\n", t.Name, t.Title)
	if !slices.Equal(t.Bases, []string{base}) {
		fmt.Fprintf(&s, "In brackets: the ratio to %s.\n\n", strings.Join(t.Bases, ", to "))
	}
	s.WriteString("|  |")
	for _, c := range t.Columns {
		fmt.Fprintf(&s, " %s |", c.Name)
	}
	s.WriteString("\n|---|" + strings.Repeat("---|", len(t.Columns)) + "\n")
	for _, peer := range t.Order {
		fmt.Fprintf(&s, "| %s |", peer)
		for _, c := range t.Columns {
			m, ok := t.measure(peer, c)
			switch {
			case !ok:
				s.WriteString(" – |")
			case len(m.Ratios) > 0:
				fmt.Fprintf(&s, " %s (%s) |", digits(m.Median), t.ratios(m))
			default:
				fmt.Fprintf(&s, " %s |", digits(m.Median))
			}
		}
		s.WriteString("\n")
	}
	for _, n := range t.Notes {
		fmt.Fprintf(&s, "\nNote: %s\n", n)
	}
	return s.String()
}

// ratios prints the ratios of a measurement in the order of the bases.
func (t *table) ratios(m measurement) string {
	var all []string
	for _, base := range t.Bases {
		if r, ok := m.Ratios[base]; ok {
			all = append(all, fmt.Sprintf("%.2f", r))
		} else {
			all = append(all, "–")
		}
	}
	return strings.Join(all, ", ")
}

// digits prints three significant digits, or whole numbers.
func digits(v float64) string {
	switch {
	case v >= 100 || v == 0:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// report is the whole finding.
type report struct {
	Command  string            `json:"command"`
	Date     string            `json:"date"`
	Machine  string            `json:"machine"`
	Rounds   int               `json:"rounds"`
	Seconds  float64           `json:"seconds"`
	Versions map[string]string `json:"versions"`
	Absent   map[string]string `json:"absent"`
	Tables   []*table          `json:"tables"`
}

// newReport finds out who is here, out of the wanted peers or all, and sets b.peers.
func newReport(ctx context.Context, b *bench, wanted string) *report {
	r := &report{
		Command: strings.Join(append([]string{"go run ./bench"}, os.Args[1:]...), " "),
		Date:    time.Now().UTC().Format(time.RFC3339),
		Machine: machine(), Rounds: b.rounds, Seconds: b.seconds.Seconds(),
		Versions: map[string]string{"go": runtime.Version(), "wrk": version(ctx, "wrk", "-v"), "h2load": version(ctx, "h2load", "--version")},
		Absent:   map[string]string{},
	}
	for _, p := range allPeers(b) {
		if wanted != "" && !slices.Contains(strings.Split(wanted, ","), p.name) {
			r.Absent[p.name] = "not asked for"
			continue
		}
		if err := p.present(ctx, b); err != nil {
			r.Absent[p.name] = strings.ReplaceAll(err.Error(), b.root+"/", "")
			fmt.Fprintf(os.Stderr, "%s is absent: %v\n", p.name, err)
			continue
		}
		b.peers = append(b.peers, p)
		r.Versions[p.name] = runtime.Version()
		if p.version != nil {
			r.Versions[p.name] = version(ctx, p.binary, p.version...)
		}
	}
	return r
}

// version is the first line that a program says about itself.
func version(ctx context.Context, argv0 string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, argv0, args...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" {
			_, line, _ = strings.Cut("/"+line, "/")
			if at := strings.Index(line, "version: "); at >= 0 {
				line = line[at+len("version: "):]
			}
			return line
		}
	}
	return "unknown"
}

// machine describes where this runs, without names.
func machine() string {
	model := "unknown CPU"
	if file, err := os.Open("/proc/cpuinfo"); err == nil {
		defer func() { _ = file.Close() }()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	cores, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*")
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%s, %d cores, Linux %s, %s", model, len(cores), strings.TrimSpace(string(kernel)), runtime.GOARCH)
}

// markdown renders everything.
func (r *report) markdown() string {
	var s strings.Builder
	fmt.Fprintf(&s, "# Benchmark\n\n`%s`, %s\n\n%s\n\n", r.Command, r.Date, r.Machine)
	fmt.Fprintf(&s, "One core for the proxy, another for load and origin; %d interleaved rounds of %g s; medians, in brackets\n", r.Rounds, r.Seconds)
	s.WriteString("that of the ratios to nginx, or to what the table names, in the same turn. CPU is that of all the proxy's processes.\nAbsolute numbers move with the machine; compare within a run.\n")
	for _, list := range []struct {
		title string
		lines map[string]string
	}{{"Versions", r.Versions}, {"Absent", r.Absent}} {
		if len(list.lines) == 0 {
			continue
		}
		fmt.Fprintf(&s, "\n%s:\n\n", list.title)
		names := make([]string, 0, len(list.lines))
		for name := range list.lines {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			fmt.Fprintf(&s, "- %s: %s\n", name, list.lines[name])
		}
	}
	for _, t := range r.Tables {
		s.WriteString(t.markdown())
	}
	return s.String()
}

// write saves the report as path.md and path.json.
func (r *report) write(path string) error {
	for _, t := range r.Tables {
		t.Medians = map[string]map[string]measurement{}
		for _, peer := range t.Order {
			t.Medians[peer] = map[string]measurement{}
			for _, c := range t.Columns {
				if m, ok := t.measure(peer, c); ok {
					t.Medians[peer][c.Name] = m
				}
			}
		}
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".json", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(path+".md", []byte(r.markdown()), 0o644)
}
