package proxy

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// Ejected implements pipeline.Observer.
func (p *Proxy) Ejected(s *snapshot.Service, e *snapshot.Endpoint, v resilience.EjectVerdict) {
	if p.o.Failing != nil && !s.Inbound {
		p.o.Failing(s.Name, e.Address)
	}
	if v.Act != resilience.Eject {
		p.o.Recorder.Spared(s.Name, e.Address, v.Reason.String())
		return
	}
	p.o.Recorder.Ejected(s.Name, e.Address, v.Reason.String())
	p.gauge(s)
	p.sickMu.Lock()
	p.sick[sickKey{s.Inbound, s.Name}] = struct{}{}
	p.sickMu.Unlock()
	p.wakeUp()
}

// Breaker implements pipeline.Observer.
func (p *Proxy) Breaker(r *snapshot.Route, c resilience.BreakerChange) {
	from, to := c.States()
	p.o.Recorder.BreakerChanged(r.Service.Name, r.Name, from.String(), to.String(), breakerDetail(r.Breaker.Counts(time.Now()), c, "calls"))
}

// EndpointBreaker implements pipeline.Observer.
func (p *Proxy) EndpointBreaker(e *snapshot.Endpoint, c resilience.BreakerChange) {
	now := time.Now()
	from, to := c.States()
	detail := breakerDetail(e.Breaker.Counts(now), c, "attempts")
	p.o.Recorder.EndpointBreakerChanged(e.Service, e.Address, from.String(), to.String(), detail)
	if s, ok := p.store.Load().Outbound.Get(e.Service); ok && c != resilience.HalfOpened {
		p.resize(now, s)
	}
}

// breakerDetail says which knob changed a breaker, and if it opened what was counted.
func breakerDetail(n resilience.BreakerCounts, c resilience.BreakerChange, of string) string {
	switch c {
	case resilience.Opened:
		return fmt.Sprintf("%s: of %d %s %d failed, %d timed out, %d were rejected", c.Why(), n.All(), of, n.Failed, n.TimedOut, n.Rejected)
	case resilience.OpenedSlow:
		return fmt.Sprintf("%s: of %d %s %d were slow, %d timed out", c.Why(), n.All(), of, n.Slow, n.TimedOut)
	}
	return c.Why()
}

// probe starts the probes that are due and returns when to look again.
func (p *Proxy) probe(ctx context.Context, now time.Time, running *sync.WaitGroup) (next time.Time) {
	s := p.store.Load()
	p.sickMu.Lock()
	defer p.sickMu.Unlock()
	for key := range p.sick {
		d := s.Outbound
		if key.inbound {
			d = s.Inbound
		}
		svc, ok := d.Get(key.name)
		if !ok || svc.Outlier.Ejected() == 0 {
			delete(p.sick, key)
			continue
		}
		due, at := svc.Outlier.ProbesDue(now, nil)
		for _, h := range due {
			running.Add(1)
			go func() {
				defer running.Done()
				p.probeOne(ctx, svc, h)
			}()
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// probeOne tries an ejected endpoint and takes it back if it answers.
func (p *Proxy) probeOne(ctx context.Context, s *snapshot.Service, h *resilience.EndpointHealth) {
	err := Reach(ctx, h.Address, s.Name, s.Probe)
	now := time.Now()
	if s.Outlier.ProbeResult(now, h, err == nil).Act == resilience.Readmit {
		p.readmit(now, s, h)
	}
}

// readmit lets an endpoint have calls again.
func (p *Proxy) readmit(now time.Time, s *snapshot.Service, h *resilience.EndpointHealth) {
	for _, e := range s.Endpoints {
		if e.Health == h {
			e.Readmit(now)
			p.o.Recorder.Readmitted(s.Name, e.Address)
		}
	}
	p.gauge(s)
}

// Reach asks an endpoint of a service, within the probe's timeout, whether it lives: it connects to the address, and where a
// path is given asks for it under the name of the service; any status below 400 is well.
func Reach(ctx context.Context, address, service string, probe config.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(probe.Timeout, time.Second))
	defer cancel()
	return reach(ctx, address, service, probe)
}

func reach(ctx context.Context, address, host string, probe config.Probe) error {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	var d net.Dialer
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, network, address) }
	if probe.GRPC {
		return reachGRPC(ctx, dial, host, probe.Service)
	}
	if probe.HTTP == "" {
		c, err := dial(ctx, "", "")
		if err != nil {
			return err
		}
		return c.Close()
	}
	t := &http.Transport{DialContext: dial, DisableKeepAlives: true, Proxy: nil}
	defer t.CloseIdleConnections()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+probe.HTTP, nil)
	if err != nil {
		return err
	}
	r, err := t.RoundTrip(q)
	if err != nil {
		return err
	}
	_ = r.Body.Close()
	if r.StatusCode >= 400 {
		return &statusError{r.StatusCode}
	}
	return nil
}

type statusError struct{ status int }

func (e *statusError) Error() string { return http.StatusText(e.status) }
