// Package snapshot is what the proxy uses: everything in force, compiled from configuration and endpoints into one
// immutable value. It is pure: Compile turns a mesh and the snapshot before it into the next one, shares what did not
// change, and adopts the meters of what did by identity (service, route, endpoint). A snapshot owns nothing that must be
// closed; Store holds the current one behind one atomic pointer. Tests: tables of what is shared and what is adopted
// across changes, property tests of references, and benchmarks at 10 000 endpoints.
package snapshot

import (
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/balance"
	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/route"
	"github.com/sidecar-mesh/sidecar/route/rules"
)

// Snapshot is everything in force.
type Snapshot struct {
	Mesh     *config.Mesh
	Outbound *Directory
	Inbound  *Directory
	// Bulkheads are limits that several services share, by name.
	Bulkheads map[string]*resilience.Limiter
	Greys     []*Grey // by name
	// Warnings says what only compiling can tell to be hardly meant, with its place.
	Warnings []config.Error

	rules    map[string]*rules.Set // by service
	programs programs
	Aside    *Directory // places that no host leads to: what stands in for services, and mirrors
	Switches []*Switch  // sorted by name
}

// Store holds the snapshot in force. It has one writer; an exchange loads it once, when its head is parsed.
type Store struct{ p atomic.Pointer[Snapshot] }

// Load returns the snapshot in force, nil before the first.
func (s *Store) Load() *Snapshot { return s.p.Load() }

// Swap puts next in force and returns what was before.
func (s *Store) Swap(next *Snapshot) *Snapshot { return s.p.Swap(next) }

// Directory finds services by name and by host.
type Directory struct {
	List   []*Service // sorted by name
	byName map[string]*Service
	hosts  *route.Hosts
	hosted []*Service // by the ids of hosts
}

// Service is one named upstream, or one service of our own app.
type Service struct {
	Name     string
	Inbound  bool
	Protocol string // http | http2 | grpc | tcp | auto
	// Web says how gRPC-Web is bridged; nil: it is relayed as it is.
	Web       *Web
	Listen    string // a local port of its own, or empty
	Routes    []*Route
	Rest      *Route // what no route matches
	Endpoints []*Endpoint
	Subset    Subset              // that Endpoints are, of those that are listed
	Outlier   *resilience.Outlier // nil: off
	Probe     config.Probe
	// LimitConnections bounds the connections to one endpoint, LimitWaiting those who wait for one.
	LimitConnections, LimitWaiting int
	Links                          []Link // classes of calls with connections of their own; most services have none
	Sources                        []config.SourceState
	Config                         *config.Service // nil for an inbound service
	InboundConfig                  *config.Inbound // nil for an outbound service
	Policy                         config.Policy   // resolved
	// Notes is what is special about endpoints of sources.
	Notes []config.EndpointNote
	// Switches are the group switches that moved calls of this service.
	Switches []*config.GroupSwitch
	// Guard holds the rules by which our own app refuses callers; nil: there are none.
	Guard *rules.Set

	view     *rules.View // rules between us and its endpoints; nil: none can act
	programs programs
	caller   route.Caller // we, as scripts see it
	rules    *route.Rules
	refs     []string // other services that routes lead to
	set      *config.EndpointSet
}

// Web says how browsers may call a service of gRPC.
type Web struct {
	Origins     []string // pages whose scripts may; none: no word is said about origins
	Credentials bool
	MaxAge      string // seconds that the answer to a preflight is good for
}

// Route is a compiled route: a match and everything that follows from it.
type Route struct {
	Name    string
	Service *Service
	Config  *config.Route  // nil for Service.Rest
	Policy  *config.Policy // resolved, with the origin of each field; shared with the service where it says the same

	Plan           resilience.Policy
	ConnectTimeout time.Duration
	TellDeadline   bool // also where our caller did not tell us
	IdleTimeout    time.Duration
	Hash           HashKey
	Budget         *resilience.Budget
	Backups        *Backups                 // nil: none
	PerTry         *resilience.PerTryConfig // nil: Plan says
	Latency        *resilience.Latency      // of first attempts; nil where nobody asks
	Breaker        *resilience.Breaker      // nil: off
	Limiter        *resilience.Limiter
	priorities     []string  // that Limiter goes by
	Shields        []*Switch // while one is on, no call is made
	StandIns       []*Switch // while one is on, it answers for failures
	Watchers       []*Switch // those of both that are told how calls end
	Fallback       *Fallback // nil: none
	Mirror         *Mirror   // nil: none
	Rewrite        *Rewrite
	Respond        *config.Respond
	Redirect       *config.Redirect
	Targets        []*Target    // none for a local answer
	Split          *route.Split // nil with one target

	// Meters is whatever the publisher of the snapshot counts this route's exchanges with. It is set before the snapshot
	// is in force and never after.
	Meters any
}

// Idempotent reports whether a request of that method may be repeated although it was sent: what the policy says, else
// what the verb promises (RFC 9110 9.2.2, S-143).
func (r *Route) Idempotent(method string) bool {
	if r.Policy.Idempotent.Set {
		return r.Policy.Idempotent.Value
	}
	switch method {
	case "GET", "HEAD", "PUT", "DELETE", "OPTIONS":
		return true
	}
	return false
}

// HashKey says what consistent_hash hashes.
type HashKey struct {
	On   string // "" | header | cookie | query | source_ip
	Name string
}

// Rewrite changes a request on its way.
type Rewrite struct {
	Path   *route.Rewrite // nil: stays
	Host   string         // empty: stays
	Set    []config.Header
	Remove []string
}

// Target is a set of endpoints that a route leads to.
type Target struct {
	Service   *Service
	Labels    map[string]string
	Fallback  bool // no endpoint carries the labels, so that all are meant (else: any)
	Endpoints []*Endpoint
	Set       *balance.Set // over Endpoints, by index
	// Forbidden is the rule that refuses the caller, Steps what the rules did, of which Removed gives the endpoints.
	Forbidden *rules.Rule
	Steps     []Step
	// Scripts are the rules that are asked for each call.
	Scripts []*rules.Rule

	asked *asked    // nil: no script sees each call
	ruled *ruled    // nil: no rule acts
	greys []*Target // by the index of Snapshot.Greys; nil: no grey release touches it
	spare *Target   // takes over when nothing here is usable; nil: nobody does
	Grey  *Grey     // the release whose endpoints these are
}

// Endpoint is one address of one service. It keeps its identity across snapshots as long as nothing about it changes.
type Endpoint struct {
	Address string
	Spec    *config.Endpoint
	Service string
	Meter   *balance.Meter
	Health  *resilience.EndpointHealth
	Breaker *resilience.Breaker // of attempts; nil: off

	// Pool is whatever the publisher of the snapshot keeps connections in. It is set before the snapshot is in force and
	// handed on to the endpoint's successors.
	Pool any
	// Counts is whatever the publisher counts exchanges of the endpoint's version with, set as Pool is; nil: it has no version.
	Counts any
}

// Version is the version of an endpoint, by its field or its label.
func (e *Endpoint) Version() string { return labelOf(e.Spec, "version") }
