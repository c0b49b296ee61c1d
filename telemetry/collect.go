package telemetry

import (
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/sidecar-mesh/sidecar/resilience"
)

func newRegistry(r *Recorder, o Options) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		&collector{rec: r, d: newDescriptions(), version: o.Version, revision: o.Revision},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return reg
}

// handler allows two scrapes at a time, which bounds their memory.
func handler(reg *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: 2})
}

// collector turns the counters into metrics when somebody asks.
type collector struct {
	rec               *Recorder
	d                 *descriptions
	version, revision string
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.d.all {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := scrape{d: c.d, ch: ch}
	for _, v := range c.rec.registry.used() {
		s.route(v)
	}
	now := c.rec.now()
	for _, v := range c.rec.registry.all() {
		s.service(v, c.rec, now)
	}
	s.process(c.rec, now)
	s.gauge(c.d.build, 1, pair("goversion", runtime.Version()), pair("revision", label(c.revision)),
		pair("version", label(c.version)))
}

// sample is one counter or gauge with its labels, which samples share where they can.
type sample struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	value  float64
	gauge  bool
}

// Desc implements prometheus.Metric.
func (s *sample) Desc() *prometheus.Desc { return s.desc }

// Write implements prometheus.Metric.
func (s *sample) Write(m *dto.Metric) error {
	m.Label = s.labels
	if s.gauge {
		m.Gauge = &dto.Gauge{Value: &s.value}
	} else {
		m.Counter = &dto.Counter{Value: &s.value}
	}
	return nil
}

func pair(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

// scrape is one collection under way.
type scrape struct {
	d  *descriptions
	ch chan<- prometheus.Metric
}

func (s *scrape) count(d *prometheus.Desc, n uint64, labels ...*dto.LabelPair) {
	s.ch <- &sample{desc: d, labels: labels, value: float64(n)}
}

func (s *scrape) gauge(d *prometheus.Desc, v float64, labels ...*dto.LabelPair) {
	s.ch <- &sample{desc: d, labels: labels, value: v, gauge: true}
}

// route shows one series.
func (s *scrape) route(v *Series) {
	c, d := v.inner.Load(), s.d
	dir, route, svc := pair("direction", v.dir.String()), pair("route", v.route), pair("service", v.svc.name)
	base := []*dto.LabelPair{dir, route, svc}
	var http, tcp bool
	c.cells.each(func(key uint32, n uint64) {
		m, st, reason := unpack(key)
		why := pair("reason", reason.String())
		if m == methodTCP {
			tcp = true
			s.count(d.tcpConns, n, dir, why, route, svc)
			return
		}
		http = true
		s.count(d.requests, n, dir, pair("method", methodName(m)), why, route, svc, pair("status", statusName(st)))
	})
	s.gauge(d.inFlight, float64(max(c.inFlight.Load(), 0)), base...)
	if http || tcp {
		s.count(d.attempts, c.attempts.Load(), base...)
	}
	if in, out := c.in.Load(), c.out.Load(); http || in+out > 0 {
		s.count(d.retries, c.retries.Load(), base...)
		s.count(d.replays, c.replays.Load(), base...)
		if n := c.backups.Load(); n > 0 {
			s.count(d.backups, n, base...)
			s.count(d.backupsWon, c.won.Load(), base...)
		}
		if g := c.grpc.Load(); g != nil {
			for status := range g.calls {
				if n := g.calls[status].Load(); n > 0 {
					s.count(d.grpcCalls, n, dir, route, svc, pair("status", resilience.GRPC(status).String()))
				}
			}
			s.count(d.grpcMessages, g.in.Load(), dir, route, svc, pair("way", "received"))
			s.count(d.grpcMessages, g.out.Load(), dir, route, svc, pair("way", "sent"))
		}
		s.count(d.requestBytes, in, base...)
		s.count(d.responseBytes, out, base...)
	}
	if in, out := c.tcpIn.Load(), c.tcpOut.Load(); tcp || in+out > 0 {
		s.count(d.tcpReceived, in, base...)
		s.count(d.tcpSent, out, base...)
	}
	if state := c.breaker.Load(); state > 0 {
		s.gauge(d.breakerState, float64(state-1), route, svc)
		for i := range c.breakerTo {
			if n := c.breakerTo[i].Load(); n > 0 {
				s.count(d.breakerChanges, n, route, svc, pair("to", breakerName(i)))
			}
		}
	}
}

// service shows what is kept per service.
func (s *scrape) service(v *service, r *Recorder, now time.Time) {
	svc := pair("service", v.name)
	for i := range v.latency {
		if l := v.latency[i].Load(); l != nil {
			s.latency(l, r.registry.bounds, now, pair("direction", Direction(i).String()), svc)
		}
	}
	if u := v.up.Load(); u != nil {
		s.upstream(u, svc)
	}
}

func (s *scrape) latency(l *latency, bounds []float64, now time.Time, dir, svc *dto.LabelPair) {
	h := &histogram{desc: s.d.duration, labels: []*dto.LabelPair{dir, svc}, sum: float64(l.sum.Load()) / 1e9}
	for i := range l.counts {
		h.count += l.counts[i].Load()
		if i < len(bounds) {
			h.buckets = append(h.buckets, &dto.Bucket{CumulativeCount: new(h.count), UpperBound: &bounds[i]})
		}
	}
	s.ch <- h
	q := l.quantiles(now)
	if q.Count == 0 {
		return
	}
	for _, v := range []struct {
		name string
		d    time.Duration
	}{{"0.5", q.P50}, {"0.9", q.P90}, {"0.99", q.P99}, {"0.999", q.P999}, {"0.9999", q.P9999}} {
		s.gauge(s.d.quantile, v.d.Seconds(), dir, pair("quantile", v.name), svc)
	}
}

// histogram is one latency histogram.
type histogram struct {
	desc    *prometheus.Desc
	labels  []*dto.LabelPair
	count   uint64
	sum     float64
	buckets []*dto.Bucket
}

// Desc implements prometheus.Metric.
func (h *histogram) Desc() *prometheus.Desc { return h.desc }

// Write implements prometheus.Metric.
func (h *histogram) Write(m *dto.Metric) error {
	m.Label = h.labels
	m.Histogram = &dto.Histogram{SampleCount: &h.count, SampleSum: &h.sum, Bucket: h.buckets}
	return nil
}

func (s *scrape) upstream(u *Upstream, svc *dto.LabelPair) {
	d := s.d
	s.versions(&u.versions, svc)
	s.gauge(d.upOpen, float64(max(u.open.Load(), 0)), svc)
	s.gauge(d.upIdle, float64(max(u.idle.Load(), 0)), svc)
	s.count(d.connects, u.connects.Load(), svc)
	s.total(d.connectSeconds, float64(u.connectTime.Load())/1e9, svc)
	for i := range u.failures {
		if n := u.failures[i].Load(); n > 0 {
			s.count(d.connectFailures, n, pair("reason", resilience.Reason(i).String()), svc)
		}
	}
	if n := u.known.Load(); n > 0 {
		s.gauge(d.endpoints, float64(n-1), svc, pair("state", "known"))
		s.gauge(d.endpoints, float64(u.usable.Load()), svc, pair("state", "usable"))
		if of := u.listed.Load(); of > 0 {
			s.gauge(d.endpoints, float64(of), svc, pair("state", "listed"))
		}
	}
	for i := range u.why {
		if n := u.why[i].Load(); n > 0 {
			s.count(d.decisions, n, svc, pair("why", whyName(resilience.Why(i))))
		}
	}
	s.count(d.bodyTooLarge, u.body.Load(), svc)
	u.away.each(func(code string, n uint64) { s.count(d.away, n, pair("code", code), svc) })
	u.ejections.each(func(why string, n uint64) { s.count(d.ejections, n, svc, pair("why", why)) })
	s.count(d.readmissions, u.readmitted.Load(), svc)
	for i := range u.breakerTo {
		if n := u.breakerTo[i].Load(); n > 0 {
			s.count(d.endpointBreakers, n, svc, pair("to", breakerName(i)))
		}
	}
	s.count(d.notices, u.offline.Load(), svc)
	s.count(d.returns, u.online.Load(), svc)
	u.spared.each(func(why string, n uint64) { s.count(d.spared, n, svc, pair("why", why)) })
	s.count(d.panics, u.panics.Load(), svc)
	u.mirrored.each(func(result string, n uint64) { s.count(d.mirrored, n, pair("result", result), svc) })
	u.stoodIn.each(func(kind string, n uint64) { s.count(d.stoodIn, n, pair("kind", kind), svc) })
	u.limits.each(func(limit string, n uint64) { s.count(d.limits, n, pair("limit", limit), svc) })
}

// total is a counter that is not a whole number.
func (s *scrape) total(d *prometheus.Desc, v float64, labels ...*dto.LabelPair) {
	s.ch <- &sample{desc: d, labels: labels, value: v}
}

func whyName(w resilience.Why) string {
	names := [whys]string{
		"none", "first", "retry", "stale", "exhausted", "budget", "not_retryable", "body", "deadline", "caller", "breaker",
		"pushback", "backup", "dual_send", "backup_cap", "no_other",
	}
	if w < whys && names[w] != "" {
		return names[w]
	}
	return "why_" + strconv.Itoa(int(w))
}
