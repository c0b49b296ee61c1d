// Package consul is the border to Consul: a discovery source with one watch for each service, the watch of a prefix of
// its key-value store, and the operations on keys that the command line offers.
//
// It owns its HTTP client, with bounds on connections, time and size, and one goroutine for each watch. A query that
// waits for a change continues where the last answer was; a wake-up that changed nothing is told from one that did, and
// the pace is bounded whatever the answers are. A failure is reported as one and never as an empty set. Consul's types
// end here. Tests: rogue answers by a scripted server, decisions as tables, virtual time for pace.
package consul

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
)

// Source is the discovery.Source of a Consul registry. It reports all instances, unfit ones included, with their health.
type Source struct {
	// Set by New, then read-only.
	reg    *config.ConsulRegistry
	origin *config.Source
	seed   maphash.Seed
	tempo  tempo
	gate   func(context.Context) error // set before Run; nil: none

	again chan string // services to be asked for at once
}

// New makes the source of a registry, without I/O.
func New(reg *config.Registry) (*Source, error) {
	if reg.Consul == nil {
		return nil, errors.New("not a Consul registry")
	}
	return &Source{
		reg:    reg.Consul,
		origin: &config.Source{Name: "registry " + reg.Name, Rank: config.RankCenter},
		seed:   maphash.MakeSeed(),
		tempo:  usual(),
		again:  make(chan string, 16),
	}, nil
}

// Gate implements discovery.Gated.
func (s *Source) Gate(wait func(context.Context) error) { s.gate = wait }

// Refresh implements discovery.Refresher. What comes too thick is dropped: the watch hears of changes anyway.
func (s *Source) Refresh(service string) {
	select {
	case s.again <- service:
	default:
	}
}

// refreshEvery is how often a service is asked for at once, at most.
const refreshEvery = time.Second

// Run implements discovery.Source.
func (s *Source) Run(ctx context.Context, want <-chan []string, report func(discovery.Update)) error {
	c, err := newClient(s.reg, s.tempo)
	if err != nil {
		return err
	}
	defer c.close()
	ctx, cancel := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()
	stops := make(map[string]context.CancelFunc)
	ended := make(map[string]chan struct{})
	start := func(name string) {
		wctx, stop := context.WithCancel(ctx)
		before, done := ended[name], make(chan struct{})
		stops[name], ended[name] = stop, done
		watches.Go(func() {
			defer close(done)
			if before != nil {
				<-before // its answers come first
			}
			s.watch(wctx, c, name, report)
		})
	}
	refreshed := make(map[string]time.Time)
	for {
		select {
		case <-ctx.Done():
			return nil
		case name := <-s.again:
			// A watch that begins anew asks for what is there now, and does not wait for a change.
			if stop := stops[name]; stop != nil && time.Since(refreshed[name]) >= refreshEvery {
				refreshed[name] = time.Now()
				stop()
				start(name)
			}
		case names := <-want:
			c.watched(len(names))
			for name, stop := range stops {
				if _, wanted := slices.BinarySearch(names, name); !wanted {
					stop()
					delete(stops, name)
					delete(refreshed, name)
					delete(ended, name)
				}
			}
			for _, name := range names {
				if stops[name] != nil {
					continue
				}
				start(name)
			}
		}
	}
}

// watch follows one service until ctx ends.
func (s *Source) watch(ctx context.Context, c *client, name string, report func(discovery.Update)) {
	path := "/v1/health/service/" + name
	var last sums
	turn := func() bool { return s.gate == nil || !last.known || s.gate(ctx) == nil }
	c.watch(ctx, turn, func(ctx context.Context, client *api.Client, q *api.QueryOptions) (uint64, error) {
		a := answer{seed: s.seed, last: last}
		q.Near, q.Filter = s.reg.Near, s.reg.Filter
		meta, err := client.Raw().Query(path, &a, q.WithContext(withAnswer(ctx, &a)))
		if err != nil {
			return 0, err
		}
		if a.same {
			report(discovery.Update{Service: name, Unchanged: true})
			return meta.LastIndex, nil
		}
		if len(a.entries) == 0 {
			if err := doubtful(ctx, meta, q.Token, "service:read or node:read"); err != nil {
				return 0, err
			}
		}
		list := s.endpoints(a.entries)
		useful := s.hash(list)
		u := discovery.Update{Service: name, Endpoints: list}
		if last.known && useful == last.useful {
			u = discovery.Update{Service: name, Unchanged: true}
		}
		last = sums{known: true, raw: a.raw, useful: useful}
		report(u)
		return meta.LastIndex, nil
	}, func(err error) { report(discovery.Update{Service: name, Err: err}) })
}

// sums are what is kept of an answer, to tell whether the next one says anything new.
type sums struct {
	known       bool
	raw, useful uint64
}

// doubtful says why an empty answer is no answer: access control hides what a token may not read, without an error.
// rights are those that the token lacks then.
func doubtful(ctx context.Context, meta *api.QueryMeta, token, rights string) error {
	switch {
	case meta.ResultsFilteredByACLs:
		return &Error{Kind: Forbidden, Text: "access control removed everything from the answer: the token lacks " + rights}
	case token == "" && meta.DefaultACLPolicy == "deny":
		return &Error{Kind: Forbidden, Text: "no token is given, and access control denies by default"}
	}
	return ctx.Err()
}

// pause waits for d and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
