package simulate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Expectation is what a scenario must show: FIGURE OP VALUE, or FIGURE OP FACTOR * FIGURE. A figure is
// [VARIANT.]NAME[(WHAT)][@FROM-TO], as in adaptive.p99(app)@30s-60s; WHAT is a traffic, and of requests, evenness a class of
// nodes.
type Expectation struct {
	Text  string
	left  figure
	op    string
	value float64 // or the factor of right
	right *figure
}

// Check is how an expectation came out.
type Check struct {
	Text  string `json:"text"`
	Met   bool   `json:"met"`
	Found string `json:"found"` // the figures
}

type figure struct {
	variant, name, what string
	from, to            time.Duration // to 0: the end
}

// The figures. Those of nodes take a class, the others a traffic.
func figureNames() []string {
	return []string{"calls", "success", "failed", "stood_in", "attempts", "load", "p50", "p90", "p99", "p999", "max", "requests", "evenness"}
}

func ofNodes(name string) bool { return name == "requests" || name == "evenness" }

func ofTime(name string) bool { return name[0] == 'p' || name == "max" }

func parseExpectation(text string) (*Expectation, error) {
	words := strings.Fields(text)
	if len(words) != 3 && len(words) != 5 || len(words) == 5 && words[3] != "*" {
		return nil, errors.New("FIGURE OP VALUE is expected, or FIGURE OP FACTOR * FIGURE")
	}
	e := &Expectation{Text: text, op: words[1]}
	if !slices.Contains([]string{"<=", ">=", "==", "<", ">"}, e.op) {
		return nil, fmt.Errorf("%q is none of <= >= == < >", e.op)
	}
	var err error
	if e.left, err = parseFigure(words[0]); err != nil {
		return nil, err
	}
	if e.value, err = parseValue(words[2]); err != nil {
		return nil, err
	}
	if len(words) == 5 {
		right, err := parseFigure(words[4])
		if err != nil {
			return nil, err
		}
		e.right = &right
	}
	return e, nil
}

// parseValue reads a number, a share or a time, which is in seconds.
func parseValue(text string) (float64, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d.Seconds(), nil
	}
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no number, share or time", text)
	}
	if percent {
		v /= 100
	}
	return v, nil
}

func parseFigure(text string) (f figure, err error) {
	text, window, windowed := strings.Cut(text, "@")
	if windowed {
		from, to, ok := strings.Cut(window, "-")
		if f.from, err = time.ParseDuration(from); err != nil {
			return f, err
		}
		if ok && to != "" {
			if f.to, err = time.ParseDuration(to); err != nil {
				return f, err
			}
		}
	}
	if i := strings.IndexByte(text, '('); i >= 0 && strings.HasSuffix(text, ")") {
		text, f.what = text[:i], text[i+1:len(text)-1]
	}
	if variant, name, ok := strings.Cut(text, "."); ok {
		f.variant, text = variant, name
	}
	f.name = text
	if !slices.Contains(figureNames(), f.name) {
		return f, fmt.Errorf("%q is no figure; there is: %s", f.name, strings.Join(figureNames(), " "))
	}
	return f, nil
}

// known says what an expectation names that is not part of the scenario.
func (e *Expectation) known(s *Scenario) error {
	figures := []figure{e.left}
	if e.right != nil {
		figures = append(figures, *e.right)
	}
	for _, f := range figures {
		if f.from%s.step != 0 || f.to%s.step != 0 && f.to != s.Duration {
			return fmt.Errorf("its times are no multiples of %s, which is one step: say another step", s.step)
		}
		if f.variant != "" && !slices.ContainsFunc(s.Variants, func(v *Variant) bool { return v.Name == f.variant }) {
			return fmt.Errorf("there is no variant %q", f.variant)
		}
		found := f.what == ""
		if ofNodes(f.name) {
			for _, name := range s.names {
				found = found || slices.ContainsFunc(s.World[name].Nodes, func(c Class) bool { return c.Name == f.what })
			}
		} else {
			found = found || slices.ContainsFunc(s.Traffic, func(t Traffic) bool { return t.Name == f.what })
		}
		if !found {
			return fmt.Errorf("there is no %q", f.what)
		}
	}
	return nil
}

// check compares, in the variant that is named or else in each.
func (e *Expectation) check(r *Result) Check {
	c := Check{Text: e.Text, Met: true}
	var found []string
	for _, v := range r.Variants {
		if e.left.variant != "" && v.Name != e.left.variant {
			continue
		}
		left := e.left.in(r, v)
		bound, text := e.value, e.left.text(left)
		if e.right != nil {
			other := v
			if e.right.variant != "" {
				other = r.variant(e.right.variant)
			}
			right := e.right.in(r, other)
			bound *= right
			text += " against " + e.right.text(right)
		}
		c.Met = c.Met && holds(left, e.op, bound)
		if e.left.variant == "" && len(r.Variants) > 1 {
			text = v.Name + ": " + text
		}
		found = append(found, text)
	}
	c.Found = strings.Join(found, ", ")
	return c
}

func holds(a float64, op string, b float64) bool {
	const close = 1e-9 // 0.1 and 10 % are the same
	switch op {
	case "<=":
		return a <= b+close
	case ">=":
		return a >= b-close
	case "<":
		return a < b
	case ">":
		return a > b
	}
	return a >= b-close && a <= b+close
}

// in is the figure of one variant.
func (f *figure) in(r *Result, v *Outcome) float64 {
	s := v.sim.scenario
	w := window{flow: -1, from: int(f.from / s.step), to: s.steps()}
	if f.to > 0 {
		w.to = min(w.to, int(f.to/s.step))
	}
	if ofNodes(f.name) {
		return nodeFigure(f.name, requests(v.sim, f.what, w.from, w.to))
	}
	for i := range s.Traffic {
		if f.what != "" && s.Traffic[i].Name == f.what {
			w.flow = i
		}
	}
	n := v.sim.record.figures(w)
	switch f.name {
	case "calls":
		return float64(n.Calls)
	case "failed":
		return float64(n.Calls - n.Good)
	case "stood_in":
		return float64(n.StoodIn)
	case "success":
		return n.Success
	case "attempts":
		return float64(n.Attempts)
	case "load":
		return n.Load
	}
	return map[string]time.Duration{"p50": n.P50, "p90": n.P90, "p99": n.P99, "p999": n.P999, "max": n.Max}[f.name].Seconds()
}

// nodeFigure: evenness is what the busiest got, as a multiple of what the least busy got.
func nodeFigure(name string, list []int) float64 {
	sum := 0
	for _, n := range list {
		sum += n
	}
	if name == "requests" {
		return float64(sum)
	}
	if len(list) == 0 || slices.Min(list) == 0 {
		return float64(sum)
	}
	return float64(slices.Max(list)) / float64(slices.Min(list))
}

func (f *figure) text(v float64) string {
	switch {
	case ofTime(f.name):
		return rounded(time.Duration(v * float64(time.Second)))
	case f.name == "success":
		return percent(v)
	}
	return strconv.FormatFloat(math.Round(v*1e4)/1e4, 'f', -1, 64)
}

func percent(v float64) string { return strconv.FormatFloat(100*v, 'f', 2, 64) + "%" }

// rounded writes a time with three digits.
func rounded(d time.Duration) string {
	unit := time.Microsecond
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}
