package registrar

import (
	"bytes"
	"context"
	"reflect"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

// Publication is the document by which a service of ours tells callers how to call it (S-8). It stands apart from the
// instances, so that instances that come and go carry none of it (S-9).
type Publication struct {
	Service  string
	Registry *config.Registry // that of the config centre
	Prefix   string           // of its keys
	Text     []byte
}

// publication is a document on its way. It is guarded by the registrar's mu.
type publication struct {
	*Publication
	stop context.CancelFunc // nil: it waits for the service to be registered
}

func (p *publication) same(other *Publication) bool {
	return p != nil && p.Prefix == other.Prefix && bytes.Equal(p.Text, other.Text) && reflect.DeepEqual(place(p.Registry), place(other.Registry))
}

// publication is what is to be published of an inbound service; nil: nothing.
func (r *Registrar) publication(cfg *config.Config, in *config.Inbound) (*Publication, error) {
	if !in.Register.Publishes() || cfg.Center == nil || cfg.Center.Consul == nil {
		return nil, nil
	}
	text, err := r.o.Policy(in, in.Register.PublishPolicy == config.PublishMethod)
	if err != nil || text == nil {
		return nil, err
	}
	at := cfg.Center.Consul
	return &Publication{Service: in.Service, Registry: cfg.Registries[at.Registry], Prefix: at.Prefix, Text: text}, nil
}

// setPublicationsLocked publishes what a configuration changed. What it no longer publishes stays where it is: callers rely on it.
func (r *Registrar) setPublicationsLocked(cfg *config.Config) {
	wanted := map[string]*Publication{}
	registers := map[string]bool{}
	for _, in := range cfg.Inbound {
		registers[in.Service] = in.Register != nil
		p, err := r.publication(cfg, in)
		switch {
		case err != nil:
			r.o.Observer.Published(in.Service, cfg.Center.Consul.Registry, false, err, false)
		case p != nil:
			wanted[in.Service] = p
		}
	}
	for service := range r.registered {
		if !registers[service] {
			delete(r.registered, service)
		}
	}
	for service, p := range r.publications {
		if next := wanted[service]; next == nil || !p.same(next) {
			p.cancel()
			delete(r.publications, service)
		}
	}
	for service, next := range wanted {
		if r.publications[service] == nil {
			r.publications[service] = &publication{Publication: next}
			r.publishLocked(service)
		}
	}
}

// wasRegistered tells that a service is in a registry, for the first time since it is to be.
func (r *Registrar) wasRegistered(service string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.registered[service] = true
	r.publishLocked(service)
}

// publishLocked publishes the document of a service, once: when it is registered, or whenever the document is another one.
func (r *Registrar) publishLocked(service string) {
	p := r.publications[service]
	if p == nil || p.stop != nil || !r.registered[service] || r.ctx == nil || r.leaving {
		return
	}
	ctx, stop := context.WithCancel(r.ctx)
	p.stop = stop
	r.work.Go(func() { r.publish(ctx, p.Publication) })
}

func (p *publication) cancel() {
	if p.stop != nil {
		p.stop()
	}
}

// publish writes a document, and tries again until that succeeds: nothing waits for it.
func (r *Registrar) publish(ctx context.Context, p *Publication) {
	failed := false
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		bounded, cancel := context.WithTimeout(ctx, bound)
		written, err := r.o.Publish(bounded, p)
		cancel()
		if ctx.Err() != nil {
			return
		}
		r.o.Observer.Published(p.Service, p.Registry.Name, written, err, failed)
		if failed = err != nil; !failed || !sleep(ctx, pause) {
			return
		}
	}
}
