package explain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

// Text writes the explanation for a person. now is for "in 8s".
func (e *Explanation) Text(now time.Time) string {
	p := &page{now: now}
	p.request(e)
	p.service(e)
	p.sent(e)
	p.policy(e.Policy)
	p.plan(e)
	if g := e.Grey; g != nil {
		p.line("grey", "%s: %s  (%s)", g.Name, g.Why, g.From)
	}
	for i := range e.Targets {
		p.target(e, i)
	}
	p.outcome(&e.Outcome)
	return p.String()
}

// page is a text in the making: a word at the left, what it means beside it.
type page struct {
	strings.Builder
	now time.Time
}

const column = 11 // where the right side begins

// line writes one line; word is empty where the line goes on with what is above.
func (p *page) line(word, format string, args ...any) {
	text := strings.TrimRight(fmt.Sprintf(format, args...), " ")
	fmt.Fprintf(p, "%-*s%s\n", column, word, text)
}

// table writes rows in columns below each other.
func (p *page) table(word string, rows [][]string) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 1, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	_ = w.Flush() // a builder takes everything
	for line := range strings.Lines(b.String()) {
		p.line(word, "%s", strings.TrimSuffix(line, "\n"))
		word = ""
	}
}

func (p *page) request(e *Explanation) {
	r := &e.Request
	target := r.Path
	if r.Query != "" {
		target += "?" + r.Query
	}
	p.line("request", "%s %s%s  (%s)", r.Method, r.Host, target, r.Direction)
	if r.AsSent != "" {
		p.line("", "path normalised from %s", r.AsSent)
	}
	if r.Caller != "" {
		p.line("", "caller %s", r.Caller)
	}
	if r.RequestID != "" {
		p.line("", "request id %s", r.RequestID)
	}
}

func (p *page) service(e *Explanation) {
	s := e.Service
	if s == nil {
		return
	}
	p.line("service", "%s, by %s  (protocol %s, %s)", s.Name, s.Why, s.Protocol, s.From)
	if e.Route == nil {
		return
	}
	rows := make([][]string, 0, len(e.Passed)+1)
	for _, r := range e.Passed {
		misses := "does not fit: " + r.Misses
		if r.Share > 0 {
			misses = "takes " + share(r.Share) + " of such requests, by request id"
		}
		rows = append(rows, []string{strconv.Itoa(r.Index), r.Name, named(r.Name, r.Match), misses})
	}
	if r := e.Route; r.Index >= 0 {
		rows = append(rows, []string{strconv.Itoa(r.Index), r.Name, named(r.Name, r.Match), "fits  (" + r.From + ")"})
	} else if len(rows) > 0 {
		rows = append(rows, []string{"-", "none fits", "", "the service as a whole"})
	}
	if len(rows) == 0 {
		rows = [][]string{{"none: the service as a whole"}}
	}
	p.table("route", rows)
}

// named is the text of a match, where it is not the route's name already.
func named(name, match string) string {
	if name == match {
		return ""
	}
	return match
}

func (p *page) sent(e *Explanation) {
	s := e.Sent
	if s == nil {
		return
	}
	if !s.Changed {
		p.line("sent as", "it is")
		return
	}
	p.line("sent as", "%s %s%s", e.Request.Method, s.Host, s.Path)
	for _, h := range s.Set {
		p.line("", "with %s: %s", h.Name, h.Value)
	}
	for _, name := range s.Removed {
		p.line("", "without %s", name)
	}
}

func (p *page) policy(fields []Field) {
	var written, builtIn [][]string // what somebody wrote comes first
	for _, f := range fields {
		switch {
		case f.From == "not set":
		case f.Layer == "":
			builtIn = append(builtIn, []string{f.Name, f.Value, f.From})
		default:
			written = append(written, []string{f.Name, f.Value, f.From + "  (" + f.Layer + ")"})
		}
	}
	if rows := append(written, builtIn...); len(rows) > 0 {
		p.table("policy", rows)
	}
}

func (p *page) plan(e *Explanation) {
	v := e.Plan
	if v == nil {
		return
	}
	tries := "1 try"
	if v.Attempts > 1 {
		tries = "up to " + strconv.Itoa(v.Attempts) + " tries"
	}
	if v.PerTry != "" {
		tries += " of " + v.PerTry + " each"
	}
	p.line("plan", "%s within %s", tries, v.Timeout)
	if v.Attempts > 1 {
		again := "only what was not sent is tried again"
		if v.Idempotent {
			again = "what was sent may be tried again"
		}
		p.line("", "%s (%s)", again, v.Why)
	}
	p.line("now", "breaker %s, %d in flight, %d waiting", v.Breaker, v.InFlight, v.Waiting)
}

func (p *page) target(e *Explanation, i int) {
	t := &e.Targets[i]
	name := t.Service + labelText(t.Labels)
	if len(e.Targets) > 1 {
		name = fmt.Sprintf("%s, %s of the requests", name, share(t.Share))
		switch {
		case !t.Chosen:
			name += ": not this one"
		case e.Request.RequestID != "":
			name += ": this one, by request id"
		}
	}
	if t.Fallback {
		name += "  (no endpoint carries these labels: all are meant)"
	}
	if t.GreyOnly != "" {
		name += "  (the endpoints of the grey release " + t.GreyOnly + ")"
	}
	p.line("target", "%s", name)
	if !t.Chosen {
		return
	}
	for _, w := range t.Degraded {
		p.line("", "%s", w)
	}
	for _, k := range t.Kept {
		p.line("", "kept for the grey release %s: %s", k.Grey, plural(k.Endpoints, "endpoint"))
	}
	for _, s := range t.Switches {
		p.line("", "%s  (%s)", s.text(), s.From)
	}
	if s := t.Subset; s != nil {
		p.line("", "uses %d of %d endpoints  (%s)", s.Used, s.Of, s.Reason)
	}
	for _, s := range t.Sources {
		if s.Error != "" || !s.Answered {
			p.line("", "source %s: %s", s.Name, sourceText(s))
		}
		if s.Protection != nil {
			p.line("", "source %s: %s", s.Name, protectionText(s.Protection))
		}
	}
	rows := make([][]string, 0, len(t.Endpoints))
	for i := range t.Endpoints {
		rows = append(rows, p.endpoint(&t.Endpoints[i]))
	}
	for i := range t.LeftOut {
		rows = append(rows, []string{t.LeftOut[i].Address, "left out: " + doubtText(&t.LeftOut[i])})
	}
	p.table("", rows)
	rows = nil
	for i := range t.Rules {
		rows = append(rows, ruleRow(&t.Rules[i]))
	}
	p.table("rules", rows)
	if t.Next != nil {
		p.line("next", "%s: %s", t.Next.Rule, t.Next.Text)
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// protectionText says why a list is not used as it is.
func protectionText(v *Protection) string {
	s := fmt.Sprintf("%s: %d listed of %d known, since %s", v.Kind, v.Listed, v.Known, v.Since.Format(time.TimeOnly))
	if v.Until != nil {
		s += ", until " + v.Until.Format(time.TimeOnly)
	}
	return s
}

// doubtText says why an endpoint is used, or not, that is not just listed.
func doubtText(d *Doubt) string {
	s := d.Why + " (" + d.Source + ")"
	if d.Check != "" {
		s += ", direct check: " + d.Check
	}
	if d.Error != "" {
		s += " (" + d.Error + ")"
	}
	return s
}

func sourceText(s Source) string {
	switch {
	case !s.Answered && s.Error == "":
		return "has not answered yet"
	case !s.Answered:
		return "has not answered: " + s.Error
	}
	return "the last good answer, since " + s.Error
}

// endpoint writes one row.
func (p *page) endpoint(e *Endpoint) []string {
	facts := []string{"weight " + strconv.Itoa(e.Weight)}
	for _, f := range [][2]string{{"group", e.Group}, {"zone", e.Zone}, {"region", e.Region}, {"version", e.Version}} {
		if f[1] != "" {
			facts = append(facts, f[0]+" "+f[1])
		}
	}
	for _, k := range slices.Sorted(maps.Keys(e.Labels)) {
		facts = append(facts, k+"="+e.Labels[k])
	}
	if e.Near {
		facts = append(facts, "near")
	}
	state := e.State
	if e.Reason != "" {
		state += ": " + e.Reason
		if e.Until != nil {
			state += ", " + p.in(*e.Until) + " at the earliest"
		}
	}
	if e.Asks != nil {
		if !strings.Contains(e.State, "breaker_open") {
			state += ", breaker " + e.Breaker
		}
		if p.now.Before(*e.Asks) {
			state += ", asked again " + p.in(*e.Asks)
		}
	}
	if e.Slow {
		state += ", slow"
	}
	if e.Warmth > 0 {
		state += ", warming up: " + share(float64(int(e.Warmth*100))/100)
	}
	if e.Doubt != nil {
		state += "; " + doubtText(e.Doubt)
	}
	load := strconv.FormatInt(e.InFlight, 10) + " in flight"
	if e.Latency != "" {
		load += ", latency " + e.Latency
	}
	return []string{e.Address, state, load, strings.Join(facts, " "), e.From}
}

// in says how far away a time is.
func (p *page) in(t time.Time) string {
	d := t.Sub(p.now)
	if d <= 0 {
		return "after a probe"
	}
	return "in " + config.Span(d.Round(time.Second))
}

func (p *page) outcome(o *Outcome) {
	switch o.Kind {
	case Refused:
		p.line("outcome", "refused with %d %s: %s", o.Status, o.Reason, o.Detail)
	case Answered:
		p.line("outcome", "%s", answeredText(o))
		if o.Location != "" && o.Status != 0 {
			p.line("", "location: %s", o.Location)
		}
		for _, h := range o.Headers {
			p.line("", "%s: %s", h.Name, h.Value)
		}
		for line := range strings.Lines(o.Body) {
			p.line("", "| %s", strings.TrimRight(line, "\r\n"))
		}
	default:
		p.line("outcome", "sent on")
	}
}

// answeredText says what answers in place of an endpoint, and why.
func answeredText(o *Outcome) string {
	s := "answered here"
	switch {
	case o.Status != 0:
		s += " with " + strconv.Itoa(o.Status)
	case o.Location != "":
		s = "answered by " + o.Location
	}
	if o.Reason != "" {
		if o.Status == 0 {
			s += ","
		}
		s += " " + o.Reason + ": " + o.Detail
	}
	return s
}
