package proxy

import (
	"cmp"
	"slices"

	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// ListenerStatus counts the connections of one listener. Those that a change of the configuration has left behind are
// counted with the listener that accepted them.
type ListenerStatus struct {
	Direction     telemetry.Direction
	Name, Address string
	Open, Idle    int
}

// Listeners returns the listeners, ordered by direction, name and address; closed ones as long as they have connections.
func (p *Proxy) Listeners() []ListenerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []ListenerStatus
	add := func(l *listener, gone bool) {
		t := l.target.Load()
		st := ListenerStatus{Direction: t.dir, Name: t.name, Address: t.address}
		for _, t := range l.targets() {
			open, idle := t.counts()
			st.Open, st.Idle = st.Open+open, st.Idle+idle
		}
		if !gone || st.Open > 0 {
			list = append(list, st)
		}
	}
	for _, l := range p.listeners {
		add(l, false)
	}
	for _, l := range p.retired {
		add(l, true)
	}
	slices.SortFunc(list, func(a, b ListenerStatus) int {
		return cmp.Or(cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Address, b.Address))
	})
	return list
}

// PoolStatus counts the connections to one endpoint.
type PoolStatus struct {
	Direction           telemetry.Direction
	Service, Endpoint   string
	Open, Idle, Waiting int
}

// Pools returns the pools that hold a connection or have somebody waiting for one, in the order of services and endpoints.
func (p *Proxy) Pools() []PoolStatus {
	s := p.store.Load()
	if s == nil {
		return nil
	}
	var list []PoolStatus
	for _, dir := range []telemetry.Direction{telemetry.Outbound, telemetry.Inbound} {
		for _, svc := range directory(s, dir).List {
			for _, e := range svc.Endpoints {
				if st, any := poolStatus(dir, svc, e); any {
					list = append(list, st)
				}
			}
		}
	}
	return list
}

func poolStatus(dir telemetry.Direction, svc *snapshot.Service, e *snapshot.Endpoint) (PoolStatus, bool) {
	st := PoolStatus{Direction: dir, Service: svc.Name, Endpoint: e.Address}
	st.Open, st.Idle, st.Waiting = poolOf(e).Counts()
	return st, st.Open > 0 || st.Waiting > 0
}
