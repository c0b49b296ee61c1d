package telemetry

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

const (
	maxValues    = 32   // of a label that code chooses, such as the name of a limit
	maxListeners = 1000 // listeners and discovery sources, each
	whys         = 16   // room for resilience.Why
)

// counts are counters by one label whose values come from code. It is for rare events and refusals.
type counts struct {
	mu sync.RWMutex
	m  map[string]*atomic.Uint64
}

func (c *counts) add(value string) {
	c.mu.RLock()
	n := c.m[value]
	c.mu.RUnlock()
	if n == nil {
		n = c.make(label(value))
	}
	n.Add(1)
}

func (c *counts) make(value string) *atomic.Uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = map[string]*atomic.Uint64{}
	}
	if len(c.m) >= maxValues && c.m[value] == nil {
		value = overflow
	}
	if c.m[value] == nil {
		c.m[value] = new(atomic.Uint64)
	}
	return c.m[value]
}

func (c *counts) each(f func(value string, n uint64)) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for v, n := range c.m {
		f(v, n.Load())
	}
}

// Upstream counts what happens towards the endpoints of one service, all of them together. Its methods may be called
// by any goroutine.
type Upstream struct {
	service               string
	open, idle            atomic.Int64
	known                 atomic.Int64 // endpoints, plus 1; 0: never told
	listed                atomic.Int64 // endpoints that known are a subset of; 0: they are all
	usable                atomic.Int64
	connects              atomic.Uint64
	connectTime           atomic.Uint64 // nanoseconds of successful connects
	failures              [resilience.Reasons]atomic.Uint64
	why                   [whys]atomic.Uint64
	body                  atomic.Uint64 // replays given up because the body was too large to keep
	ejections             counts
	spared                counts
	panics                atomic.Uint64
	readmitted            atomic.Uint64
	breakerTo             [breakerStates]atomic.Uint64 // changes of the breakers of endpoints
	offline, online       atomic.Uint64                // endpoints that said they leave, and that stayed
	sparedTold, panicTold atomic.Int64                 // Unix nanoseconds of the last event
	limits                counts
	away                  counts // GOAWAY of HTTP/2 by code
	mirrored              counts // copies of requests, by what became of them
	stoodIn               counts // answers in place of the service, by what did it
	versions              versions
}

// UpstreamConn returns the handle of a service's connections, the same one for the same name.
func (r *Recorder) UpstreamConn(service string) *Upstream {
	return r.registry.service(service).upstream()
}

func (s *service) upstream() *Upstream {
	if u := s.up.Load(); u != nil {
		return u
	}
	s.up.CompareAndSwap(nil, &Upstream{service: s.name})
	return s.up.Load()
}

// Opened counts a connection that was made, which took took.
func (u *Upstream) Opened(took time.Duration) {
	u.open.Add(1)
	u.connects.Add(1)
	u.connectTime.Add(uint64(max(took, 0)))
}

// Closed ends an Opened.
func (u *Upstream) Closed() { u.open.Add(-1) }

// Idle changes the number of open connections that wait for work by n.
func (u *Upstream) Idle(n int) { u.idle.Add(int64(n)) }

// Failed counts a connect that failed with ConnectFailed, ConnectTimeout or another reason.
func (u *Upstream) Failed(reason resilience.Reason) {
	if reason < resilience.Reasons {
		u.failures[reason].Add(1)
	}
}

// Mirrored counts a copy of a request by what became of it: sent, failed, full (too many were on their way), body (it was not
// at hand).
func (u *Upstream) Mirrored(result string) { u.mirrored.add(result) }

// StoodIn counts an answer in place of the service, by what gave it: a shield (no call was made) or a fallback (the call
// failed).
func (u *Upstream) StoodIn(kind string) { u.stoodIn.add(kind) }

// Away counts a GOAWAY of an endpoint by its code.
func (u *Upstream) Away(code string) { u.away.add(code) }

// Endpoints sets how many endpoints the service has, and how many of them are usable.
func (u *Upstream) Endpoints(known, usable int) {
	u.usable.Store(int64(usable))
	u.known.Store(int64(known) + 1)
}

// Subset sets how many endpoints the known ones are a subset of; 0: they are all.
func (u *Upstream) Subset(of int) { u.listed.Store(int64(of)) }

// Decided counts a decision of the call plan to try again (WhyRetry, WhyStale) or not to (WhyBudget, WhyBody, …).
func (u *Upstream) Decided(why resilience.Why) {
	if why < whys {
		u.why[why].Add(1)
	}
}

// BodyTooLarge counts an exchange that lost its chance of a retry because its body was too large to keep.
func (u *Upstream) BodyTooLarge() { u.body.Add(1) }

// LimitRefused counts a request refused by the limit of that name.
func (u *Upstream) LimitRefused(limit string) { u.limits.add(limit) }

// Listener counts the downstream connections of one listener.
type Listener struct {
	dir     Direction
	name    string
	open    atomic.Int64
	total   atomic.Uint64
	refused counts
}

// Opened counts an accepted connection.
func (l *Listener) Opened() {
	l.open.Add(1)
	l.total.Add(1)
}

// Closed ends an Opened.
func (l *Listener) Closed() { l.open.Add(-1) }

// Refused counts a connection that was refused by the limit of that name.
func (l *Listener) Refused(limit string) { l.refused.add(limit) }

// Source counts what one discovery source delivers.
type Source struct {
	name      string
	updates   atomic.Uint64
	failures  counts // by reason
	failing   atomic.Bool
	confirmed atomic.Int64 // Unix nanoseconds
	rec       *Recorder
}

// Updated counts a change that the source delivered.
func (s *Source) Updated() {
	s.updates.Add(1)
	s.Confirmed()
}

// Confirmed says that the source was heard, whether or not anything changed.
func (s *Source) Confirmed() { s.confirmed.Store(s.rec.now().UnixNano()) }

// Well says that nothing that is wanted of the source fails.
func (s *Source) Well() {
	if s.failing.Swap(false) {
		s.rec.events.Add(Event{Kind: EventDiscovery, Detail: "heard again: " + s.name, To: "ok"})
	}
}

// Failed counts a failure to hear from the source, under a reason of few words. Only the first of a row is an event.
func (s *Source) Failed(reason, detail string) {
	s.failures.add(reason)
	if !s.failing.Swap(true) {
		s.rec.events.Add(Event{Kind: EventDiscovery, Detail: s.name + ": " + detail, To: "failing"})
	}
}

// parts are the counters of the process that belong to no series.
type parts struct {
	started   time.Time
	mu        sync.Mutex
	listeners map[listenerKey]*Listener
	sources   map[string]*Source

	protections  protections
	keptFailures atomic.Uint64
	gate         atomic.Pointer[func() int]

	reloads    [2]atomic.Uint64 // failed, ok
	reloadAt   [2]atomic.Int64  // Unix nanoseconds
	reloadTook atomic.Int64     // nanoseconds of the last one
	revision   atomic.Uint64
	scripts    atomic.Uint64
	scriptTold atomic.Int64 // Unix nanoseconds of the last event
	logTold    atomic.Int64 // the same
	windows    atomic.Pointer[func() int64]
	moderated  atomic.Pointer[func() int]
	retired    [2]counts       // connections downstream and upstream, by why
	documents  [4]atomic.Int64 // in force, kept, refused, restored
	inherited  atomic.Pointer[[]InheritedCount]
	rules      atomic.Pointer[[]RuleCount]
	limits     counts
	abuse      abuse
	switches   states
}

type listenerKey struct {
	dir  Direction
	name string
}

// Listener returns the handle of a listener's connections, the same one for the same name. Names come from configuration.
func (r *Recorder) Listener(dir Direction, name string) *Listener {
	p := &r.parts
	p.mu.Lock()
	defer p.mu.Unlock()
	k := listenerKey{dir & 1, label(name)}
	if l := p.listeners[k]; l != nil {
		return l
	}
	if len(p.listeners) >= maxListeners {
		k.name = overflow
		if l := p.listeners[k]; l != nil {
			return l
		}
	}
	if p.listeners == nil {
		p.listeners = map[listenerKey]*Listener{}
	}
	l := &Listener{dir: k.dir, name: k.name}
	p.listeners[k] = l
	return l
}

// RetainListeners forgets the listeners for which live returns false.
func (r *Recorder) RetainListeners(live func(dir Direction, name string) bool) {
	p := &r.parts
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.listeners {
		if k.name != overflow && !live(k.dir, k.name) {
			delete(p.listeners, k)
		}
	}
}

// Source returns the handle of a discovery source, the same one for the same name. Names come from configuration.
func (r *Recorder) Source(name string) *Source {
	p := &r.parts
	p.mu.Lock()
	defer p.mu.Unlock()
	name = label(name)
	if s := p.sources[name]; s != nil {
		return s
	}
	if len(p.sources) >= maxListeners {
		name = overflow
		if s := p.sources[name]; s != nil {
			return s
		}
	}
	if p.sources == nil {
		p.sources = map[string]*Source{}
	}
	s := &Source{name: name, rec: r}
	p.sources[name] = s
	return s
}

// SourceClosed forgets a source that is no longer configured: what it was last like would be shown for ever.
func (r *Recorder) SourceClosed(name string) {
	r.parts.mu.Lock()
	defer r.parts.mu.Unlock()
	delete(r.parts.sources, label(name))
}

// Reload counts an attempt to put a configuration into force, which took took; detail says what changed, or all errors.
func (r *Recorder) Reload(ok bool, took time.Duration, detail string) {
	i, to := 0, "failed"
	if ok {
		i, to = 1, "ok"
	}
	p := &r.parts
	p.reloads[i].Add(1)
	p.reloadAt[i].Store(r.now().UnixNano())
	p.reloadTook.Store(int64(took))
	r.events.Add(Event{Kind: EventReload, To: to, Detail: detail})
}

// Documents says how many documents of the config centre are in force as they were written, of how many an earlier version
// is, and how many do not count. Stale says that they are those of an earlier run.
type Documents struct {
	InForce, Kept, Refused int
	Stale                  bool
}

// Documents says how the documents of the config centre are doing.
func (r *Recorder) Documents(d Documents) {
	n := [...]int{d.InForce, d.Kept, d.Refused, 0}
	if d.Stale {
		n[0], n[3] = 0, d.InForce
	}
	for i := range n {
		r.parts.documents[i].Store(int64(n[i]))
	}
}

// DocumentRefused tells of a document of the config centre that does not count as it is written.
func (r *Recorder) DocumentRefused(detail string) {
	r.events.Add(Event{Kind: EventReload, To: "document refused", Detail: detail})
}

// Revision sets the hash of the configuration in force. Its low 48 bits are shown, which a float64 holds exactly.
func (r *Recorder) Revision(hash uint64) { r.parts.revision.Store(hash & (1<<48 - 1)) }

// GroupSwitched tells that calls meant for a group go to others, or to it again.
func (r *Recorder) GroupSwitched(service, from, to, detail string) {
	r.events.Add(Event{Kind: EventGroup, Service: service, From: from, To: to, Detail: detail})
}

// ScriptFailed counts a run of a script rule that failed. The first and then one a minute at most is an event.
func (r *Recorder) ScriptFailed(err error) {
	r.parts.scripts.Add(1)
	if r.tellAgain(&r.parts.scriptTold) {
		r.events.Add(Event{Kind: EventScript, To: "failed", Detail: err.Error()})
	}
}

// logFailed tells of a failure of the access log, which counts them. The first and then one a minute at most is an event.
func (r *Recorder) logFailed(err error) {
	if r.tellAgain(&r.parts.logTold) {
		r.events.Add(Event{Kind: EventAccessLog, To: "failing", Detail: err.Error()})
	}
}

// tellAgain reports whether something that was told last at that time is to be told again, and notes that it is.
func (r *Recorder) tellAgain(last *atomic.Int64) bool {
	now := r.now().UnixNano()
	told := last.Load()
	return (told == 0 || now-told > int64(time.Minute)) && last.CompareAndSwap(told, now)
}

// Retired counts a connection of HTTP/2 that was left for a new one, on the side "downstream" or "upstream".
func (r *Recorder) Retired(side, why string) {
	if side == "upstream" {
		r.parts.retired[1].add(why)
	} else {
		r.parts.retired[0].add(why)
	}
}

// Moderated has the page of metrics tell what turns returns: HTTP/2 connections that are read at a steady pace.
func (r *Recorder) Moderated(turns func() int) { r.parts.moderated.Store(&turns) }

// WindowMemory has the page of metrics tell what used returns: octets that HTTP/2 peers were promised beyond their first windows.
func (r *Recorder) WindowMemory(used func() int64) { r.parts.windows.Store(&used) }

// RuleCount says how many rules a service has, and how high their source ranks.
type RuleCount struct {
	Service, Rank string
	Rules         int
}

// Rules sets which rules are in force. The list belongs to the recorder from here on; its names come from configuration.
func (r *Recorder) Rules(list []RuleCount) { r.parts.rules.Store(&list) }

// LimitRefused counts a refusal by a limit of the whole process, such as "connections" or "header_bytes".
func (r *Recorder) LimitRefused(limit string) { r.parts.limits.add(limit) }

// Ejected tells that outlier detection took an endpoint out; why is a rule's name, such as "consecutive_failures".
func (r *Recorder) Ejected(service, endpoint, why string) {
	r.UpstreamConn(service).ejections.add(why)
	r.events.Add(Event{Kind: EventEjected, Service: service, Endpoint: endpoint, Detail: why})
}

// Spared tells that an endpoint deserved to be taken out and was not, since too many others are out or none is left. Every
// further failure says so again; the event is told once in a while.
func (r *Recorder) Spared(service, endpoint, why string) {
	u := r.UpstreamConn(service)
	u.spared.add(why)
	if u.quiet(&u.sparedTold, r.now()) {
		r.events.Add(Event{Kind: EventSpared, Service: service, Endpoint: endpoint, Detail: why})
	}
}

// Panic tells that a call went to an endpoint although none was usable (panic: serve_all).
func (r *Recorder) Panic(service, endpoint string) {
	u := r.UpstreamConn(service)
	u.panics.Add(1)
	if u.quiet(&u.panicTold, r.now()) {
		r.events.Add(Event{Kind: EventPanic, Service: service, Endpoint: endpoint, Detail: "no endpoint is usable: all are served"})
	}
}

// tellEvery is how often an event that goes on is told.
const tellEvery = 10 * time.Second

// quiet reports whether an event was not told lately, and notes that it is told now.
func (u *Upstream) quiet(told *atomic.Int64, now time.Time) bool {
	was := told.Load()
	return now.UnixNano()-was >= int64(tellEvery) && told.CompareAndSwap(was, now.UnixNano())
}

// Readmitted tells that an ejected endpoint is back.
func (r *Recorder) Readmitted(service, endpoint string) {
	r.UpstreamConn(service).readmitted.Add(1)
	r.events.Add(Event{Kind: EventReadmitted, Service: service, Endpoint: endpoint})
}

// Offline tells that an endpoint said that it leaves, and is left out for so long.
func (r *Recorder) Offline(service, endpoint string, hold time.Duration) {
	r.UpstreamConn(service).offline.Add(1)
	r.events.Add(Event{
		Kind: EventOffline, Service: service, Endpoint: endpoint,
		Detail: "it says that it leaves; left out for " + hold.Round(time.Second).String(),
	})
}

// Online tells that such an endpoint is used again.
func (r *Recorder) Online(service, endpoint, why string) {
	r.UpstreamConn(service).online.Add(1)
	r.events.Add(Event{Kind: EventOnline, Service: service, Endpoint: endpoint, Detail: why})
}

// breaker states; the gauge shows these numbers.
const (
	breakerClosed = iota
	breakerHalfOpen
	breakerOpen
	breakerOther
	breakerStates
)

func breakerState(name string) int {
	switch name {
	case "closed":
		return breakerClosed
	case "half_open":
		return breakerHalfOpen
	case "open":
		return breakerOpen
	}
	return breakerOther
}

func breakerName(state int) string {
	return [...]string{"closed", "half_open", "open", "other"}[state]
}

// BreakerChanged tells that the circuit breaker of an outbound route (or with route "", service) changed between the
// states "closed", "half_open" and "open"; why is the knob, and what was counted.
func (r *Recorder) BreakerChanged(service, route, from, to, why string) {
	c := r.Series(Outbound, service, route).counters()
	state := breakerState(to)
	c.breaker.Store(int32(state) + 1)
	c.breakerTo[state].Add(1)
	r.events.Add(Event{Kind: EventBreaker, Service: service, Route: route, From: from, To: to, Detail: why})
}

// EndpointBreakerChanged tells the same of the breaker of an endpoint.
func (r *Recorder) EndpointBreakerChanged(service, endpoint, from, to, why string) {
	r.UpstreamConn(service).breakerTo[breakerState(to)].Add(1)
	r.events.Add(Event{Kind: EventBreaker, Service: service, Endpoint: endpoint, From: from, To: to, Detail: why})
}
