package discovery

import (
	"maps"
	"reflect"

	"github.com/sidecar-mesh/sidecar/config"
)

// share returns next with the pointers of prev wherever both say the same, at the same place of the same source: a
// service, a named policy, a registry, an inbound. next itself is not written to. That a Service kept its pointer says
// nothing of the policies it uses by name, nor of the defaults.
func share(next, prev *config.Config) *config.Config {
	c := *next
	c.Services = maps.Clone(next.Services)
	c.Keep(prev)
	c.Policies = shareMap(next.Policies, prev.Policies)
	c.Registries = shareMap(next.Registries, prev.Registries)
	c.Inbound = make([]*config.Inbound, len(next.Inbound))
	for i, in := range next.Inbound {
		c.Inbound[i] = in
		if i < len(prev.Inbound) && reflect.DeepEqual(in, prev.Inbound[i]) {
			c.Inbound[i] = prev.Inbound[i]
		}
	}
	return &c
}

func shareMap[T any](next, prev map[string]*T) map[string]*T {
	m := make(map[string]*T, len(next))
	for name, v := range next {
		if old, ok := prev[name]; ok && reflect.DeepEqual(v, old) {
			v = old
		}
		m[name] = v
	}
	return m
}

// sameRegistry reports whether two registries are one source: where they are written does not matter.
func sameRegistry(a, b *config.Registry) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.From, y.From = config.Origin{}, config.Origin{}
	return reflect.DeepEqual(x, y)
}

// shareEndpoints returns next with the pointers of prev for endpoints that did not change.
func shareEndpoints(next, prev []*config.Endpoint) []*config.Endpoint {
	old := make(map[string]*config.Endpoint, len(prev))
	for _, e := range prev {
		old[e.Address] = e
	}
	shared := make([]*config.Endpoint, len(next))
	for i, e := range next {
		if o := old[e.Address]; o != nil && sameEndpoint(o, e) {
			e = o
		}
		shared[i] = e
	}
	return shared
}
