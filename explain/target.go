package explain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/balance"
	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/route"
	"github.com/sidecar-mesh/sidecar/route/rules"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// Target is a set of endpoints that the route leads to.
type Target struct {
	Service  string            `json:"service"`
	Labels   map[string]string `json:"labels,omitempty"`
	Fallback bool              `json:"fallback,omitempty"` // none carries the labels, so that all are meant
	Share    float64           `json:"share"`              // of the requests, by split
	Chosen   bool              `json:"chosen"`             // the request may go here
	Switches []Switch          `json:"group_switches,omitempty"`
	GreyOnly string            `json:"grey,omitempty"` // these are the endpoints of that grey release
	Kept     []Kept            `json:"kept,omitempty"` // endpoints that are for grey releases which the request is not of
	Rules    []Rule            `json:"rules,omitempty"`
	// Endpoints and Next are there for targets that the request may go to.
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	LeftOut   []Doubt    `json:"left_out,omitempty"` // endpoints of the service that are known and not used
	Subset    *Subset    `json:"subset,omitempty"`   // nil: all endpoints of the service are used
	Degraded  []string   `json:"degraded,omitempty"` // the degradation switches that are not off
	Sources   []Source   `json:"sources,omitempty"`
	Next      *Next      `json:"next,omitempty"`
}

// Endpoint is one address and how it is doing.
type Endpoint struct {
	Address  string            `json:"address"`
	Weight   int               `json:"weight"`
	Group    string            `json:"group,omitempty"`
	Zone     string            `json:"zone,omitempty"`
	Region   string            `json:"region,omitempty"`
	Version  string            `json:"version,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	From     string            `json:"from"`
	Usable   bool              `json:"usable"`
	State    string            `json:"state"` // usable, or why not: ejected, unhealthy, draining, probe, breaker_open
	Reason   string            `json:"ejected_because,omitempty"`
	Until    *time.Time        `json:"ejected_until,omitempty"`  // at the earliest; a probe must succeed too
	Breaker  string            `json:"breaker,omitempty"`        // its own: closed, open, half_open; empty: it has none
	Asks     *time.Time        `json:"breaker_until,omitempty"`  // until then it gets no call, then one
	Leaves   *time.Time        `json:"draining_until,omitempty"` // it said itself that it leaves, and is left out so long
	Times    int               `json:"ejections,omitempty"`
	Failures int               `json:"failures_in_a_row,omitempty"`
	InFlight int64             `json:"in_flight"`
	Latency  string            `json:"latency,omitempty"` // decayed average, where the balancer keeps one
	Slow     bool              `json:"slow,omitempty"`    // lb adaptive gives it fewer calls
	Near     bool              `json:"near,omitempty"`
	Warmth   float64           `json:"warmup_share,omitempty"` // of its full part, while it is warming up
	Doubt    *Doubt            `json:"doubt,omitempty"`        // why it is used although its source does not just list it as well
}

// Subset says how many of a service's endpoints this sidecar uses, and why those.
type Subset struct {
	Used   int    `json:"used"`
	Of     int    `json:"of"`
	Reason string `json:"reason"`
}

// SubsetOf says which part of its endpoints a service uses; nil: all of them.
func SubsetOf(s *snapshot.Service) *Subset {
	if s.Subset.Of == 0 {
		return nil
	}
	return &Subset{Used: s.Subset.Used, Of: s.Subset.Of, Reason: "subset of the service, chosen by node " + s.Subset.Node}
}

// Doubt says why an endpoint is used or not that its source does not just list as well.
type Doubt struct {
	Address string     `json:"address"`
	Source  string     `json:"source"`
	Why     string     `json:"why"` // maintenance, unhealthy, retained, remembered, from_disk, unreachable, own_listener
	Since   *time.Time `json:"since,omitempty"`
	Check   string     `json:"check,omitempty"` // the direct check: alive, dead, unchecked
	Error   string     `json:"error,omitempty"` // what the check met
}

// Source says how one source of endpoints is doing.
type Source struct {
	Name     string     `json:"name"`
	Answered bool       `json:"answered"`
	Stale    bool       `json:"stale"`
	Since    *time.Time `json:"since,omitempty"`
	Error    string     `json:"error,omitempty"`
	// Protection keeps the list from being used as it is: removal_protection, half_dead, or restored from the disk.
	Protection *Protection `json:"protection,omitempty"`
}

// Protection says why a list is not believed.
type Protection struct {
	Kind   string     `json:"kind"`
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until,omitempty"` // if nothing changes
	Listed int        `json:"listed"`
	Known  int        `json:"known"`
}

// Next says who would be picked.
type Next struct {
	Rule  string   `json:"rule"`
	Why   string   `json:"why"`
	Among []string `json:"among"`
	Next  string   `json:"next,omitempty"` // whose turn it is; empty where chance decides
	Text  string   `json:"text"`
}

// forward says what holds for a request that is sent on, and whether it would be right now.
func (q *question) forward() {
	r, e := q.rt, q.e
	e.Policy = Policy(q.snap.Mesh.Config, r)
	e.Plan = q.plan()
	branch := -1
	if r.Split != nil && q.known {
		branch = r.Split.Pick(q.facts.Hash)
	}
	total := 0
	if r.Split != nil {
		e.Varies = e.Varies || !q.known
		for _, b := range r.Config.To.Split {
			total += b.Weight
		}
	}
	grey := q.grey()
	for i, t := range r.Targets {
		v := Target{Service: t.Service.Name, Labels: t.Labels, Fallback: t.Fallback, Share: 1, Chosen: branch < 0 || branch == i}
		if r.Split != nil {
			v.Share = float64(r.Config.To.Split[i].Weight) / float64(total)
			v.Chosen = v.Chosen && v.Share > 0
		}
		if v.Chosen {
			t = q.ruled(t, grey, &v)
			v.Endpoints, v.Sources, v.Next = Endpoints(t, q.now), Sources(t.Service), q.next(t)
			v.Subset, v.Degraded = SubsetOf(t.Service), Switches(q.snap, t.Service)
			v.LeftOut = LeftOut(t.Service)
		}
		e.Targets = append(e.Targets, v)
	}
	q.verdict()
}

// verdict says whether the request would be answered here or refused at this moment.
func (q *question) verdict() {
	if q.shielded() {
		return
	}
	if refusal := q.forbidden(); refusal != "" {
		q.refuse(resilience.Forbidden, resilience.Forbidden.HTTPStatus(), refusal)
		return
	}
	r := q.rt
	runs, waits := r.Limiter.InUse()
	limit, waiting := Limits(r)
	switch {
	case r.Breaker.State(q.now) == resilience.Open:
		q.refuse(resilience.BreakerOpen, resilience.BreakerOpen.HTTPStatus(), "too many calls failed; nothing is sent until the sleep window is over")
		return
	case limit > 0 && runs >= limit && waits >= waiting:
		reason := resilience.Overloaded
		if q.svc.Inbound && q.svc.InboundConfig.Admit.Concurrency.Set {
			reason = resilience.Concurrency
		}
		q.refuse(reason, reason.HTTPStatus(), fmt.Sprintf("%d of %d calls run and %d of %d wait", runs, limit, waits, waiting))
		return
	}
	detail := ""
	for i := range q.e.Targets {
		if t := &q.e.Targets[i]; t.Chosen {
			if len(t.Next.Among) > 0 {
				return
			}
			detail = emptyText(t) + q.rt.Targets[i].Service.Unheard()
		}
	}
	q.refuse(resilience.NoEndpoints, resilience.NoEndpoints.HTTPStatus(), detail)
}

// forbidden is why a rule refuses the call; empty: none does.
func (q *question) forbidden() string {
	refusal := ""
	for _, t := range q.e.Targets {
		if !t.Chosen {
			continue
		}
		if len(t.Next.Among) > 0 {
			return ""
		}
		for i := range t.Rules {
			if r := &t.Rules[i]; r.Forbids {
				refusal = (&rules.Rule{Name: r.Name, Text: r.Text, From: r.From}).Refusal()
			}
		}
	}
	return refusal
}

// emptyText says why there is nobody to pick in a target.
func emptyText(t *Target) string {
	s := "it has no endpoint"
	if slices.ContainsFunc(t.Rules, func(r Rule) bool { return len(r.Removed) > 0 || r.EachCall }) {
		s = "rules leave it no endpoint"
	}
	if len(t.Endpoints) > 0 {
		s = "none of its endpoints is usable"
	}
	if len(t.Labels) > 0 {
		s += " with" + labelText(t.Labels)
	}
	return s
}

// labelText writes labels in a stable order, each behind a blank.
func labelText(labels map[string]string) string {
	s := ""
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		s += " " + k + "=" + labels[k]
	}
	return s
}

// Limits returns how many calls of a route may run and wait; 0 runs is no bound.
func Limits(r *snapshot.Route) (runs, waits int) {
	if s := r.Service; s.Inbound && s.InboundConfig.Admit.Concurrency.Set {
		a := &s.InboundConfig.Admit
		return a.Concurrency.Value, a.QueueSize.Or(0)
	}
	p := r.Policy
	if r.Service.Inbound { // its routes share one limiter
		p = r.Service.Rest.Policy
	}
	return p.Limit.InFlight.Value, p.Limit.Waiting.Value
}

// plan says how often and how long is tried.
func (q *question) plan() *Plan {
	r := q.rt
	p := &Plan{Attempts: 1 + r.Plan.Retries, Timeout: config.Span(r.Plan.Timeout), Idempotent: r.Idempotent(q.facts.Method)}
	if r.Plan.PerTry > 0 {
		p.PerTry = config.Span(r.Plan.PerTry)
	}
	p.Why = "the method " + q.facts.Method
	if r.Policy.Idempotent.Set {
		p.Why = "the policy says so"
	}
	p.Breaker = BreakerText(r, q.now)
	p.InFlight, p.Waiting = r.Limiter.InUse()
	return p
}

// BreakerText is the state of a route's breaker, "none" where it is off.
func BreakerText(r *snapshot.Route, now time.Time) string {
	if r.Breaker == nil {
		return "none"
	}
	return r.Breaker.State(now).String()
}

// Endpoints lists the endpoints of a target.
func Endpoints(t *snapshot.Target, now time.Time) []Endpoint {
	list := make([]Endpoint, 0, len(t.Endpoints))
	doubts := doubts(t.Service)
	for i, e := range t.Endpoints {
		v := endpoint(t, i, now)
		v.Doubt = doubts[e.Address]
		list = append(list, v)
	}
	return list
}

// endpoint describes one endpoint of a target, but for what its sources say of it.
func endpoint(t *snapshot.Target, i int, now time.Time) Endpoint {
	e := t.Endpoints[i]
	state := e.Meter.State.Load()
	v := Endpoint{
		Address: e.Address, Weight: e.Spec.Weight, Group: e.Spec.Group, Zone: e.Spec.Zone, Region: e.Spec.Region,
		Version: e.Spec.Version, Labels: e.Spec.Labels, From: e.Spec.From.String(),
		Usable: state == 0, State: balance.StateText(state), InFlight: e.Meter.Active.Load(), Near: t.Set.Endpoint(i).Near,
	}
	if state&balance.StateDraining != 0 {
		until := e.LeavesUntil()
		v.Leaves = &until
	}
	if e.Breaker != nil {
		v.Breaker = e.Breaker.State(now).String()
	}
	if until := e.Breaker.Until(); !until.IsZero() {
		v.Asks = &until
	}
	h := t.Service.Outlier.State(now, e.Health)
	v.Times, v.Failures = h.Ejections, h.Consecutive
	if h.Ejected {
		v.Reason, v.Until = h.Reason.String(), &h.Until
	}
	if d := e.Meter.Latency(); d > 0 {
		v.Latency = d.Round(time.Microsecond).String()
	}
	v.Slow = t.Set.Slow(i)
	if w := t.Set.Share(i, now); w < 1 {
		v.Warmth = w
	}
	return v
}

// doubts are the notes about endpoints that are used, by address.
func doubts(s *snapshot.Service) map[string]*Doubt {
	var m map[string]*Doubt
	for i := range s.Notes {
		if n := &s.Notes[i]; n.Used {
			if m == nil {
				m = make(map[string]*Doubt)
			}
			m[n.Address] = doubt(n)
		}
	}
	return m
}

// LeftOut lists the endpoints that sources of a service know and that are not used. Another source may list the same ones.
func LeftOut(s *snapshot.Service) []Doubt {
	var list []Doubt
	for i := range s.Notes {
		if n := &s.Notes[i]; !n.Used {
			list = append(list, *doubt(n))
		}
	}
	return list
}

func doubt(n *config.EndpointNote) *Doubt {
	d := &Doubt{Address: n.Address, Source: n.Source, Why: n.Why, Check: n.Check, Error: n.Err}
	if !n.Since.IsZero() {
		d.Since = &n.Since
	}
	return d
}

// Sources says how the sources of a service's endpoints are doing.
func Sources(s *snapshot.Service) []Source {
	list := make([]Source, 0, len(s.Sources))
	for _, st := range s.Sources {
		v := Source{Name: st.Name, Answered: st.Answered, Stale: st.Stale, Error: st.Err}
		if !st.Since.IsZero() {
			v.Since = &st.Since
		}
		if st.Protection != "" {
			v.Protection = &Protection{Kind: st.Protection, Since: st.ProtectedSince, Listed: st.Listed, Known: st.Known}
			if !st.ProtectedUntil.IsZero() {
				v.Protection.Until = &st.ProtectedUntil
			}
		}
		list = append(list, v)
	}
	return list
}

// next looks ahead at who would be picked.
func (q *question) next(t *snapshot.Target) *Next {
	h := &balance.Hint{Now: q.now}
	key, has := q.hashKey()
	if has {
		h.Hash, h.HasHash = route.Hash(key), true
	}
	p := t.Set.Prospect(h)
	v := &Next{Rule: t.Set.Spec().Kind.String(), Why: p.Why.String(), Among: make([]string, 0, len(p.Among))}
	for _, i := range p.Among {
		v.Among = append(v.Among, t.Endpoints[i].Address)
	}
	if p.Next >= 0 {
		v.Next = t.Endpoints[p.Next].Address
	}
	v.Text = nextText(t.Set.Spec(), v, q.rt.Hash, key, has)
	return v
}

// hashKey is what consistent_hash hashes of the request.
func (q *question) hashKey() (key string, ok bool) {
	switch on := &q.rt.Hash; on.On {
	case "header":
		return q.facts.Fields.Get(on.Name)
	case "cookie":
		return route.CookieValue(q.facts.Fields, on.Name)
	case "query":
		return route.QueryValue(q.facts.Query, on.Name)
	case "source_ip":
		if a := q.facts.Caller.Addr; a.IsValid() {
			return a.Unmap().String(), true
		}
	}
	return "", false
}

// nextText says the rule in words.
func nextText(spec balance.Spec, v *Next, on snapshot.HashKey, key string, has bool) string {
	if len(v.Among) == 0 {
		return "nobody: " + strings.ReplaceAll(v.Why, "_", " ")
	}
	var s string
	switch n := strconv.Itoa(len(v.Among)); {
	case len(v.Among) == 1:
		s = v.Next + ", the only one to choose"
	case spec.Kind == balance.ConsistentHash && has:
		s = fmt.Sprintf("%s, by the hash of %s %q", v.Next, strings.TrimSpace(on.On+" "+on.Name), key)
	case spec.Kind == balance.ConsistentHash:
		s = "any of " + n + ": the request has no " + strings.TrimSpace(on.On+" "+on.Name) + " to hash"
	case v.Next != "":
		s = v.Next + ", whose turn it is among " + n
	case spec.Kind == balance.LeastActive:
		s = "the one of " + n + " with the fewest calls in flight for its weight"
	case spec.Kind == balance.PeakEWMA:
		s = "the better of two out of " + n + ", by latency times load"
	case spec.Kind == balance.Random:
		s = "any of " + n
	default:
		s = "next in turn among " + n + ", those that warm up less often"
	}
	switch v.Why {
	case balance.PickedPanic.String():
		s += "; none is usable, so all are served (panic: serve_all)"
	case balance.PickedFar.String():
		s += "; a far one, since too few near ones are usable"
	}
	return s
}
