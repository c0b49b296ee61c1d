package telemetry

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// The kinds of events that this package makes; callers may add their own.
const (
	EventEjected    = "ejected"
	EventReadmitted = "readmitted"
	EventSpared     = "spared"
	EventPanic      = "panic"
	EventBreaker    = "breaker"
	EventReload     = "reload"
	EventDiscovery  = "discovery"
)

const (
	eventRoom   = 1000 // events that are remembered
	eventDetail = 1024 // bytes kept of a text
)

// Event is something that an operator may want to know about, other than one exchange. Empty fields do not apply.
type Event struct {
	Time     time.Time `json:"time"`
	Kind     string    `json:"kind"`
	Service  string    `json:"service,omitempty"`
	Route    string    `json:"route,omitempty"`
	Endpoint string    `json:"endpoint,omitempty"`
	From     string    `json:"from,omitempty"`
	To       string    `json:"to,omitempty"`
	Detail   string    `json:"detail,omitempty"`
}

// Events remembers the last 1000 events, counts all of them and logs each. Adding never waits for the logger: a short
// goroutine logs what is pending and ends; what the logger is too slow for is counted as lost.
type Events struct {
	log    *slog.Logger
	now    func() time.Time
	kinds  counts
	idle   sync.WaitGroup
	mu     sync.Mutex
	ring   []Event
	added  uint64 // ever
	logged uint64 // of those, logged or lost
	lost   uint64
	busy   bool // a goroutine is logging
	closed bool
}

// Events returns the recent events.
func (r *Recorder) Events() *Events { return &r.events }

// Add remembers, counts and logs e. A zero time means now.
func (v *Events) Add(e Event) {
	if e.Time.IsZero() {
		e.Time = v.now()
	}
	for _, s := range []*string{&e.Kind, &e.Service, &e.Route, &e.Endpoint, &e.From, &e.To, &e.Detail} {
		if len(*s) > eventDetail {
			*s = cut(*s, eventDetail) + "…"
		}
		*s = strings.Clone(strings.ToValidUTF8(*s, "\uFFFD"))
	}
	v.kinds.add(e.Kind)
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.ring) < eventRoom {
		v.ring = append(v.ring, e)
	} else {
		v.ring[v.added%eventRoom] = e
	}
	v.added++
	if v.log != nil && !v.busy && !v.closed {
		v.busy = true
		v.idle.Go(v.drain)
	}
}

// Snapshot returns the remembered events, oldest first.
func (v *Events) Snapshot() []Event {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.ring) < eventRoom {
		return append([]Event(nil), v.ring...)
	}
	at := v.added % eventRoom
	return append(append(make([]Event, 0, eventRoom), v.ring[at:]...), v.ring[:at]...)
}

// drain logs pending events until there are none.
func (v *Events) drain() {
	for {
		e, ok := v.pending()
		if !ok {
			return
		}
		v.write(e)
	}
}

func (v *Events) pending() (Event, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if behind := v.added - v.logged; behind > eventRoom {
		v.lost += behind - eventRoom
		v.logged = v.added - eventRoom
	}
	if v.logged == v.added {
		v.busy = false
		return Event{}, false
	}
	e := v.ring[v.logged%eventRoom]
	v.logged++
	return e, true
}

func (v *Events) write(e Event) {
	level := slog.LevelInfo
	if e.Kind == EventEjected || e.To == "open" || e.To == "failed" || e.To == "failing" {
		level = slog.LevelWarn
	}
	attrs := make([]slog.Attr, 0, 7)
	for _, a := range []slog.Attr{
		slog.String("service", e.Service), slog.String("route", e.Route), slog.String("endpoint", e.Endpoint),
		slog.String("from", e.From), slog.String("to", e.To), slog.String("detail", e.Detail),
	} {
		if a.Value.String() != "" {
			attrs = append(attrs, a)
		}
	}
	attrs = append(attrs, slog.Time("at", e.Time))
	v.log.LogAttrs(context.Background(), level, e.Kind, attrs...)
}

// lostCount returns how many events were never logged because the logger was too slow.
func (v *Events) lostCount() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lost
}

// wait returns when all events are logged or ctx is over; later ones are not logged.
func (v *Events) wait(ctx context.Context) {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	done := make(chan struct{})
	go func() {
		v.idle.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
