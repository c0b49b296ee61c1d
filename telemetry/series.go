package telemetry

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sidecar-mesh/sidecar/resilience"
)

const (
	overflow  = "_overflow" // stands for what the bound on series did not let in
	maxLabel  = 200         // bytes of a label value
	cellCount = 8           // cells of one block
)

// Series holds the counters of one (direction, service, route). It costs little until the first exchange ends. A nil
// Series is valid and counts nothing.
type Series struct {
	svc   *service
	route string
	inner atomic.Pointer[counters]
	next  *Series // same hash; guarded by registry.mu
	dir   Direction
}

// counters is the part of a Series that exists once there was traffic.
type counters struct {
	inFlight         atomic.Int64
	attempts         atomic.Uint64
	retries, replays atomic.Uint64
	backups, won     atomic.Uint64 // attempts beside others, and those of them that gave the answer
	in, out          atomic.Uint64 // bytes of HTTP bodies
	tcpIn, tcpOut    atomic.Uint64 // bytes of TCP connections
	breaker          atomic.Int32  // state + 1; 0: never changed
	breakerTo        [breakerStates]atomic.Uint64
	cells            block
	grpc             atomic.Pointer[grpcCounters]
}

// grpcCounters is the part that exists once a gRPC call was seen.
type grpcCounters struct {
	calls   [resilience.GRPCStatuses]atomic.Uint64
	in, out atomic.Uint64 // messages
}

func (c *counters) countGRPC(o *Outcome) {
	g := c.grpc.Load()
	if g == nil {
		c.grpc.CompareAndSwap(nil, new(grpcCounters))
		g = c.grpc.Load()
	}
	g.calls[min(o.GRPC, resilience.GRPCInvalid)].Add(1)
	g.in.Add(uint64(max(0, o.MessagesIn)))
	g.out.Add(uint64(max(0, o.MessagesOut)))
}

// block holds counts of (method class, status class, reason), filled in the order of first use; few are ever seen, so a
// scan of one or two cells finds the right one.
type block struct {
	key  [cellCount]atomic.Uint32 // packed, plus 1; 0: free
	n    [cellCount]atomic.Uint64
	more atomic.Pointer[block]
}

func (b *block) add(key uint32) {
	for {
		for i := range b.key {
			k := b.key[i].Load()
			if k == 0 && !b.key[i].CompareAndSwap(0, key) {
				k = b.key[i].Load()
			} else if k == 0 {
				k = key
			}
			if k == key {
				b.n[i].Add(1)
				return
			}
		}
		next := b.more.Load()
		if next == nil {
			b.more.CompareAndSwap(nil, new(block))
			next = b.more.Load()
		}
		b = next
	}
}

// each calls f for every cell that was counted.
func (b *block) each(f func(key uint32, n uint64)) {
	for ; b != nil; b = b.more.Load() {
		for i := range b.key {
			k := b.key[i].Load()
			if k == 0 {
				return
			}
			if n := b.n[i].Load(); n > 0 {
				f(k, n)
			}
		}
	}
}

// Begin marks the start of an exchange, which Record ends. It raises the gauge of exchanges in flight.
func (s *Series) Begin() {
	if s != nil {
		s.counters().inFlight.Add(1)
	}
}

// Service returns the service label of s.
func (s *Series) Service() string { return s.svc.name }

// Route returns the route label of s.
func (s *Series) Route() string { return s.route }

func (s *Series) counters() *counters {
	if c := s.inner.Load(); c != nil {
		return c
	}
	s.inner.CompareAndSwap(nil, new(counters))
	return s.inner.Load()
}

// classes of methods and statuses; their order is that of the names below.
const (
	methodOther = 8
	methodTCP   = 9
)

func methodName(class uint32) string {
	return [...]string{
		"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "other", "tcp",
	}[class]
}

func statusName(class uint32) string {
	return [...]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}[class]
}

func methodClass(m string) uint32 {
	switch m {
	case "GET":
		return 0
	case "HEAD":
		return 1
	case "POST":
		return 2
	case "PUT":
		return 3
	case "DELETE":
		return 4
	case "PATCH":
		return 5
	case "OPTIONS":
		return 6
	case "CONNECT":
		return 7
	}
	return methodOther
}

func statusClass(status int) uint32 {
	if status < 100 || status > 599 {
		return 0
	}
	return uint32(status) / 100
}

// pack makes the key of a cell.
func pack(method, status uint32, reason resilience.Reason) uint32 {
	if reason >= resilience.Reasons {
		reason = resilience.None
	}
	return 1 + (uint32(reason)<<8 | status<<4 | method)
}

func unpack(key uint32) (method, status uint32, reason resilience.Reason) {
	key--
	return key & 15, key >> 4 & 15, resilience.Reason(key >> 8)
}

// registry owns all series and services by name. Lookups happen when configuration changes and on rare events, never
// per exchange.
type registry struct {
	seed     maphash.Seed
	max      int       // bound on series, and on services
	bounds   []float64 // of latency histograms, in seconds
	mu       sync.RWMutex
	series   map[uint64]*Series
	services map[string]*service
	nSeries  int
	dropped  atomic.Uint64 // names that got the overflow series
}

// label makes a name fit to be a label value: valid UTF-8 of bounded length.
func label(s string) string {
	if len(s) > maxLabel {
		s = cut(s, maxLabel) + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func (g *registry) hash(dir Direction, service, route string) uint64 {
	var h maphash.Hash
	h.SetSeed(g.seed)
	h.WriteByte(byte(dir))
	h.WriteString(service)
	h.WriteByte(0xff)
	h.WriteString(route)
	return h.Sum64()
}

func (g *registry) get(dir Direction, service, route string) *Series {
	service, route = label(service), label(route)
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.findLocked(dir, service, route); s != nil {
		return s
	}
	if g.nSeries >= g.max {
		g.dropped.Add(1)
		service, route = overflow, overflow
		if s := g.findLocked(dir, service, route); s != nil {
			return s
		}
	}
	h := g.hash(dir, service, route)
	s := &Series{svc: g.serviceLocked(service), route: strings.Clone(route), dir: dir, next: g.series[h]}
	g.series[h] = s
	g.nSeries++
	return s
}

func (g *registry) findLocked(dir Direction, service, route string) *Series {
	for s := g.series[g.hash(dir, service, route)]; s != nil; s = s.next {
		if s.dir == dir && s.route == route && s.svc.name == service {
			return s
		}
	}
	return nil
}

// service returns the service of that name, made if need be.
func (g *registry) service(name string) *service {
	name = label(name)
	g.mu.RLock()
	s := g.services[name]
	g.mu.RUnlock()
	if s != nil {
		return s
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.serviceLocked(name)
}

func (g *registry) serviceLocked(name string) *service {
	if s := g.services[name]; s != nil {
		return s
	}
	if len(g.services) >= g.max && name != overflow {
		g.dropped.Add(1)
		return g.serviceLocked(overflow)
	}
	s := &service{name: strings.Clone(name)}
	g.services[s.name] = s
	return s
}

// lookup returns the service of that name, nil when there is none.
func (g *registry) lookup(name string) *service {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.services[label(name)]
}

// retain forgets the series and services that live does not vouch for. Series without a service (nothing matched), the
// overflow series, and the one without a route of a service that has other live series stay.
func (g *registry) retain(live func(service, route string) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	alive := make(map[*service]bool, len(g.services))
	for _, s := range g.series {
		for ; s != nil; s = s.next {
			if !alive[s.svc] && live(s.svc.name, s.route) {
				alive[s.svc] = true
			}
		}
	}
	for h, s := range g.series {
		var kept *Series
		for s != nil {
			next := s.next
			if keep(s, alive, live) {
				s.next, kept = kept, s
			} else {
				g.nSeries--
			}
			s = next
		}
		if kept == nil {
			delete(g.series, h)
		} else {
			g.series[h] = kept
		}
	}
	for name, s := range g.services {
		if name != "" && name != overflow && !alive[s] && !live(name, "") {
			delete(g.services, name)
		}
	}
}

func keep(s *Series, alive map[*service]bool, live func(service, route string) bool) bool {
	if s.svc.name == "" || s.svc.name == overflow {
		return true
	}
	return s.route == "" && alive[s.svc] || live(s.svc.name, s.route)
}

func (g *registry) size() int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.nSeries
}

// used returns the series that have counters.
func (g *registry) used() []*Series {
	g.mu.RLock()
	defer g.mu.RUnlock()
	list := make([]*Series, 0, min(len(g.series), 64))
	for _, s := range g.series {
		for ; s != nil; s = s.next {
			if s.inner.Load() != nil {
				list = append(list, s)
			}
		}
	}
	return list
}

// all returns all services.
func (g *registry) all() []*service {
	g.mu.RLock()
	defer g.mu.RUnlock()
	list := make([]*service, 0, len(g.services))
	for _, s := range g.services {
		list = append(list, s)
	}
	return list
}
