package telemetry

import (
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"math"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sidecar-mesh/sidecar/resilience"
)

// Options configure a Recorder; the zero value is usable.
type Options struct {
	Log       *slog.Logger     // one line per event; nil: none
	AccessLog AccessLog        // zero: none
	Buckets   []float64        // upper bounds of latency histograms in seconds, ascending; nil: DefaultBuckets
	MaxSeries int              // bound on series, and on services; 0: 20 000
	Version   string           // of the build
	Revision  string           // of the source
	Now       func() time.Time // nil: time.Now
	Stdout    io.Writer        // what the access log calls stdout; nil: the process's
	Stderr    io.Writer        // likewise
}

// DefaultBuckets returns the default upper bounds of latency histograms, in seconds.
func DefaultBuckets() []float64 {
	return []float64{
		0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
	}
}

// Recorder counts, logs and shows what happens. Record and the methods of its handles may be called by any goroutine
// and never block. Whoever made it closes it.
type Recorder struct {
	// set by New, then read-only
	now    func() time.Time
	bounds []int64 // nanoseconds
	none   [2]*Series
	prom   *prometheus.Registry

	own own

	registry registry
	events   Events
	log      accessLog
	parts    parts
}

// New returns a running Recorder. It fails when the access log cannot be opened or the buckets make no sense.
func New(o Options) (*Recorder, error) {
	r := &Recorder{now: o.Now}
	if r.now == nil {
		r.now = time.Now
	}
	buckets := o.Buckets
	if buckets == nil {
		buckets = DefaultBuckets()
	}
	for i, b := range buckets {
		if !(b > 0 && b < 1e6) || i > 0 && b <= buckets[i-1] {
			return nil, fmt.Errorf("telemetry: bucket %v: bounds must be seconds, positive and ascending", b)
		}
		r.bounds = append(r.bounds, int64(math.Round(b*1e9)))
	}
	if o.MaxSeries <= 0 {
		o.MaxSeries = 20_000
	}
	r.registry = registry{
		seed: maphash.MakeSeed(), max: o.MaxSeries, bounds: buckets,
		series: map[uint64]*Series{}, services: map[string]*service{},
	}
	r.none = [2]*Series{r.Series(Outbound, "", ""), r.Series(Inbound, "", "")}
	r.events.log = o.Log
	r.events.now = r.now
	r.parts.started = r.now()
	r.log.stdout, r.log.stderr, r.log.failed = o.Stdout, o.Stderr, r.logFailed
	if err := r.SetAccessLog(o.AccessLog); err != nil {
		return nil, err
	}
	r.prom = newRegistry(r, o)
	return r, nil
}

// Series returns the counters of a route, the same ones for the same names. Names must come from configuration, never
// from a request. Beyond the bound of Options.MaxSeries it returns a shared series named "_overflow".
func (r *Recorder) Series(dir Direction, service, route string) *Series {
	return r.registry.get(dir&1, service, route)
}

// Retain forgets the counters of services and routes for which live returns false; route "" stands for the service as
// a whole. Series and handles that are still held stay usable, but are not shown any more.
func (r *Recorder) Retain(live func(service, route string) bool) {
	r.registry.retain(live)
	r.parts.protections.retain(func(service string) bool { return live(service, "") })
}

// Record counts and logs one exchange, and ends the Begin of its Series. It allocates nothing once the series has been
// used, never blocks, and keeps no reference to o.
func (r *Recorder) Record(o *Outcome) {
	s := o.Series
	dir := o.Direction & 1
	if s == nil {
		s = r.none[dir]
	}
	c := s.counters()
	tcp := o.Protocol == "tcp"
	in, out := &c.in, &c.out
	if tcp {
		in, out = &c.tcpIn, &c.tcpOut
	}
	if n := o.BytesIn - o.countedIn; n > 0 {
		in.Add(uint64(n))
		o.countedIn = o.BytesIn
	}
	if n := o.BytesOut - o.countedOut; n > 0 {
		out.Add(uint64(n))
		o.countedOut = o.BytesOut
	}
	if !o.Ongoing {
		r.count(o, s, c, tcp)
	}
	r.log.record(o)
}

// count adds a finished exchange.
func (r *Recorder) count(o *Outcome, s *Series, c *counters, tcp bool) {
	if o.Series != nil {
		c.inFlight.Add(-1)
	}
	if o.Attempts > 0 {
		c.attempts.Add(uint64(o.Attempts))
	}
	if o.Retries > 0 {
		c.retries.Add(uint64(o.Retries))
	}
	if o.Replays > 0 {
		c.replays.Add(uint64(o.Replays))
	}
	if o.Backups > 0 {
		c.backups.Add(uint64(o.Backups))
		if o.BackupWon {
			c.won.Add(1)
		}
	}
	method := uint32(methodTCP)
	if !tcp {
		method = methodClass(o.Method)
	}
	if o.GRPC != resilience.NotGRPC {
		c.countGRPC(o)
	}
	c.cells.add(pack(method, statusClass(o.Status), o.Reason))
	took := o.Total
	if o.Upgraded {
		took = o.FirstByte // the rest is the conversation of others
	}
	if o.Version != nil {
		o.Version.add(o, took)
	}
	if !tcp && took > 0 {
		s.svc.latencyOf(s.dir, r.bounds).observe(o.Start.Add(o.Total), took)
	}
}

// Handler serves the metrics in the text formats of Prometheus and OpenMetrics.
func (r *Recorder) Handler() http.Handler { return handler(r.prom) }

// Close stops logging, once what is pending is written or ctx is over. Record may still be called; it only counts.
func (r *Recorder) Close(ctx context.Context) error {
	err := r.log.close(ctx)
	r.events.wait(ctx)
	return err
}
