package pipeline

import (
	"github.com/sidecar-mesh/sidecar/balance"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/route"
)

// pick chooses an endpoint for the next attempt.
func (x *Exchange) pick() bool {
	x.turn()
	h := &x.hint
	h.Now, h.Rand, h.Tried = x.Clock, random(), x.tried
	if x.rt.Hash.On != "" && !h.HasHash {
		h.Hash, h.HasHash = x.hashKey()
	}
	for {
		i, why := x.to.Set.Pick(h)
		switch why {
		case balance.NoEndpoints:
			x.out.Detail = "it has no endpoint" + x.subset() + x.to.Service.Unheard()
			return false
		case balance.NoneUsable:
			x.out.Detail = "none of its endpoints is usable" + x.subset()
			return false
		}
		x.ep = x.to.Endpoints[i]
		if why == balance.PickedPanic {
			x.p.Recorder.Panic(x.to.Service.Name, x.ep.Address)
		}
		if x.enter() || why == balance.PickedPanic {
			x.tried = append(x.tried, i)
			return true
		}
	}
}

// enter asks the breaker of the endpoint that was chosen. One that refuses, since others took its probes meanwhile, is not
// picked again before they are back.
func (x *Exchange) enter() bool {
	if x.ep.Breaker == nil && x.ep.Usable() {
		return true
	}
	v := x.ep.Admit(x.Clock)
	x.entry = v.Ticket
	if v.Change != resilience.Unchanged {
		x.p.Observer.EndpointBreaker(x.ep, v.Change)
	}
	return v.OK
}

// withdraw tells the breaker of the endpoint that the attempt came to no end.
func (x *Exchange) withdraw() {
	if x.entry != 0 {
		x.ep.Untried(x.Clock, x.entry)
		x.entry = 0
	}
}

// subset says which part of the endpoints was meant, where it was not all.
func (x *Exchange) subset() string {
	s := ""
	for k, v := range x.to.Labels {
		s += " " + k + "=" + v
	}
	if s != "" {
		s = " with" + s
	}
	return s
}

// hashKey returns what consistent_hash hashes of this request.
func (x *Exchange) hashKey() (uint64, bool) {
	key, ok := "", false
	switch on := &x.rt.Hash; on.On {
	case "header":
		key, ok = x.Req.Get(on.Name)
	case "cookie":
		key, ok = route.CookieValue(&x.Req, on.Name)
	case "query":
		key, ok = route.QueryValue(x.Req.Query, on.Name)
	case "source_ip":
		key, ok = x.peer.Text, true
	}
	if !ok {
		return 0, false
	}
	return route.Hash(key), true
}
