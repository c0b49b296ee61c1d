package simulate

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"time"
)

// plot is some figures over time.
type plot struct {
	title, unit string
	end         time.Duration
	full        bool // the axis goes from 0 to 100
	lines       []line
	faults      [][2]time.Duration // when something is wrong
	changes     []time.Duration
}

type line struct {
	name string
	at   []time.Duration
	y    []float64
}

// The picture, in the units of the SVG.
const (
	plotWidth, plotHeight = 420, 190
	plotLeft, plotRight   = 46, 8
	plotTop, plotBottom   = 26, 22
)

// colour tells variants apart, for people who are colour-blind too (Okabe and Ito).
func colour(i int) string {
	list := []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9"}
	return list[i%len(list)]
}

// speaks reports whether a plot shows more than that nothing happened.
func (p *plot) speaks() bool {
	first := p.lines[0].y
	for _, l := range p.lines {
		for _, y := range l.y {
			if y != first[0] {
				return true
			}
		}
	}
	return false
}

// bounds are the lowest and the highest value of the axis, and the step between two lines of the grid.
func (p *plot) bounds() (low, high, step float64) {
	if p.full {
		return 0, 100, 25
	}
	for _, l := range p.lines {
		for _, y := range l.y {
			high = max(high, y)
		}
	}
	if high <= 0 {
		return 0, 1, 0.25
	}
	step = math.Pow(10, math.Floor(math.Log10(high)))
	switch {
	case high/step < 2:
		step /= 4
	case high/step < 5:
		step /= 2
	}
	return 0, step * math.Ceil(high/step*1.02), step
}

func (p *plot) x(at time.Duration) float64 {
	return plotLeft + float64(at)/float64(p.end)*(plotWidth-plotLeft-plotRight)
}

func (p *plot) svg() string {
	low, high, step := p.bounds()
	y := func(v float64) float64 {
		return plotHeight - plotBottom - (v-low)/(high-low)*(plotHeight-plotTop-plotBottom)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<svg viewBox=\"0 0 %d %d\" role=img><title>%s</title><text class=t x=0 y=14>%s</text>\n", plotWidth, plotHeight,
		html.EscapeString(p.title), html.EscapeString(p.title))
	for v := low; v <= high+step/2; v += step {
		fmt.Fprintf(&b, "<line class=g x1=%d x2=%d y1=%.1f y2=%.1f /><text x=%d y=%.1f text-anchor=end>%s</text>\n", plotLeft, plotWidth-plotRight, y(v), y(v),
			plotLeft-5, y(v)+4, p.label(v))
	}
	p.time(&b)
	for i, l := range p.lines {
		fmt.Fprintf(&b, "<polyline stroke=\"%s\" stroke-width=%.1f points=\"", colour(i), 1.6+1.2*float64(len(p.lines)-1-i))
		for k, at := range l.at {
			fmt.Fprintf(&b, "%.1f,%.1f ", p.x(at), y(l.y[k]))
		}
		fmt.Fprintf(&b, "\"><title>%s</title></polyline>\n", html.EscapeString(l.name))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// time draws what is along the axis: round times, faults and changes.
func (p *plot) time(b *strings.Builder) {
	for _, f := range p.faults {
		fmt.Fprintf(b, "<rect class=f x=%.1f y=%d width=%.1f height=%d />\n", p.x(f[0]), plotTop, p.x(f[1])-p.x(f[0]), plotHeight-plotTop-plotBottom)
	}
	for _, at := range p.changes {
		fmt.Fprintf(b, "<line class=c x1=%.1f x2=%.1f y1=%d y2=%d />\n", p.x(at), p.x(at), plotTop, plotHeight-plotBottom)
	}
	step := tickEvery(p.end)
	for at := time.Duration(0); at <= p.end; at += step {
		anchor := "middle"
		if p.end-at < step/4 {
			anchor = "end"
		}
		fmt.Fprintf(b, "<text x=%.1f y=%d text-anchor=%s>%s</text>\n", p.x(at), plotHeight-6, anchor, shortTime(at))
	}
}

// tickEvery is a round time that gives at most six ticks.
func tickEvery(end time.Duration) time.Duration {
	for unit := time.Second / 10; unit < time.Minute; unit *= 10 {
		for _, k := range []time.Duration{1, 2, 5} {
			if step := k * unit; step < 50*time.Second && end/step <= 6 {
				return step
			}
		}
	}
	step := 30 * time.Second
	for end/step > 6 {
		step *= 2
	}
	return step
}

// shortTime writes 1m0s as 1m.
func shortTime(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// label writes a value of the axis.
func (p *plot) label(v float64) string {
	unit := p.unit
	if unit == "ms" && v >= 1000 {
		v, unit = v/1000, "s"
	}
	return strconv.FormatFloat(v, 'g', 4, 64) + unit
}
