package demo

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// caller is the app beside the proxy: it sends requests to it and keeps count of what came back.
type caller struct {
	proxy  string // host:port
	client http.Client
	closed atomic.Int64 // connections that ended

	mu    sync.Mutex
	calls map[string]int // by service, all that were ever made
	fails map[string]int // of those, how many failed
}

// callTimeout is longer than any time limit of the proxy: it must never be what ends a call.
const callTimeout = 30 * time.Second

func newCaller(proxy string) *caller {
	c := &caller{proxy: proxy, calls: map[string]int{}, fails: map[string]int{}}
	c.client = http.Client{
		Timeout: callTimeout,
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			var d net.Dialer
			nc, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &countedConn{Conn: nc, closed: &c.closed}, nil
		}},
	}
	return c
}

// countedConn tells of its end.
type countedConn struct {
	net.Conn

	closed *atomic.Int64
	once   sync.Once
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.once.Do(func() { c.closed.Add(1) })
	return c.Conn.Close()
}

// answer is what one call came to.
type answer struct {
	status int    // 0: no answer at all
	reason string // x-sidecar-reason: the proxy answered itself
	toy    string // which endpoint answered
	body   string
	took   time.Duration
}

// call asks a service for a path, by way of the proxy.
func (c *caller) call(ctx context.Context, service, path string) answer {
	c.mu.Lock()
	c.calls[service]++
	c.mu.Unlock()
	start := time.Now()
	var a answer
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.proxy+path, nil)
	if err == nil {
		q.Host = service
		var r *http.Response
		if r, err = c.client.Do(q); err == nil {
			a = answer{status: r.StatusCode, reason: r.Header.Get("X-Sidecar-Reason"), toy: r.Header.Get("X-Toy")}
			var body []byte
			body, err = io.ReadAll(r.Body)
			a.body = string(body)
			_ = r.Body.Close()
		}
	}
	if err != nil {
		a = answer{reason: err.Error()}
	}
	a.took = time.Since(start)
	if a.failed() {
		c.mu.Lock()
		c.fails[service]++
		c.mu.Unlock()
	}
	return a
}

// failed reports whether there was no answer, or one by the proxy or an endpoint that something went wrong. What a switch
// answers instead of the service is none of these.
func (a *answer) failed() bool {
	return a.status == 0 || a.status >= 500 || a.reason != "" && a.reason != degraded
}

// count returns how many calls of a service were made.
func (c *caller) count(service string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[service]
}

// failures returns how many of them failed.
func (c *caller) failures(service string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fails[service]
}

// tally is what became of some calls.
type tally struct {
	calls, failed int
	toys          map[string]int // answers by endpoint
	reasons       map[string]int // failures by reason
	degraded      int            // answers of a switch
	took          []time.Duration
	refused       []time.Duration // of those, calls that an open breaker refused
}

func newTally() *tally { return &tally{toys: map[string]int{}, reasons: map[string]int{}} }

func (t *tally) add(a answer) {
	t.calls++
	t.took = append(t.took, a.took)
	if a.toy != "" {
		t.toys[a.toy]++
	}
	if a.reason == degraded {
		t.degraded++
	}
	if a.reason == breakerOpen {
		t.refused = append(t.refused, a.took)
	}
	if a.failed() {
		t.failed++
		t.reasons[a.reason]++
	}
}

// above counts the calls that took longer than d.
func (t *tally) above(d time.Duration) (n int) {
	for _, took := range t.took {
		if took > d {
			n++
		}
	}
	return n
}

// quantile returns what a share of the durations does not exceed; 0 when there are none.
func quantile(list []time.Duration, share float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	list = slices.Clone(list)
	slices.Sort(list)
	return list[min(len(list)-1, int(share*float64(len(list))))]
}

// burst makes n calls, as fast as a few workers can.
func (c *caller) burst(ctx context.Context, service, path string, n int) *tally {
	var mu sync.Mutex
	all, left := newTally(), n
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for {
				mu.Lock()
				left--
				more := left >= 0
				mu.Unlock()
				if !more || ctx.Err() != nil {
					return
				}
				a := c.call(ctx, service, path)
				mu.Lock()
				all.add(a)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return all
}

// traffic is steady load on one service, until it is stopped.
type traffic struct {
	stop    context.CancelFunc
	workers sync.WaitGroup

	mu  sync.Mutex
	now *tally
}

// crowd is how many workers make steady traffic, each with a pause between two calls.
const (
	crowd = 8
	pause = 10 * time.Millisecond
)

// steady starts traffic on a service.
func (c *caller) steady(ctx context.Context, service, path string) *traffic {
	quit, stop := context.WithCancel(ctx)
	t := &traffic{stop: stop, now: newTally()}
	for range crowd {
		t.workers.Go(func() {
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for quit.Err() == nil {
				a := c.call(ctx, service, path) // a call in progress is let finish
				t.mu.Lock()
				t.now.add(a)
				t.mu.Unlock()
				select {
				case <-tick.C:
				case <-quit.Done():
				}
			}
		})
	}
	return t
}

// take returns what became of the calls since the last take.
func (t *traffic) take() *tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.now
	t.now = newTally()
	return was
}

// calls returns how many calls ended since the last take.
func (t *traffic) calls() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now.calls
}

// end stops the traffic and returns the rest.
func (t *traffic) end() *tally {
	t.stop()
	t.workers.Wait()
	return t.take()
}
