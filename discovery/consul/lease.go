package consul

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/lease"
)

// Lease is the leave of one instance to be out for restart: a key below PREFIX/SERVICE/ that a session of ours locks. The session
// has a time to live, so that the place of one that was killed is free again (S-136).
type Lease struct {
	c       *client
	rules   config.Lease
	service string
	id      string // of the instance
	session string // as created last; empty: none
}

// NewLease prepares the lease of an instance, without I/O. Close it.
func NewLease(reg *config.Registry, rules config.Lease, service, id string) (*Lease, error) {
	if reg == nil || reg.Consul == nil {
		return nil, errors.New("not a Consul registry")
	}
	c, err := newClient(reg.Consul, usual())
	if err != nil {
		return nil, err
	}
	return &Lease{c: c, rules: rules, service: service, id: id}, nil
}

// Close lets go of idle connections.
func (l *Lease) Close() { l.c.close() }

// unheard is how long a registry may give no answer before nothing is expected of it.
const unheard = 10 * time.Second

// Take waits for a place and takes it. waiting is told whenever it has to wait on. It ends with an error when ctx does, or when the
// registry is not heard for some seconds.
func (l *Lease) Take(ctx context.Context, waiting func(lease.Decision)) (lease.Decision, error) {
	watch, stop := context.WithCancel(ctx)
	defer stop()
	var got lease.Decision
	var failed error
	var doubt *time.Timer
	done := false
	l.c.watch(watch, always, func(ctx context.Context, a *api.Client, q *api.QueryOptions) (uint64, error) {
		d, index, err := l.look(ctx, a, q)
		if err != nil {
			return 0, err
		}
		if doubt != nil {
			doubt.Stop()
		}
		doubt, failed = nil, nil
		switch d.Verdict {
		case lease.Take:
			ok, err := l.lock(ctx, a, q.Token, d.Slot)
			if err != nil || !ok {
				return 0, err
			}
		case lease.Wait:
			waiting(d)
			return index, nil
		case lease.Held: // by an earlier life: it is not ours to keep
			_, err := l.free(ctx, a, q.Token)
			return 0, err
		}
		got, done = d, true
		stop()
		return index, nil
	}, func(err error) {
		failed = err
		if doubt == nil {
			doubt = time.AfterFunc(unheard, stop)
		}
	})
	if doubt != nil {
		doubt.Stop()
	}
	switch {
	case done:
		return got, nil
	case failed != nil:
		return got, failed
	}
	return got, fmt.Errorf("no place was free in time: %w", ctx.Err())
}

func (l *Lease) prefix() string { return l.rules.Prefix + l.service + "/" }

// look reads who is there and who is out. A query that waits does so for the places.
func (l *Lease) look(ctx context.Context, a *api.Client, q *api.QueryOptions) (lease.Decision, uint64, error) {
	pairs, meta, err := a.KV().List(l.prefix(), q.WithContext(ctx))
	if err != nil {
		return lease.Decision{}, 0, err
	}
	now := &api.QueryOptions{AllowStale: q.AllowStale, Token: q.Token}
	entries, _, err := a.Health().Service(l.service, "", false, now.WithContext(ctx))
	if err != nil {
		return lease.Decision{}, 0, err
	}
	listed := make([]string, 0, len(entries))
	for _, e := range entries {
		listed = append(listed, e.Service.ID)
	}
	var taken []lease.Slot
	for _, p := range pairs {
		if n, err := strconv.Atoi(strings.TrimPrefix(p.Key, l.prefix())); err == nil && p.Session != "" {
			taken = append(taken, lease.Slot{Number: n, Holder: string(p.Value)})
		}
	}
	return lease.Decide(listed, taken, l.id, l.rules.MaxOut), meta.LastIndex, nil
}

// lock tries to take a place. That somebody else was faster is no error.
func (l *Lease) lock(ctx context.Context, a *api.Client, token string, slot int) (bool, error) {
	w := (&api.WriteOptions{Token: token}).WithContext(ctx)
	if l.session != "" {
		if entry, _, err := a.Session().Renew(l.session, w); err != nil {
			return false, err
		} else if entry == nil {
			l.session = ""
		}
	}
	if l.session == "" {
		id, _, err := a.Session().CreateNoChecks(&api.SessionEntry{
			Name: "sidecar out for restart: " + l.id, TTL: l.rules.TTL.String(), Behavior: api.SessionBehaviorDelete,
			LockDelay: time.Millisecond, // the next one may go at once; 0 would be 15 s
		}, w)
		if err != nil {
			return false, err
		}
		l.session = id
	}
	ok, _, err := a.KV().Acquire(&api.KVPair{Key: l.prefix() + strconv.Itoa(slot), Value: []byte(l.id), Session: l.session}, w)
	return ok, err
}

// Keep renews the lease until ctx ends; lost is told if it is gone before.
func (l *Lease) Keep(ctx context.Context, lost func(why string)) {
	heard := time.Now()
	for pause(ctx, l.rules.TTL/3) {
		entry, err := l.renew(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && entry == nil:
			lost("its session is gone")
			return
		case err == nil:
			heard = time.Now()
		case time.Since(heard) > 2*l.rules.TTL: // when the registry gives the place to another one at the latest
			lost(err.Error())
			return
		}
	}
}

func (l *Lease) renew(ctx context.Context) (entry *api.SessionEntry, err error) {
	err = l.each(ctx, func(ctx context.Context, a *api.Client, token string) error {
		entry, _, err = a.Session().Renew(l.session, (&api.WriteOptions{Token: token}).WithContext(ctx))
		return err
	})
	return entry, err
}

// Drop gives back what this lease has.
func (l *Lease) Drop(ctx context.Context) error {
	if l.session == "" {
		return nil
	}
	return l.each(ctx, func(ctx context.Context, a *api.Client, token string) error {
		_, err := a.Session().Destroy(l.session, (&api.WriteOptions{Token: token}).WithContext(ctx))
		return err
	})
}

// Back gives back the places that an earlier life of the instance took, now that it is back, and returns how many.
func (l *Lease) Back(ctx context.Context) (places int, err error) {
	err = l.each(ctx, func(ctx context.Context, a *api.Client, token string) error {
		places, err = l.free(ctx, a, token)
		return err
	})
	return places, err
}

// free gives back every place of the instance.
func (l *Lease) free(ctx context.Context, a *api.Client, token string) (places int, err error) {
	pairs, _, err := a.KV().List(l.prefix(), (&api.QueryOptions{Token: token}).WithContext(ctx))
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, p := range pairs {
		if p.Session != "" && string(p.Value) == l.id {
			_, err := a.Session().Destroy(p.Session, (&api.WriteOptions{Token: token}).WithContext(ctx))
			errs = append(errs, err)
			places++
		}
	}
	return places, errors.Join(errs...)
}

// each asks one agent after the other until one answers.
func (l *Lease) each(ctx context.Context, do func(ctx context.Context, a *api.Client, token string) error) error {
	var last error
	for _, a := range l.c.agents {
		actx, cancel := context.WithTimeout(ctx, 2*l.c.reg.Timeout)
		err := do(actx, a.api, l.c.readToken())
		cancel()
		if err == nil {
			return nil
		}
		last = classify(err)
	}
	return last
}
