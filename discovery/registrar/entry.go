package registrar

import (
	"cmp"
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/registration"
)

// entry is one service in one registry.
type entry struct {
	// Set when it is made, then read-only.
	r        *Registrar
	service  string
	reg      *config.Registry
	at       *opened
	instance *registration.Instance
	wake     chan struct{}
	done     chan struct{} // closed when it has left, or nobody looks after it any more

	mu        sync.Mutex
	machine   *registration.Machine // guarded by mu, as the rest
	state     registration.State
	changed   time.Time
	abandoned bool
}

// same reports whether nothing about it has changed.
func (e *entry) same(other *entry) bool {
	return reflect.DeepEqual(e.instance, other.instance) && reflect.DeepEqual(place(e.reg), place(other.reg))
}

// place is a registry without where it is written.
func place(r *config.Registry) config.Registry {
	c := *r
	c.From = config.Origin{}
	return c
}

// run does what is to be done until the instance has left, or ctx ends.
func (e *entry) run(ctx context.Context) {
	defer close(e.done)
	registered := false
	for {
		e.mu.Lock()
		if e.abandoned {
			e.mu.Unlock()
			return
		}
		a := e.machine.Next(time.Now())
		left := e.noteLocked()
		e.mu.Unlock()
		switch {
		case left:
			return
		case a.Verb == registration.Wait:
			if !e.wait(ctx, a.Until) {
				return
			}
			continue
		}
		result := e.do(ctx, a)
		if ctx.Err() != nil {
			return
		}
		e.r.o.Observer.Tried(e.reg.Name, a.Verb, result.Kind)
		e.mu.Lock()
		e.machine.Done(time.Now(), a, result, chance())
		e.noteLocked()
		e.mu.Unlock()
		if a.Verb == registration.Register && result.Kind == registration.OK && !registered {
			registered = true
			e.r.wasRegistered(e.service)
		}
	}
}

// do carries an action out.
func (e *entry) do(ctx context.Context, a registration.Action) registration.Result {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	switch a.Verb {
	case registration.Check:
		return e.at.Check(ctx, e.instance)
	case registration.Register:
		return e.at.Register(ctx, e.instance, a.Well)
	case registration.Report:
		return e.at.Report(ctx, e.instance, a.Well, a.Note)
	case registration.Deregister:
		return e.at.Deregister(ctx, e.instance)
	}
	return e.at.Verify(ctx, e.instance)
}

// wait waits for a time or an event, whichever comes first; false when ctx ended.
func (e *entry) wait(ctx context.Context, until time.Time) bool {
	var due <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-due:
	case <-e.wake:
	case <-ctx.Done():
		return false
	}
	return true
}

// noteLocked tells of a change of state, and reports whether the instance has left.
func (e *entry) noteLocked() bool {
	s, why := e.machine.View()
	if s != e.state {
		e.r.o.Observer.Changed(e.service, e.reg.Name, e.state, s, why)
		e.state, e.changed = s, time.Now()
	}
	return s == registration.Left
}

func (e *entry) wakeUp() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// leave takes the instance away, whoever waits for it.
func (e *entry) leave() {
	e.mu.Lock()
	e.machine.Leave()
	e.mu.Unlock()
	e.wakeUp()
}

// abandon leaves the instance to its successor.
func (e *entry) abandon() {
	e.mu.Lock()
	e.abandoned = true
	e.mu.Unlock()
	e.wakeUp()
}

func (e *entry) view() (registration.State, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.machine.View()
}

func (e *entry) status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, why := e.machine.View()
	return Status{
		Service: e.service, Registry: e.reg.Name, ID: e.instance.ID, State: s, Why: why, Since: e.changed,
		Refused: e.machine.Refusal().Kind.Refusal(),
	}
}

// sleep waits for d, or until ctx ends, which it reports by false.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// cmpOr compares pairs of texts, the first pair that differs counts.
func cmpOr(pairs ...string) int {
	for i := 0; i+1 < len(pairs); i += 2 {
		if c := cmp.Compare(pairs[i], pairs[i+1]); c != 0 {
			return c
		}
	}
	return 0
}
