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
		length := x.Req.Length
		if !x.Req.HasBody {
			length = 0
		}
		return s.Link(x.rt.Name, length, &x.Req)
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
