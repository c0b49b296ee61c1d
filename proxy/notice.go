package proxy

import (
	"time"

	"github.com/sidecar-mesh/sidecar/snapshot"
)

// notice is what an endpoint said about its leaving. It is kept by the health that outlives configurations; its
// end stands in the meter.
type notice struct {
	service string
	e       *snapshot.Endpoint
	since   time.Time
}

// Offline implements pipeline.Observer: whoever has the same address is meant as well, since it is one process.
func (p *Proxy) Offline(e *snapshot.Endpoint, until time.Time) {
	now := time.Now()
	var fresh []*snapshot.Service
	p.noticeMu.Lock()
	for _, s := range p.store.Load().Outbound.List {
		for _, other := range s.Endpoints {
			if other.Address == e.Address && p.noticeLocked(other, now, until) {
				fresh = append(fresh, s)
			}
		}
	}
	p.noticeMu.Unlock()
	for _, s := range fresh {
		p.o.Recorder.Offline(s.Name, e.Address, until.Sub(now))
		p.resize(now, s)
		if p.o.Leaving != nil {
			p.o.Leaving(s.Name, e.Address)
		}
		if p.o.Left != nil {
			p.o.Left(s.Name, e.Address)
		}
	}
	if len(fresh) > 0 {
		p.wakeUp()
	}
}

// noticeLocked keeps an endpoint out until a time, and reports whether that is new.
func (p *Proxy) noticeLocked(e *snapshot.Endpoint, now, until time.Time) bool {
	e.Leaves(until)
	if _, known := p.notices[e.Health]; known {
		return false
	}
	p.notices[e.Health] = notice{service: e.Service, e: e, since: now}
	return true
}

// Online implements pipeline.Observer.
func (p *Proxy) Online(e *snapshot.Endpoint, began time.Time) {
	now := time.Now()
	var over []notice
	p.noticeMu.Lock()
	if n, known := p.notices[e.Health]; known && began.After(n.since) {
		for m, n := range p.notices {
			if n.e.Address == e.Address {
				delete(p.notices, m)
				over = append(over, n)
			}
		}
	}
	p.noticeMu.Unlock()
	for _, n := range over {
		p.comesBack(now, n, "it answers as if nothing were")
	}
}

// endNotices takes back the endpoints whose time is over, and returns when the next one's is.
func (p *Proxy) endNotices(now time.Time) (next time.Time) {
	var over []notice
	p.noticeMu.Lock()
	for m, n := range p.notices {
		switch until := n.e.LeavesUntil(); {
		case !now.Before(until):
			delete(p.notices, m)
			over = append(over, n)
		case next.IsZero() || until.Before(next):
			next = until
		}
	}
	p.noticeMu.Unlock()
	for _, n := range over {
		p.comesBack(now, n, "the time that it gave is over")
	}
	return next
}

// comesBack lets an endpoint have calls again. One that left the service meanwhile, or came back to it as another, is
// forgotten without a word.
func (p *Proxy) comesBack(now time.Time, n notice, why string) {
	n.e.Stays(now)
	s, ok := p.store.Load().Outbound.Get(n.service)
	if !ok {
		return
	}
	for _, e := range s.Endpoints {
		if e.Meter == n.e.Meter {
			p.o.Recorder.Online(s.Name, e.Address, why)
			p.resize(now, s)
		}
	}
}

// resize tells outlier detection and metrics that another number of endpoints can be used.
func (p *Proxy) resize(now time.Time, s *snapshot.Service) {
	for _, h := range s.Outlier.SetSize(now, len(s.Endpoints), s.Available()) {
		p.readmit(now, s, h)
	}
	p.gauge(s)
}

// wakeUp has Run look at what is due.
func (p *Proxy) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// soonest returns the earlier of two times, of which a zero one counts for none.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
