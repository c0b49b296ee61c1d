package pipeline

import (
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/route/rules"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// choose settles which endpoints of a target the request may go to: those of its grey release, as the rules leave them;
// or it answers that a rule forbids the call.
func (x *Exchange) choose(to *snapshot.Target) bool {
	method := x.method()
	if r := x.svc.Refuses(x.peer.Addr, x.peer.Text, method, x.Clock); r != nil {
		return x.forbid(r)
	}
	if len(x.snap.Greys) > 0 && !x.svc.Inbound {
		to = to.For(x.grey())
	}
	x.to = to.Under(method, x.Clock).Ask(&x.facts, method)
	if x.to.Forbidden != nil {
		return x.forbid(x.to.Forbidden)
	}
	return true
}

// method is what rules call the request.
func (x *Exchange) method() string {
	if x.call.is {
		return x.rt.Method(x.Req.Path)
	}
	return x.rt.Method("")
}

// turn goes over to the endpoints that stand in for those of a grey release, when each of these was tried.
func (x *Exchange) turn() {
	if len(x.tried) == 0 || x.to.Spare() == nil || x.to.Set.Untried(x.tried) {
		return
	}
	method := x.method()
	x.to, x.tried = x.to.Spare().Under(method, x.Clock).Ask(&x.facts, method), x.tried[:0]
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
