package telemetry

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// The kinds of events. From and To say what changed into what, where there is a from.
const (
	EventEjected    = "ejected"    // an endpoint is kept out
	EventReadmitted = "readmitted" // and is back
	EventSpared     = "spared"     // it should have been ejected, and was kept for want of others
	EventOffline    = "offline"    // an endpoint is left out since it says that it leaves
	EventOnline     = "online"     // and is used again
	EventPanic      = "panic"      // no endpoint is usable: all are served
	EventBreaker    = "breaker"    // a breaker went From one state To another
	EventSwitch     = "switch"     // a degradation switch: To is its level and mode, or "off"; By who did it
	EventGroup      = "group"      // calls for the group From go to the group To
	EventProtection = "protection" // a guard of discovery: To "holding" (endpoints that the registry lost), "released"
	EventSnapshot   = "snapshot"   // what is kept on disk cannot be kept or used, To "failing", can again, To "ok", or stands in, To "holding"
	EventGate       = "gate"       // the update gate: To "closed" or "open"; By who did it
	EventZombie     = "zombie"     // an endpoint is listed as well and cannot be reached: To "unreachable" or "ok"
	EventShed       = "shed"       // overload: requests From a priority downwards are refused, or To "none"
	EventEndpoints  = "endpoints"  // endpoints came and went
	EventApp        = "app"        // our app To "well" or "ill"
	EventDrain      = "drain"      // To "draining" or "drained"
	EventAccessLog  = "access_log" // lines cannot be written, or the file not be opened: To "failing"
	EventReload     = "reload"     // a configuration: To "ok" or "failed"
	EventRule       = "rule"       // a rule that acts for a while, as a ban does: To "acting", "over" or "withdrawn"
	EventScript     = "script"     // a script rule: To "failed"
	EventAbuse      = "abuse"      // clients abuse HTTP/2 and are "slowed" or "held"; By is their address
	EventDiscovery  = "discovery"  // a source: To "failing" or "ok"
)

const (
	eventRoom   = 1000 // events that are remembered
	eventDetail = 1024 // bytes kept of a text
)

// Event is something that an operator may want to know about, other than one exchange: a change of verdict. Empty fields
// do not apply.
type Event struct {
	Seq      uint64    `json:"seq"` // 1, 2, … since the process started; given by Add
	Time     time.Time `json:"time"`
	Kind     string    `json:"kind"`
	Service  string    `json:"service,omitempty"`
	Route    string    `json:"route,omitempty"`
	Endpoint string    `json:"endpoint,omitempty"`
	From     string    `json:"from,omitempty"`
	To       string    `json:"to,omitempty"`
	By       string    `json:"by,omitempty"` // who or what caused it, where that is not the traffic
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
	more   chan struct{} // closed by the next Add; nil: nobody waits
}

// Events returns the recent events.
func (r *Recorder) Events() *Events { return &r.events }

// Add remembers, counts and logs e. A zero time means now.
func (v *Events) Add(e Event) {
	if e.Time.IsZero() {
		e.Time = v.now()
	}
	for _, s := range []*string{&e.Kind, &e.Service, &e.Route, &e.Endpoint, &e.From, &e.To, &e.By, &e.Detail} {
		if len(*s) > eventDetail {
			*s = cut(*s, eventDetail) + "…"
		}
		*s = strings.Clone(strings.ToValidUTF8(*s, "\uFFFD"))
	}
	v.kinds.add(e.Kind)
	v.mu.Lock()
	defer v.mu.Unlock()
	e.Seq = v.added + 1
	if len(v.ring) < eventRoom {
		v.ring = append(v.ring, e)
	} else {
		v.ring[v.added%eventRoom] = e
	}
	v.added++
	if v.more != nil {
		close(v.more)
		v.more = nil
	}
	if v.log != nil && !v.busy && !v.closed {
		v.busy = true
		v.idle.Go(v.drain)
	}
}

// Snapshot returns the remembered events, oldest first.
func (v *Events) Snapshot() []Event {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sinceLocked(0)
}

// Since returns the remembered events behind seq, oldest first, and what is closed when there are more. Whoever follows
// them asks again then, as fast as it can: it holds nobody, and what was overwritten meanwhile shows as a gap in Seq.
func (v *Events) Since(seq uint64) (list []Event, more <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.more == nil {
		v.more = make(chan struct{})
	}
	return v.sinceLocked(seq), v.more
}

func (v *Events) sinceLocked(seq uint64) []Event {
	n := uint64(len(v.ring))
	if seq <= v.added { // else it is one of a process before this one
		n = min(n, v.added-seq)
	}
	list := make([]Event, 0, n)
	for i := v.added - n; i < v.added; i++ {
		list = append(list, v.ring[i%eventRoom])
	}
	return list
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

// Alarming reports whether somebody should look at e: something works less well than before.
func (e *Event) Alarming() bool {
	switch e.Kind {
	case EventEjected, EventSpared, EventPanic:
		return true
	case EventSwitch:
		return e.To != "off"
	case EventShed:
		return e.To != "none"
	}
	switch e.To {
	case "open", "failed", "failing", "holding", "ill", "timeout", "unavailable", "lost":
		return true
	}
	return false
}

func (v *Events) write(e Event) {
	level := slog.LevelInfo
	if e.Alarming() {
		level = slog.LevelWarn
	}
	attrs := make([]slog.Attr, 0, 8)
	for _, a := range []slog.Attr{
		slog.String("service", e.Service), slog.String("route", e.Route), slog.String("endpoint", e.Endpoint),
		slog.String("from", e.From), slog.String("to", e.To), slog.String("by", e.By), slog.String("detail", e.Detail),
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
