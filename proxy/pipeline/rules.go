package pipeline

import (
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/route/rules"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// choose settles which endpoints of a target the request may go to: those of its grey release, as the rules leave them;
// or it answers that a rule forbids the call.
func (x *Exchange) choose(to *snapshot.Target) bool {
	path := ""
	if x.call.is {
		path = x.Req.Path
	}
	method := x.rt.Method(path)
	if r := x.svc.Refuses(x.peer.Addr, x.peer.Text, method); r != nil {
		return x.forbid(r)
	}
	if len(x.snap.Greys) > 0 && !x.svc.Inbound {
		to = to.For(x.grey())
	}
	x.to = to.Under(method).Ask(&x.facts, method)
	if x.to.Forbidden != nil {
		return x.forbid(x.to.Forbidden)
	}
	return true
}

// forbid answers that a rule forbids the call.
func (x *Exchange) forbid(r *rules.Rule) bool {
	x.answer(resilience.Forbidden, 0, r.Refusal())
	return false
}

// grey finds the grey release of the request and sees to it that the next hop knows it too.
func (x *Exchange) grey() *snapshot.Grey {
	g, how := x.snap.GreyOf(&x.facts)
	if how == snapshot.MarkedHere {
		x.Req.Fields = append(x.Req.Fields, Field{Name: "X-Grey", Value: g.Config.Name})
	}
	return g
}
