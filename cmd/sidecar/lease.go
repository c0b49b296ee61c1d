package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/consul"
	"github.com/sidecar-mesh/sidecar/discovery/lease"
)

// leases are the leave of our services to be out for restart (S-136). A place is kept when the process ends: it is for the next
// life of the instance to give it back when it is well again, and for the session's time to live where there is none.
type leases struct {
	p *process

	mu   sync.Mutex
	back map[string]bool // services that were seen well in this life; guarded by mu
	held []*consul.Lease // guarded by mu

	ctx  context.Context // of what goes on beside the process
	stop func()
	work sync.WaitGroup
}

func newLeases(p *process) *leases {
	l := &leases{p: p, back: map[string]bool{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// needed reports whether a configuration wants leases.
func needed(cfg *config.Config) bool {
	for _, in := range cfg.Inbound {
		if in.Register != nil && in.Register.Lease != nil {
			return true
		}
	}
	return false
}

// open prepares the lease of a service; nil where it needs none.
func (l *leases) open(cfg *config.Config, service string) *consul.Lease {
	for _, in := range cfg.Inbound {
		if in.Service != service || in.Register == nil || in.Register.Lease == nil {
			continue
		}
		registry := in.Register.To[0]
		for _, s := range l.p.own.Status() {
			if s.Service != service || s.Registry != registry {
				continue
			}
			one, err := consul.NewLease(cfg.Registries[registry], *in.Register.Lease, service, s.ID)
			if err != nil {
				l.p.log.Error("no lease can be taken", "service", service, "err", err)
			}
			return one
		}
	}
	return nil
}

// take takes the leases of all services, one after the other in the order of the file, which is the same for all instances: so two
// never wait for each other. What cannot be had in time is gone without: the platform waits no longer.
func (l *leases) take(ctx context.Context, cfg *config.Config) {
	for _, in := range cfg.Inbound {
		one := l.open(cfg, in.Service)
		if one == nil {
			continue
		}
		registry := in.Register.To[0]
		bounded, cancel := context.WithTimeout(ctx, in.Register.Lease.Wait)
		told := false
		began := time.Now()
		d, err := one.Take(bounded, func(d lease.Decision) {
			if !told {
				l.p.rec.Leased(in.Service, registry, "waiting", d.String())
			}
			told = true
		})
		cancel()
		switch {
		case err == nil:
			l.p.rec.Leased(in.Service, registry, "taken", d.String()+", after "+time.Since(began).Round(time.Millisecond).String())
			l.keep(one, in.Service, registry)
			continue
		case ctx.Err() != nil:
			l.p.rec.Leased(in.Service, registry, "cut_short", "told to end at once")
		case errors.Is(err, context.DeadlineExceeded):
			l.p.rec.Leased(in.Service, registry, "timeout", err.Error())
		default:
			l.p.rec.Leased(in.Service, registry, "unavailable", err.Error())
		}
		l.drop(one)
	}
}

// keep renews a lease as long as the process lives.
func (l *leases) keep(one *consul.Lease, service, registry string) {
	l.mu.Lock()
	l.held = append(l.held, one)
	l.mu.Unlock()
	l.work.Go(func() {
		one.Keep(l.ctx, func(why string) { l.p.rec.Leased(service, registry, "lost", why) })
	})
}

func (l *leases) drop(one *consul.Lease) {
	if err := one.Drop(closing()); err != nil {
		l.p.log.Warn("a lease is not given back; it ends by itself", "err", err)
	}
	one.Close()
}

// well gives back what an earlier life of a service of ours took, once it is well again.
func (l *leases) well(service, registry string) {
	s := l.p.proxy.Snapshot()
	if s == nil {
		return
	}
	l.mu.Lock()
	seen := l.back[service]
	l.back[service] = true
	l.mu.Unlock()
	if seen || !needed(s.Mesh.Config) {
		return
	}
	l.work.Go(func() {
		one := l.open(s.Mesh.Config, service)
		if one == nil {
			return
		}
		defer one.Close()
		switch n, err := one.Back(l.ctx); {
		case err != nil:
			l.p.log.Warn("the lease of an earlier life is not given back; it ends by itself", "service", service, "err", err)
		case n > 0:
			l.p.rec.Leased(service, registry, "returned", "the instance is well again")
		}
	})
}

// close ends what goes on. Of a process that will not come back it gives back what it has.
func (l *leases) close(forGood bool) {
	l.stop()
	l.work.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.held {
		if forGood {
			l.drop(one)
		} else {
			one.Close()
		}
	}
	l.held = nil
}
