package explain

import (
	"strconv"

	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// shielded notes the answer of a switch that keeps the call from being made (S-160), and reports whether there is one. A switch
// whose rule is in its ramp decides by chance: the target names it.
func (q *question) shielded() bool {
	for _, w := range q.rt.Shields {
		detail := "the switch " + w.Name + " is on"
		switch w.State.State() {
		case resilience.SwitchOn:
		case resilience.SwitchAuto:
			detail += " by its rule; one call a second is sent on all the same"
		default:
			continue
		}
		if m := w.Config.Answer.Message; m != "" {
			detail += ": " + m
		}
		q.e.Outcome = q.standIn(w.Answer)
		q.e.Outcome.Reason, q.e.Outcome.Detail = resilience.Degraded.String(), detail
		return true
	}
	return false
}

// replaced notes what answers in place of a refusal, where something does: a switch that is on before the fallback of the policy.
// Whether there is a last good answer is not looked at.
func (q *question) replaced(reason resilience.Reason) {
	if q.rt == nil || q.svc.Protocol == "tcp" {
		return
	}
	stand := func(s *snapshot.StandIn, who string) {
		if q.isGRPC() && (s.Config.Kind == snapshot.KindLocal || s.Config.Kind == snapshot.KindStale) {
			return
		}
		was := q.e.Outcome
		if s.Config.Kind == snapshot.KindStale {
			q.e.Outcome.Detail += "; the last good answer stands in for it, if there is one"
			return
		}
		q.e.Outcome = q.standIn(s)
		q.e.Outcome.Reason, q.e.Outcome.Detail = was.Reason, was.Detail+"; "+who+" answers in its place"
	}
	for _, w := range q.rt.StandIns {
		if w.State.State() != resilience.SwitchOff && w.When.Refusal(reason) {
			stand(w.Answer, "the switch "+w.Name)
			return
		}
	}
	if f := q.rt.Fallback; f != nil && f.When.Refusal(reason) {
		stand(f.Answer, "the fallback")
	}
}

// standIn is what a stand-in answers to the request.
func (q *question) standIn(s *snapshot.StandIn) Outcome {
	c := s.Config
	switch grpc := q.isGRPC(); {
	case c.Kind == snapshot.KindLocal && grpc: // it speaks HTTP/1.1
		status := Header{"grpc-status", strconv.Itoa(resilience.Degraded.GRPCStatus())}
		return Outcome{Kind: Answered, Status: 200, Headers: []Header{status}}
	case c.Kind == snapshot.KindLocal:
		return Outcome{Kind: Answered, Location: c.Local}
	case q.svc.Protocol == "tcp":
		return Outcome{Kind: Answered, Body: c.Body}
	case grpc && c.Kind == snapshot.KindError:
		status := Header{"grpc-status", strconv.Itoa(int(s.GRPC - resilience.GRPCOK))}
		return Outcome{Kind: Answered, Status: 200, Headers: []Header{status, {"grpc-message", c.Message}}}
	case grpc:
		return Outcome{Kind: Answered, Status: 200, Headers: []Header{{"grpc-status", "0"}}}
	case c.Kind == snapshot.KindError:
		return Outcome{Kind: Answered, Status: c.Status}
	}
	o := Outcome{Kind: Answered, Status: c.Status, Body: c.Body}
	for _, h := range c.Headers {
		o.Headers = append(o.Headers, Header(h))
	}
	return o
}
