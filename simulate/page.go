package simulate

import (
	"fmt"
	"html"
	"strings"
	"time"
)

// Page is a result as a page of its own: it needs no other file and no network.
func (r *Result) Page() string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\n<title>%s</title><style>%s</style>\n",
		html.EscapeString(r.Name), pageStyle)
	fmt.Fprintf(&b, "<h1>%s</h1><p class=sub>%s · %s of virtual time · %s · seed %d</p>\n", html.EscapeString(r.Name),
		html.EscapeString(strings.Join(r.Story, ", ")), r.Duration, several(r.Sidecars, "sidecar"), r.Seed)
	r.verdict(&b)
	for _, p := range strings.Split(r.About, "\n\n") {
		fmt.Fprintf(&b, "<p>%s</p>\n", html.EscapeString(p))
	}
	r.checksTable(&b)
	r.trafficTable(&b)
	b.WriteString("<h2>Over time</h2><p class=sub>All traffic together, one line a variant; the table above has each traffic by itself. Where lines lie on each other, the first is the wider one. Across: virtual time.</p>\n")
	r.legend(&b)
	b.WriteString("<div class=plots>\n")
	for _, p := range r.plots() {
		b.WriteString(p.svg())
	}
	b.WriteString("</div>\n")
	r.nodesTable(&b)
	r.eventsTable(&b)
	return b.String()
}

func several(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// verdict says in one line whether the scenario showed what it must.
func (r *Result) verdict(b *strings.Builder) {
	missed := 0
	for _, c := range r.Checks {
		if !c.Met {
			missed++
		}
	}
	switch {
	case len(r.Checks) == 0:
	case missed == 0:
		fmt.Fprintf(b, "<p class=\"verdict met\"><b>✓ All that it must show came true</b> (%s)</p>\n", several(len(r.Checks), "expectation"))
	default:
		fmt.Fprintf(b, "<p class=\"verdict missed\"><b>✗ %d of %s did not come true</b></p>\n", missed, several(len(r.Checks), "expectation"))
	}
}

// plots are the figures over time, one line a variant.
func (r *Result) plots() []*plot {
	of := func(title, unit string, value func(*Step) float64) *plot {
		p := &plot{title: title, unit: unit, end: r.Duration, faults: r.faults, changes: r.changes}
		for _, v := range r.Variants {
			l := line{name: v.Name}
			for i := range v.Steps {
				st := &v.Steps[i]
				l.at, l.y = append(l.at, st.At), append(l.y, value(st))
			}
			p.lines = append(p.lines, l)
		}
		return p
	}
	list := []*plot{
		of("Success", "%", func(s *Step) float64 {
			if s.Calls == 0 {
				return 100
			}
			return 100 * s.Success
		}),
		of("Attempts per call", "", func(s *Step) float64 { return s.Load }),
		of("Half of the calls take at most (P50)", "ms", func(s *Step) float64 { return millis(s.P50) }),
		of("99 of 100 calls take at most (P99)", "ms", func(s *Step) float64 { return millis(s.P99) }),
		of("999 of 1000 calls take at most (P999)", "ms", func(s *Step) float64 { return millis(s.P999) }),
		of("Breakers that are not closed", "%", func(s *Step) float64 { return 100 * s.BreakerOpen }),
		of("Calls that a switch or a fallback answered", "%", func(s *Step) float64 { return 100 * s.StoodIn }),
		of("Switches that are on", "%", func(s *Step) float64 { return 100 * s.SwitchedOn }),
		of("Endpoints kept out", "%", func(s *Step) float64 { return 100 * s.Unusable }),
		of("Endpoints that a sidecar knows", "", func(s *Step) float64 { return s.Known }),
	}
	for _, p := range list {
		p.full = p.unit == "%"
	}
	for i, n := range r.Variants[0].Nodes {
		nodes := float64(max(1, n.Nodes))
		list = append(list, of("Requests a second at each node of "+n.Class, "/s", func(s *Step) float64 {
			return float64(s.Requests[i]) / nodes / r.step.Seconds()
		}))
	}
	kept := list[:0]
	for _, p := range list {
		if p.speaks() {
			kept = append(kept, p)
		}
	}
	return kept
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (r *Result) legend(b *strings.Builder) {
	b.WriteString("<p class=legend>")
	for i, v := range r.Variants {
		fmt.Fprintf(b, "<span><i style=\"background:%s\"></i>%s</span>", colour(i), html.EscapeString(v.Name))
	}
	if len(r.faults) > 0 {
		b.WriteString("<span><i class=fault></i>a fault lasts</span>")
	}
	if len(r.changes) > 0 {
		b.WriteString("<span><i class=change></i>a change reaches the sidecars</span>")
	}
	b.WriteString("</p>\n")
}

func (r *Result) checksTable(b *strings.Builder) {
	if len(r.Checks) == 0 {
		return
	}
	b.WriteString("<h2>What it must show</h2>" + notation + "<div class=wide><table><tr><th></th><th>expected</th><th>found</th></tr>\n")
	for _, c := range r.Checks {
		class, mark := "met", "✓"
		if !c.Met {
			class, mark = "missed", "✗"
		}
		fmt.Fprintf(b, "<tr class=%s><td>%s</td><td><code>%s</code></td><td>%s</td></tr>\n", class, mark, html.EscapeString(c.Text), html.EscapeString(c.Found))
	}
	b.WriteString("</table></div>\n")
}

// notation explains how expectations are written.
const notation = "<p class=sub>Read <code>variant.figure(traffic)@from-to</code>: the figure of the calls that began in that time, by default of all. " +
	"load: attempts per call; stood_in: calls that a switch or a fallback answered; requests: what reached the nodes.</p>\n"

func (r *Result) trafficTable(b *strings.Builder) {
	b.WriteString("<h2>Calls</h2><div class=wide><table><tr><th>variant</th><th>traffic</th><th>calls</th><th>success</th><th>stood in</th><th>attempts per call</th>" +
		"<th>P50</th><th>P90</th><th>P99</th><th>P999</th><th>longest</th><th>failed because</th></tr>\n")
	for i, v := range r.Variants {
		for _, f := range v.Traffic {
			fmt.Fprintf(b, "<tr><td><i style=\"background:%s\"></i>%s</td><td>%s</td><td>%d</td><td>%s</td><td>%d</td><td>%.3f</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
				colour(i), html.EscapeString(v.Name), html.EscapeString(f.Name), f.Calls, percent(f.Success), f.StoodIn, f.Load, rounded(f.P50),
				rounded(f.P90), rounded(f.P99), rounded(f.P999), rounded(f.Max), html.EscapeString(counted(f.Failed)))
		}
	}
	b.WriteString("</table></div>\n")
}

func (r *Result) nodesTable(b *strings.Builder) {
	b.WriteString("<h2>Requests that reached the nodes</h2><div class=wide><table><tr><th>variant</th><th>class</th><th>nodes</th><th>requests</th><th>of the least busy</th><th>of the busiest</th></tr>\n")
	for i, v := range r.Variants {
		for _, n := range v.Nodes {
			fmt.Fprintf(b, "<tr><td><i style=\"background:%s\"></i>%s</td><td>%s</td><td>%d</td><td>%d</td><td>%d</td><td>%d</td></tr>\n",
				colour(i), html.EscapeString(v.Name), html.EscapeString(n.Class), n.Nodes, n.Requests, n.Least, n.Most)
		}
	}
	b.WriteString("</table></div>\n")
}

// shownEvents is how many events of a variant the page lists.
const shownEvents = 20

func (r *Result) eventsTable(b *strings.Builder) {
	for _, v := range r.Variants {
		if len(v.Events) == 0 {
			continue
		}
		fmt.Fprintf(b, "<h2>What the sidecars decided: %s</h2><p>%s", html.EscapeString(v.Name), html.EscapeString(counted(v.Counts)))
		if len(v.Events) > shownEvents {
			fmt.Fprintf(b, "; the first %d:", shownEvents)
		}
		b.WriteString("</p><div class=wide><table><tr><th>at</th><th>sidecar</th><th>event</th><th>service</th><th>endpoint</th><th>by</th></tr>\n")
		for _, e := range v.Events[:min(shownEvents, len(v.Events))] {
			fmt.Fprintf(b, "<tr><td>%s</td><td>%d</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n", e.At.Round(time.Millisecond), e.Sidecar,
				html.EscapeString(e.Kind), html.EscapeString(e.Service), html.EscapeString(e.Endpoint), html.EscapeString(e.Detail))
		}
		b.WriteString("</table></div>\n")
	}
}

const pageStyle = `
:root{color-scheme:light dark;--line:#8884;--faint:#888}
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem}
h1{margin:0;font-size:1.6rem}h2{font-size:1.1rem;margin:1.6rem 0 .4rem}.sub{color:var(--faint);margin:.2rem 0 1rem}
p{max-width:52rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid var(--line)}
th{font-weight:600;color:var(--faint)}
i{display:inline-block;width:.7em;height:.7em;border-radius:2px;margin-right:.4em}
.met td:first-child{color:#188038}.missed td{color:#d93025;font-weight:600}
.legend{position:sticky;top:0;max-width:none;background:Canvas;padding:.4rem 0;margin:0}.legend span{margin-right:1.4em;white-space:nowrap}
.verdict.met b{color:#188038}.verdict.missed b{color:#d93025}i.fault{background:#d9302533}i.change{width:0;border-radius:0;border-left:2px dashed var(--faint)}
.wide{overflow-x:auto}.wide td:first-child,.wide th,.wide td{white-space:nowrap}
@media(max-width:40rem){code{white-space:normal}body{margin:1rem auto}}
@media(prefers-color-scheme:dark){.verdict.met b,.met td:first-child{color:#81c995}.verdict.missed b,.missed td{color:#f28b82}}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(22rem,100%),1fr));gap:1rem}
svg{width:100%;height:auto;display:block}svg text{font:11px system-ui,sans-serif;fill:var(--faint)}svg .t{font-size:13px;font-weight:600;fill:currentColor}
svg .g{stroke:var(--line);stroke-width:1}svg .f{fill:#d93025;opacity:.1}svg .c{stroke:var(--faint);stroke-dasharray:3 3}svg polyline{fill:none;stroke-linejoin:round}
`
