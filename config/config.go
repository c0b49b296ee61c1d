// Package config holds what operators and sources say: plain data, its defaults, a strict loader that answers every
// mistake with file:line:col, and the merge of ranked sources. It owns no runtime state and knows nothing of how the
// proxy uses a field. It imports nothing of the project. Tests: tables of good and bad documents under testdata, a fuzz
// test of the loader, and the examples of docs/config.md.
package config

import (
	"net/netip"
	"time"
)

// Source is one origin of configuration: a file, the admin API, a registry.
type Source struct {
	Name string // as a person would name it: a path, a KV key, a registry's name
	Rank Rank
}

// Rank orders sources: the whole service of the highest rank counts (S-127, X-10).
type Rank uint8

// The ranks, lowest first.
const (
	RankDefault  Rank = iota
	RankProvider      // what a provider publishes: fills only what all others leave open
	RankCenter        // config centre: Consul KV, xDS
	RankDynamic       // admin API, switches
	RankFile          // the local file
)

// String is the name of a rank for metrics and people.
func (r Rank) String() string {
	switch r {
	case RankProvider:
		return "provider"
	case RankCenter:
		return "config_center"
	case RankDynamic:
		return "dynamic"
	case RankFile:
		return "file"
	}
	return "default"
}

// Origin says where a value was written. The zero Origin means a built-in default.
type Origin struct {
	Source    *Source
	Line, Col int32
}

// Opt is a value that may be left out: its zero value and "not set" are different things (S-4).
type Opt[T any] struct {
	Value T
	Set   bool
	From  Origin
}

// Or returns the value, or def where it is not set.
func (o Opt[T]) Or(def T) T {
	if o.Set {
		return o.Value
	}
	return def
}

// Config is one whole document, or the merge of several.
type Config struct {
	Node       Node
	Listen     Listen
	Limits     Limits
	Registries map[string]*Registry
	Center     *ConfigCenter // nil: none
	Discovery  Discovery
	Policies   map[string]*Policy
	Bulkheads  map[string]*Bulkhead
	Defaults   Policy
	Services   map[string]*Service
	// Rules are those that stand under rules, by service; Merge puts those of services.NAME.rules beside them, so that
	// RulesOf answers for both.
	Rules     map[string]*Rules
	Groups    []GroupSwitch
	Grey      map[string]*Grey
	Published map[string]*Published // by service; only a config centre has it
	Inbound   []*Inbound
	Switches  map[string]*Switch
	Telemetry Telemetry

	// Warnings says what is allowed, yet hardly meant, with its place.
	Warnings []Error

	claims     []claim           // of the parts that are not services
	listenFrom map[string]Origin // where the addresses of Listen are written
}

// Node says who we are.
type Node struct {
	Service, ID, Group, Version, Zone, Region, Tenant, Environment string
	Labels                                                         map[string]string
	Addresses                                                      []netip.Addr // of the pod, as rules about hosts see it
}

// Listen holds the addresses we listen on; an empty one is "none" (that listener stays closed).
type Listen struct {
	Outbound, Inbound, Admin, Health, Metrics string
	// TrustForwarded lists the networks whose x-forwarded-* and forwarded headers are kept and extended (key
	// trust_forwarded); from anyone else they are replaced.
	TrustForwarded []netip.Prefix
}

// Limits bounds the process.
type Limits struct {
	Connections   int           // downstream connections; 0: min(16000, (open files − 500) / 2)
	HeaderBytes   int64         // of one head
	HeaderCount   int           // fields of one head
	HeaderTimeout time.Duration // from the first byte of a head to its last
	IdleTimeout   time.Duration // of a keep-alive connection between two requests
	DrainGrace    time.Duration // after SIGTERM new connections are still taken for so long
	DrainTimeout  time.Duration // the whole drain
	ReplayBytes   int64         // of a request body kept for a retry
	HalfClose     string        // "serve" or "cancel": what a FIN behind a complete request means
	MaxAge        time.Duration // of an HTTP/2 connection, more or less; 0: no bound
	MaxRequests   int           // of an HTTP/2 connection; 0: no bound
	ModerateReads bool          // of busy HTTP/2 connections: read at a steady pace
	WindowMemory  int64         // that windows of HTTP/2 streams may grow by, all together; 0: they do not
}

// Registry is one place where endpoints come from. Exactly one member is set.
type Registry struct {
	Name   string
	From   Origin
	File   *FileRegistry
	DNS    *DNSRegistry
	Consul *ConsulRegistry
}

// FileRegistry reads endpoint lists from a file or a folder (YAML or JSON lists by service, or Prometheus file_sd).
type FileRegistry struct {
	Path string
}

// DNSRegistry resolves names.
type DNSRegistry struct {
	Servers []string      // host:port; empty: those of /etc/resolv.conf
	MinTTL  time.Duration // answers are kept at least so long
	MaxTTL  time.Duration // and at most so long
	Timeout time.Duration // of one query
}

// Discovery holds how start waits for registries, and how far they are believed.
type Discovery struct {
	ReadyWait   time.Duration // ready at the latest so long after start
	SnapshotDir string        // where endpoints are kept for the next start; empty: nowhere
	Protection                // of every service that says nothing
	UpdateGate  UpdateGate
}

// Protection bounds what an answer of a registry may take away.
type Protection struct {
	RemovalProtection RemovalProtection
	HalfDead          HalfDead
}

// RemovalProtection bounds how many endpoints may go for failed health (S-41). Off says `removal_protection: none`.
type RemovalProtection struct {
	Off      Opt[bool]
	MaxRatio Opt[float64] // of the endpoints known; at least one may always go
}

// HalfDead says when a list is too short to be true (S-46 … S-48). Off says `half_dead: none`.
type HalfDead struct {
	Off      Opt[bool]
	Below    Opt[float64]       // share of the endpoints known in Memory
	MinKnown Opt[int]           // so many must be known
	Hold     Opt[time.Duration] // a list is believed again when it is back for so long
	Memory   Opt[time.Duration] // how long endpoints are remembered that are not listed any more
}

// UpdateGate lets only a part of all sidecars follow their registries at one time, while it is enabled (S-40).
type UpdateGate struct {
	Enabled Opt[bool]
	Percent Opt[float64]       // the part, above 0 … 1
	Epoch   Opt[time.Duration] // the length of a turn
}

// Service is a named upstream.
type Service struct {
	Name      string
	From      Origin   // of the service's key
	Protocol  string   // http | http2 | grpc | tcp | auto
	Hosts     []string // in lower case: name, *.suffix or *, with or without a port; default: the service's name
	Listen    string   // a local port of its own
	Registry  []string // names of registries (`from`)
	Endpoints []*Endpoint
	Group     string
	Critical  bool
	Subset    int // of its endpoints that this sidecar uses; 0: all
	// Preconnect is how many connections are opened to an endpoint when it is found, ahead of calls (S-26).
	Preconnect int
	GRPCWeb    GRPCWeb
	Policy     Policy
	Links      []*Link
	Inherited  *Policy // what the provider publishes, below Policy; nil: nothing
	Routes     []*Route
	Rules      *Rules // nil: nothing is said

	// Liveness is who decides which of the endpoints listed are alive: "registry" or "consumer" (S-43, S-44).
	Liveness string
	// Protection is what a service says itself; what is not set is as in Discovery.
	Protection

	claims []claim // what depends on the rest of the configuration
	sums   prints  // of all that is exported
}

// GRPCWeb says how browsers may call a service whose protocol is grpc.
type GRPCWeb struct {
	Off         Opt[bool] // gRPC-Web is relayed as it is
	Origins     []string  // pages whose scripts may call; empty: none of another origin
	Credentials Opt[bool] // cookies and authorization
	MaxAge      Opt[time.Duration]
}

// Endpoint is one address of a service.
type Endpoint struct {
	Address string // host:port, [v6]:port, a name with a port, or unix:PATH
	Weight  int    // 0 … 1000000, default 1; 0: no traffic
	Group   string
	Zone    string
	Region  string
	Version string
	Labels  map[string]string
	From    Origin

	// Health is what a registry says of it; nothing in a document sets it.
	Health Health
}

// Health is a registry's opinion of an endpoint. One that a registry lists as failed is still listed: that tells it from
// one that was deregistered (S-41). What follows from it is decided in package discovery.
type Health uint8

// The states, best first.
const (
	HealthPassing     Health = iota // or nothing is known of it
	HealthWarning                   // worth less traffic; its weight says how much
	HealthCritical                  // a check fails
	HealthMaintenance               // taken out on purpose
)

// String returns the name of the state.
func (h Health) String() string {
	switch h {
	case HealthPassing:
		return "passing"
	case HealthWarning:
		return "warning"
	case HealthCritical:
		return "critical"
	case HealthMaintenance:
		return "maintenance"
	}
	return "unknown"
}

// Fit reports whether an endpoint in this state should get traffic, if the registry is to be believed.
func (h Health) Fit() bool { return h <= HealthWarning }

// Route is a match and what to do.
type Route struct {
	Name  string // as written, or the text of the match
	From  Origin
	Match Match
	// Policy holds the route's own fields; they win over the service's.
	Policy Policy
	// Inherited is what the provider publishes for it, below the service's own fields; nil: nothing.
	Inherited *Policy
	Rewrite   *Rewrite
	To        *To
	Respond   *Respond
	Redirect  *Redirect
}

// Match holds conditions that must all hold; the zero Match fits every request.
type Match struct {
	Methods    []string
	Path       PathMatch
	GRPC       string // gRPC calls of pkg.Service/Method, either side may be *; then Path is that of any
	Headers    []ValueMatch
	Query      []ValueMatch
	Cookies    []ValueMatch
	Segments   []ValueMatch // parts of the path between slashes, by their number from 1
	Hosts      []string
	Callers    []string // service name, CIDR, or key=value label
	Percent    float64  // 0 … 1; 1 or HasPercent false: all
	HasPercent bool
}

// PathKind says how a path is compared.
type PathKind uint8

// The kinds of path match.
const (
	PathAny    PathKind = iota
	PathExact           // the path as a whole
	PathPrefix          // a plain string prefix
	PathBelow           // "/a/*": below "/a/", not "/a" itself
	PathRegex           // RE2, anchored at neither end
)

// PathMatch compares the path.
type PathMatch struct {
	Kind  PathKind
	Value string // for PathBelow with its final slash
}

// ValueKind says how a header, query or cookie value is compared.
type ValueKind uint8

// The kinds of value match.
const (
	ValueExact ValueKind = iota
	ValuePresent
	ValueAbsent
	ValuePrefix
	ValueRegex
	ValueIn
	ValueMod
)

// ValueMatch compares one named value.
type ValueMatch struct {
	Name     string // of a header: in lower case
	Kind     ValueKind
	Text     string   // exact, prefix, regex
	In       []string // ValueIn
	Mod      uint64   // ValueMod: the decimal number in the value modulo Mod is one of Residues
	Residues []uint64
}

// Rewrite changes the request before it is sent on.
type Rewrite struct {
	PrefixFrom, PrefixTo string // both empty: the path stays
	HasPrefix            bool
	Path                 string // replaces the whole path; empty: not
	Host                 string
	SetHeaders           []Header
	RemoveHeaders        []string
}

// Header is a name and a value.
type Header struct{ Name, Value string }

// To chooses among destinations.
type To struct {
	Service string            // another service; empty: this one
	Labels  map[string]string // endpoints that carry all of these
	Else    string            // "any" or "fail" when no endpoint carries them; default fail
	Split   []Split
}

// Split is one branch of a weighted choice.
type Split struct {
	Weight  int
	Service string
	Labels  map[string]string
}

// Respond answers locally.
type Respond struct {
	Status  int
	Headers []Header
	Body    string
}

// Redirect answers with a location.
type Redirect struct {
	To     string
	Status int // 301 302 303 307 308
}

// Inbound is one service that our app offers.
type Inbound struct {
	Service  string
	App      string // host:port or unix:PATH
	Protocol string // http | http2 | grpc | tcp | auto
	GRPCWeb  GRPCWeb
	Policy   Policy
	Admit    Admit
	Health   *AppHealth // nil: nobody asks the app
	Register *Register  // nil: it is in no registry because of us
	Routes   []*Route
	From     Origin
}

// Admit bounds what reaches our app.
type Admit struct {
	Concurrency Opt[int]
	QueueSize   Opt[int]
	QueueWait   Opt[time.Duration]
}

// Policy is a set of knobs. What is not set is inherited: route, service, named policy (`use`), defaults, built in.
type Policy struct {
	Use            Opt[string]
	Timeout        Opt[time.Duration]
	PerTryTimeout  Opt[time.Duration]
	PerTryAuto     Opt[PerTryAuto] // says how long in place of PerTryTimeout, which is set and 0 then
	TellDeadline   Opt[bool]
	ConnectTimeout Opt[time.Duration]
	IdleTimeout    Opt[time.Duration]
	Idempotent     Opt[bool]
	Retry          Retry
	Backup         Backup
	DualSend       Opt[bool]
	Fallback       Opt[Fallback]
	Mirror         Opt[Mirror]
	LB             Opt[LB]
	Locality       Locality
	Warmup         Opt[time.Duration]
	Breaker        Breaker
	Outlier        Outlier
	Limit          Limit
	Panic          Opt[string] // serve_all | fail_fast
}

// Retry says what is tried again.
type Retry struct {
	Count              Opt[int]
	When               Opt[[]string]
	BackoffBase        Opt[time.Duration]
	BackoffMax         Opt[time.Duration]
	BudgetRatio        Opt[float64]
	BudgetMinPerSecond Opt[int]
}

// LB names a balancer.
type LB struct {
	Kind string // random round_robin weighted_round_robin least_active consistent_hash peak_ewma adaptive
	// HashOn and HashName say what consistent_hash hashes: header, cookie, query (with a name) or source_ip.
	HashOn, HashName string
	Adaptive         AdaptiveLB // filled where Kind is adaptive
}

// AdaptiveLB is how lb adaptive ranks (S-105, S-106).
type AdaptiveLB struct {
	SlowFraction             float64 // of the endpoints
	SlowWeight, NormalWeight int
	Interval                 time.Duration // between two rankings
}

// Locality prefers near endpoints.
type Locality struct {
	Prefer     Opt[string]  // zone | region
	SpillBelow Opt[float64] // usable share of the near set below which others are used too
}

// Breaker bounds a failing service (S-150 … S-153, X-12). Off says `breaker: none`.
type Breaker struct {
	Off            Opt[bool]
	Per            Opt[string] // service: shared by the routes that say nothing else · route: one for each
	ErrorThreshold Opt[float64]
	RequestVolume  Opt[int]
	Window         Opt[time.Duration]
	Buckets        Opt[int]
	SleepWindow    Opt[time.Duration]
	HalfOpenProbes Opt[int]
	SlowOver       Opt[time.Duration] // not set: no call is slow
	SlowRatio      Opt[float64]
}

// Outlier ejects sick endpoints (S-43, S-51). Off says `outlier: none`.
type Outlier struct {
	Off                 Opt[bool]
	ConsecutiveFailures Opt[int]
	ErrorRatio          Opt[float64]
	TimeoutRatio        Opt[float64]
	RequestVolume       Opt[int]
	Window              Opt[time.Duration]
	EjectFor            Opt[time.Duration]
	EjectMax            Opt[time.Duration]
	MaxEjected          Opt[float64]
	Probe               Opt[Probe]
	SlowNode            Opt[SlowNode] // not set: no endpoint is too slow
}

// SlowNode says when an endpoint is too slow to serve: in Exceed of the last Points samples of Every the average was over
// AverageOver (S-135).
type SlowNode struct {
	AverageOver, Every time.Duration
	Points, Exceed     int
}

// Probe is how an ejected endpoint is tried before it is used again.
type Probe struct {
	HTTP     string // path; empty: a TCP connect, or as GRPC says
	GRPC     bool   // the health checking protocol of gRPC
	Service  string // what GRPC asks about; empty: the endpoint as a whole
	Interval time.Duration
	Timeout  time.Duration
}

// Limit bounds what one service takes.
type Limit struct {
	Connections Opt[int]
	InFlight    Opt[int]
	Waiting     Opt[int]
	Priorities  Opt[[]string]
	Bulkhead    Opt[string] // a bulkhead that is shared with others; "own": in_flight and waiting hold for this service alone
}

// OwnBulkhead is the name that stands for none.
const OwnBulkhead = "own"

// Bulkhead bounds what several services take together (S-186, S-187).
type Bulkhead struct {
	InFlight int
	Waiting  int
	Wait     time.Duration // of one call; 0: until its deadline
	// Priorities are values of PriorityHeader, that which is admitted first at the front; OtherPriority is all others.
	Priorities []string
}

// Link is a class of calls that have connections of their own to each endpoint (S-185).
type Link struct {
	Name        string
	SizeOver    int64    // calls whose body is announced to be larger; 0: the size says nothing
	Routes      []string // calls of these routes, whatever their size
	Services    []string // calls of these gRPC services, or by the name of these services whose routes lead here
	Priorities  []string // calls that carry one of these in PriorityHeader
	Connections Opt[int] // bound of the class at each endpoint; not set: limit.connections
	From        Origin
}

// Telemetry says what is reported.
type Telemetry struct {
	AccessLog AccessLog
}

// AccessLog says where the access log goes.
type AccessLog struct {
	To     string // stdout | stderr | file:PATH
	Format string // json | text | none
}
