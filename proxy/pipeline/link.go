package pipeline

import "github.com/sidecar-mesh/sidecar/snapshot"

// Linked is a Pool whose connections are set apart by classes of calls (S-185).
type Linked interface {
	Pool
	// Link returns the pool of a class: 1 + its index in snapshot.Service.Links.
	Link(class int) Pool
}

// link is the class of the exchange, 0 for none.
func (x *Exchange) link() int {
	if s := x.to.Service; len(s.Links) > 0 {
		c := snapshot.Call{Service: x.svc.Name, Route: x.rt.Name, Length: x.Req.Length, Fields: &x.Req}
		if !x.Req.HasBody {
			c.Length = 0
		}
		if x.call.is {
			c.GRPC = x.Req.Path
		}
		return s.Link(&c)
	}
	return 0
}

// poolOf returns the pool of an endpoint for a class of calls.
func poolOf(e *snapshot.Endpoint, class int) Pool {
	if class > 0 {
		if l, ok := e.Pool.(Linked); ok {
			return l.Link(class)
		}
	}
	return e.Pool.(Pool)
}
