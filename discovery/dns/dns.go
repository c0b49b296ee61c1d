// Package dns is a discovery source that resolves names: those in addresses (`cache.internal:8080`), SRV records
// (`srv:NAME`, `_http._tcp.catalog.internal`), and services that come from a DNS registry (a bare name).
//
// It owns a schedule of the names wanted and what each resolved to last. It asks name servers itself, with EDNS0 and a
// fallback to TCP, since the system's resolver hides TTLs and tells failures from empty answers badly; it honours
// /etc/hosts, and search domains and ndots of /etc/resolv.conf, and reads both again when they change.
//
// Tests: a name server on the loopback interface that answers, truncates, fails and falls silent by script.
package dns

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
)

// The defaults of a DNS registry's fields, and the bounds of the schedule.
const (
	defaultMinTTL  = time.Second
	defaultMaxTTL  = 5 * time.Minute
	defaultTimeout = 2 * time.Second

	parallel   = 32               // names looked up at once: never a storm, however many there are
	lookupMax  = 30 * time.Second // one look-up with all its questions
	retryMin   = time.Second      // after a failure, doubled up to
	retryMax   = 30 * time.Second
	goneAfter  = time.Minute // a known name must be denied for so long, and
	goneTimes  = 3           // so many times in a row, before its addresses go
	jitterPart = 10          // a tenth is added at random to every pause
)

// Source is the discovery.Source of a DNS registry. Its names are what Merger asks for: addresses with a name,
// `srv:NAME`, or a bare name, which is an SRV record or, where there is none, a host with port 80.
//
// A failure (time-out, SERVFAIL, REFUSED) is an error update: the last good set stays for as long as it lasts. That a name
// does not exist, or has no records, is a failure too where it was never known; where it was, its addresses stay until
// that was said three times and for a minute, and then an empty set follows: name servers deny existing names while they
// start or lose their zone, and a wrong empty set costs more than a late one.
type Source struct {
	// Set by New, then read-only.
	minTTL, maxTTL time.Duration
	retry          time.Duration
	gone           time.Duration
	client         *client
}

// New makes the source of a registry, without I/O.
func New(reg *config.Registry) (*Source, error) {
	if reg.DNS == nil {
		return nil, errors.New("not a DNS registry")
	}
	d := *reg.DNS
	positive := func(v, def time.Duration) time.Duration {
		if v <= 0 {
			return def
		}
		return v
	}
	s := &Source{minTTL: positive(d.MinTTL, defaultMinTTL), retry: retryMin, gone: goneAfter}
	s.maxTTL = max(positive(d.MaxTTL, defaultMaxTTL), s.minTTL)
	s.client = &client{
		servers: d.Servers,
		timeout: positive(d.Timeout, defaultTimeout),
		system:  &system{resolv: "/etc/resolv.conf", hostsFile: "/etc/hosts", every: 5 * time.Second},
	}
	return s, nil
}

// entry is one wanted name.
type entry struct {
	name   string
	target target
	next   time.Time // when it is looked up again
	at     int       // in the heap; -1 while it is being looked up, or dropped
	state
}

// state is what is remembered of a name.
type state struct {
	known bool // resolved at least once
	empty bool // and then gone
	fails int  // in a row
	since time.Time
	gone  int // denials in a row, the first one at since

	hosts map[string]answer // of the targets of its SRV records, as they resolved last
}

// result is one look-up that is over.
type result struct {
	entry     *entry
	endpoints []*config.Endpoint
	ttl       time.Duration
	hosts     map[string]answer
	err       error
}

// Run implements discovery.Source.
func (s *Source) Run(ctx context.Context, want <-chan []string, report func(discovery.Update)) error {
	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	r := runner{source: s, entries: make(map[string]*entry), report: report}
	results := make(chan result)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		for r.busy < parallel && len(r.queue) > 0 && !r.queue[0].next.After(time.Now()) {
			e := heap.Pop(&r.queue).(*entry)
			r.busy++
			known := e.hosts
			workers.Go(func() {
				res := s.lookup(ctx, e.target, known)
				res.entry = e
				select {
				case results <- res:
				case <-ctx.Done():
				}
			})
		}
		pause := time.Hour
		if r.busy < parallel && len(r.queue) > 0 {
			pause = time.Until(r.queue[0].next)
		}
		timer.Reset(max(pause, 0))
		select {
		case <-ctx.Done():
			return nil
		case names := <-want:
			r.want(names)
		case res := <-results:
			r.busy--
			r.finish(res)
		case <-timer.C:
		}
	}
}

// runner is the schedule, owned by Run's goroutine.
type runner struct {
	source  *Source
	entries map[string]*entry
	queue   queue // entries that wait
	busy    int
	report  func(discovery.Update)
}

// want makes names the ones that are looked up.
func (r *runner) want(names []string) {
	old := r.entries
	r.entries = make(map[string]*entry, len(names))
	now := time.Now()
	for _, name := range names {
		if e := old[name]; e != nil {
			r.entries[name] = e
			delete(old, name)
			continue
		}
		t, err := parseTarget(name)
		if err != nil {
			r.report(discovery.Update{Service: name, Err: err})
			continue
		}
		e := &entry{name: name, target: t, next: now}
		r.entries[name] = e
		heap.Push(&r.queue, e)
	}
	for _, e := range old {
		if e.at >= 0 {
			heap.Remove(&r.queue, e.at)
		}
	}
}

// finish reports a look-up and says when the name is due again.
func (r *runner) finish(res result) {
	e, s := res.entry, r.source
	if r.entries[e.name] != e {
		return // no longer wanted
	}
	now := time.Now()
	u := discovery.Update{Service: e.name, Endpoints: res.endpoints, Err: res.err}
	pause := min(max(res.ttl, s.minTTL), s.maxTTL)
	switch {
	case res.err == nil:
		e.state = state{known: true, hosts: res.hosts}
	case errors.Is(res.err, errGone) && e.known:
		if e.gone == 0 {
			e.since = now
		}
		e.gone++
		if e.empty || e.gone >= goneTimes && now.Sub(e.since) >= s.gone {
			e.empty, e.hosts = true, nil
			u.Endpoints, u.Err = []*config.Endpoint{}, nil
		}
	default:
		e.gone = 0
	}
	if res.err != nil {
		pause = min(max(s.retry, s.minTTL)<<min(e.fails, 10), max(retryMax, s.minTTL))
		e.fails++
	}
	e.next = now.Add(pause + rand.N(pause/jitterPart+1))
	heap.Push(&r.queue, e)
	r.report(u)
}

// queue is a heap of entries by when they are due.
type queue []*entry

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].next.Before(q[j].next) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	e := x.(*entry)
	e.at = len(*q)
	*q = append(*q, e)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	e.at = -1
	return e
}
