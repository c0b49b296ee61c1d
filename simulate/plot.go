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
			plotLeft-5, y(v)+4, strconv.FormatFloat(v, 'g', 4, 64)+p.unit)
	}
	for k := range 5 {
		at := p.end / 4 * time.Duration(k)
		anchor := "middle"
		if k == 4 {
			anchor = "end"
		}
		fmt.Fprintf(&b, "<text x=%.1f y=%d text-anchor=%s>%s</text>\n", p.x(at), plotHeight-6, anchor, at)
	}
	for i, l := range p.lines {
		fmt.Fprintf(&b, "<polyline stroke=\"%s\" points=\"", colour(i))
		for k, at := range l.at {
			fmt.Fprintf(&b, "%.1f,%.1f ", p.x(at), y(l.y[k]))
		}
		fmt.Fprintf(&b, "\"><title>%s</title></polyline>\n", html.EscapeString(l.name))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
