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

// standIn is what a stand-in answers to the request.
func (q *question) standIn(s *snapshot.StandIn) Outcome {
	c := s.Config
	switch grpc := q.isGRPC(); {
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
