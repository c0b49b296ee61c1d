package explain

import (
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/route/rules"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// Rule is what one rule did to the endpoints of a target.
type Rule struct {
	Name     string   `json:"name,omitempty"`
	Text     string   `json:"rule"`
	From     string   `json:"from"`
	Priority int      `json:"priority,omitempty"`
	Removed  []string `json:"removed"`
	Passed   bool     `json:"passed_over,omitempty"` // it would have left none, and does not say force
	Forbids  bool     `json:"forbids,omitempty"`
	Until    string   `json:"until,omitempty"`     // it acts no more from then on
	EachCall bool     `json:"each_call,omitempty"` // a script that is asked for each call: what it leaves depends on that
	Error    string   `json:"error,omitempty"`
}

// Grey is the grey release of a request.
type Grey struct {
	Name string `json:"name"`
	Why  string `json:"why"`
	From string `json:"from"`
}

// Kept says how many endpoints a grey release keeps for its own requests.
type Kept struct {
	Grey      string `json:"grey"`
	Endpoints int    `json:"endpoints"`
}

// Switch is a group switch that holds for a service.
type Switch struct {
	Group string   `json:"from_group"`
	To    []string `json:"to"`
	From  string   `json:"from"`
}

// groupSwitches are the group switches that moved calls of a service.
func groupSwitches(s *snapshot.Snapshot, svc *snapshot.Service) []Switch {
	var list []Switch
	for _, g := range svc.Switches {
		to, _ := s.Mesh.Config.Switched(svc.Name, g.Group)
		list = append(list, Switch{Group: g.Group, To: to, From: g.From.String()})
	}
	return list
}

func (s *Switch) text() string {
	return "group " + s.Group + " is switched to " + strings.Join(s.To, ", ")
}

// isGRPC tells whether rules see the request as a gRPC call.
func (q *question) isGRPC() bool {
	t, _ := q.facts.Fields.Get("content-type")
	return strings.HasPrefix(strings.ToLower(t), "application/grpc") && !strings.HasPrefix(strings.ToLower(t), "application/grpc-web")
}

// method is what rules call the request.
func (q *question) method() string {
	path := ""
	if q.isGRPC() {
		path = q.facts.Path
	}
	return q.rt.Method(path)
}

// guarded tells whether our own app refuses the caller by a rule.
func (q *question) guarded() bool {
	a := q.facts.Caller.Addr.Unmap().WithZone("")
	r := q.svc.Refuses(a, a.String(), q.method(), q.now)
	if r == nil {
		return false
	}
	q.refuse(resilience.Forbidden, resilience.Forbidden.HTTPStatus(), r.Refusal())
	return true
}

// grey finds the grey release of the request.
func (q *question) grey() *snapshot.Grey {
	if q.svc.Inbound {
		return nil
	}
	g, how := q.snap.GreyOf(&q.facts)
	switch how {
	case snapshot.MarkedHere:
		q.e.Grey = &Grey{Name: g.Config.Name, Why: "the request fits its match; it gets the mark", From: g.Config.From.String()}
	case snapshot.MarkedSent:
		q.e.Grey = &Grey{Name: g.Config.Name, Why: "the request carries its mark", From: g.Config.From.String()}
	}
	return g
}

// ruled applies grey release and rules to a target, and notes what they did.
func (q *question) ruled(t *snapshot.Target, g *snapshot.Grey, v *Target) *snapshot.Target {
	v.Switches = groupSwitches(q.snap, t.Service)
	parts := t.Parts()
	t = t.For(g)
	for _, p := range parts {
		if p.Grey != t.Grey && len(p.Endpoints) > 0 {
			v.Kept = append(v.Kept, Kept{Grey: p.Grey.Config.Name, Endpoints: len(p.Endpoints)})
		}
	}
	if t.Grey != nil {
		v.GreyOnly = t.Grey.Config.Name
	}
	t = t.Under(q.method(), q.now)
	for _, s := range t.Steps {
		r := ruleOf(s.Rule)
		r.Passed = s.Passed
		if s.Err != nil {
			r.Error = s.Err.Error()
		}
		for _, e := range s.Removed {
			r.Removed = append(r.Removed, e.Address)
		}
		v.Rules = append(v.Rules, r)
	}
	if t.Forbidden != nil {
		r := ruleOf(t.Forbidden)
		r.Forbids = true
		v.Rules = append(v.Rules, r)
	}
	for _, s := range t.Scripts {
		r := ruleOf(s)
		r.EachCall = true
		v.Rules = append(v.Rules, r)
	}
	return t
}

func ruleOf(r *rules.Rule) Rule {
	v := Rule{Name: r.Name, Text: r.Text, From: r.From, Priority: r.Priority, Removed: []string{}}
	if !r.Until.IsZero() {
		v.Until = r.Until.UTC().Format(time.RFC3339)
	}
	return v
}

// ruleRow says what a rule did.
func ruleRow(r *Rule) []string {
	did := "takes nobody out"
	switch {
	case r.Forbids:
		did = "forbids it"
	case r.EachCall:
		did = "is asked for each call"
	case r.Error != "" && r.Passed:
		did = "passed over: " + r.Error
	case r.Error != "":
		did = "takes all out: " + r.Error
	case r.Passed:
		did = "passed over: it would leave nobody, and does not say force"
	case len(r.Removed) > 0:
		did = "takes out " + strings.Join(r.Removed, " ")
	}
	if r.Until != "" {
		did += ", until " + r.Until
	}
	name := r.Text
	if r.Name != "" {
		name = r.Name + ": " + r.Text
	}
	return []string{name, did, r.From}
}
