package proxy

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/proxy/h1"
	"github.com/sidecar-mesh/sidecar/proxy/h2"
	"github.com/sidecar-mesh/sidecar/proxy/upstream"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// Apply puts a mesh in force: it compiles it, opens the listeners that are new, swaps the snapshot, and only then closes
// what nobody needs any more. On an error nothing has changed.
func (p *Proxy) Apply(mesh *config.Mesh) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	prev := p.store.Load()
	next, err := snapshot.Compile(mesh, prev, snapshot.Options{Seed: p.o.Seed, Scripts: p.o.Scripts})
	if err != nil {
		return err
	}
	fresh := map[string]*listener{}
	if prev == nil || prev.Mesh.Config != mesh.Config {
		if fresh, err = p.openListeners(mesh.Config); err != nil {
			return err
		}
	}
	for i := range next.Warnings {
		if prev == nil || prev.Mesh.Config != mesh.Config {
			p.o.Log.Warn("configuration", "warning", next.Warnings[i].Error())
		}
	}
	changed, found := p.bind(prev, next)
	p.store.Swap(next)
	p.settle(prev, next, changed)
	p.connectAhead(found)
	if prev == nil || prev.Mesh.Config != mesh.Config {
		p.setLimits(mesh.Config)
		p.countRules(mesh.Config)
		p.tellSwitches(prev, next)
		p.tellEndings(next)
		p.swapListeners(mesh.Config, fresh)
		p.watchApps(mesh.Config)
	}
	return nil
}

// bind gives what is new in a snapshot its pools and counters, and returns the services that changed and the endpoints that are
// to be connected to ahead.
func (p *Proxy) bind(prev, next *snapshot.Snapshot) (changed []*snapshot.Service, found ahead) {
	var fresh []*snapshot.Endpoint // of groups that calls are switched to
	now := time.Now()
	for _, side := range sides() {
		dir := side.dir
		for _, s := range side.of(next).List {
			var was *snapshot.Service
			if prev != nil {
				was, _ = side.of(prev).Get(s.Name)
			}
			if was == s {
				continue
			}
			changed = append(changed, s)
			// Slow start is for endpoints that join others, not for those that the proxy finds when it starts.
			joins := was != nil && len(was.Endpoints) > 0 && was.Protocol == s.Protocol
			s.Rest.Meters = p.o.Recorder.Series(dir, s.Name, "")
			for _, r := range s.Routes {
				r.Meters = p.o.Recorder.Series(dir, s.Name, r.Name)
			}
			settings := upstream.Settings{MaxOpen: s.LimitConnections, MaxWaiting: s.LimitWaiting}
			for _, e := range s.Endpoints {
				if v := e.Version(); v != "" && e.Counts == nil { // new: no exchange sees it yet
					e.Counts = p.o.Recorder.UpstreamConn(s.Name).Version(v)
				}
				if e.Pool == nil {
					e.Pool = p.newPool(s, e, next.Mesh.Config)
					if joins {
						e.Meter.Since.Store(now.UnixNano())
					}
					switch {
					case switchedIn(s, was):
						fresh = append(fresh, e)
					case s.Config != nil && s.Config.Preconnect > 0:
						found = append(found, aheadOne{e, s.Config.Preconnect})
					}
				}
				speak(poolOf(e), e.Spec.Labels[spokenLabel])
				if l, ok := e.Pool.(*linkedPool); ok {
					l.bound(s, settings)
				} else {
					poolOf(e).Set(settings)
				}
			}
		}
	}
	warm(fresh)
	return changed, found
}

// side is one of the directories of a snapshot.
type side struct {
	dir telemetry.Direction
	of  func(*snapshot.Snapshot) *snapshot.Directory
}

func sides() []side {
	return []side{
		{telemetry.Outbound, func(s *snapshot.Snapshot) *snapshot.Directory { return s.Outbound }},
		{telemetry.Inbound, func(s *snapshot.Snapshot) *snapshot.Directory { return s.Inbound }},
		{telemetry.Outbound, func(s *snapshot.Snapshot) *snapshot.Directory { return s.Aside }},
	}
}

func directory(s *snapshot.Snapshot, dir telemetry.Direction) *snapshot.Directory {
	if dir == telemetry.Inbound {
		return s.Inbound
	}
	return s.Outbound
}

// settle brings everything else in line with a snapshot that is in force: outlier detection learns how many endpoints
// there are, waiters of widened limits go on, and what is gone is let go.
func (p *Proxy) settle(prev, next *snapshot.Snapshot, changed []*snapshot.Service) {
	now := time.Now()
	for _, s := range changed {
		for _, e := range s.Endpoints {
			if s.Outlier == nil {
				e.Readmit(now)
			}
			e.Shut(now)
		}
		p.resize(now, s)
		grant(now, s.Rest.Limiter)
		for _, r := range s.Routes {
			grant(now, r.Limiter)
		}
	}
	p.settleSwitches(prev, next)
	if prev == nil {
		return
	}
	p.letGo(now, prev, next, changed)
	if prev.Mesh.Config != next.Mesh.Config {
		p.o.Recorder.Retain(func(service, route string) bool { return lives(next, service, route) })
	}
}

// grant lets those go on that a limiter has room for.
func grant(now time.Time, l *resilience.Limiter) {
	for w := l.Grant(now); w != nil; w = l.Grant(now) {
		w.Wake()
	}
}

// letGo closes the pools of endpoints that are no longer there. Exchanges that use them finish.
func (p *Proxy) letGo(now time.Time, prev, next *snapshot.Snapshot, changed []*snapshot.Service) {
	kept := map[any]bool{}
	for _, s := range changed {
		for _, e := range s.Endpoints {
			kept[e.Pool] = true
		}
	}
	for _, side := range sides() {
		for _, was := range side.of(prev).List {
			is, ok := side.of(next).Get(was.Name)
			if ok && is == was {
				continue
			}
			for _, e := range was.Endpoints {
				if !kept[e.Pool] {
					was.Outlier.Forget(now, e.Health)
					poolOf(e).Close()
				}
			}
		}
	}
}

func lives(s *snapshot.Snapshot, service, route string) bool {
	for _, side := range sides() {
		svc, ok := side.of(s).Get(service)
		if !ok {
			continue
		}
		if route == "" {
			return true
		}
		for _, r := range svc.Routes {
			if r.Name == route {
				return true
			}
		}
	}
	return false
}

// gauge tells how many endpoints a service has and how many are usable.
func (p *Proxy) gauge(s *snapshot.Service) {
	u := p.o.Recorder.UpstreamConn(s.Name)
	u.Endpoints(len(s.Endpoints), s.Usable())
	u.Subset(s.Subset.Of)
}

// setLimits puts the limits of the process in force.
func (p *Proxy) setLimits(c *config.Config) {
	limit := int64(c.Limits.Connections)
	if limit == 0 {
		var files syscall.Rlimit
		if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil || files.Cur > 1<<30 {
			files.Cur = 1 << 30
		}
		limit = min(16000, max(16, (int64(files.Cur)-500)/2))
	}
	p.maxConn.Store(limit)
	p.windows.Set(c.Limits.WindowMemory)
	each(p.store.Load(), func(e *snapshot.Endpoint) { bound(poolOf(e), p.limits2(c)) })
}

// countRules shows which rules are in force, and where from: what the local file says, no push changes (S-127).
func (p *Proxy) countRules(c *config.Config) {
	var list []telemetry.RuleCount
	for _, r := range c.RuleSets() {
		list = append(list, telemetry.RuleCount{Service: r.Service, Rank: r.Rank().String(), Rules: len(r.Rules.List)})
	}
	p.o.Recorder.Rules(list)
}

// tellSwitches makes an event of each group switch that came or went.
func (p *Proxy) tellSwitches(prev, next *snapshot.Snapshot) {
	was := map[string]config.GroupSwitch{}
	if prev != nil {
		was = switches(prev.Mesh.Config)
	}
	is := switches(next.Mesh.Config)
	for key, g := range is {
		if _, ok := was[key]; !ok {
			p.o.Recorder.GroupSwitched(g.Service, g.Group, strings.Join(g.To, ","), g.From.String())
		}
	}
	for key, g := range was {
		if _, ok := is[key]; !ok {
			p.o.Recorder.GroupSwitched(g.Service, strings.Join(g.To, ","), g.Group, "the switch is gone: "+g.From.String())
		}
	}
}

// switches are the group switches that are on, by what they say.
func switches(c *config.Config) map[string]config.GroupSwitch {
	m := map[string]config.GroupSwitch{}
	for _, g := range c.Groups {
		if g.Enabled {
			m[g.Service+"\x00"+g.Group+"\x00"+strings.Join(g.To, "\x00")] = g
		}
	}
	return m
}

func (p *Proxy) limits2(c *config.Config) h2.Limits {
	l := h2.Limits{
		HeaderBytes: int(c.Limits.HeaderBytes), HeaderCount: c.Limits.HeaderCount, IdleTimeout: c.Limits.IdleTimeout,
		MaxAge: c.Limits.MaxAge, MaxRequests: c.Limits.MaxRequests, Windows: p.windows,
	}
	if c.Limits.ModerateReads {
		l.Moderator = p.moderator
	}
	return l
}

func limitsOf(c *config.Config) h1.Limits {
	return h1.Limits{
		HeaderBytes: int(c.Limits.HeaderBytes), HeaderCount: c.Limits.HeaderCount, HeaderTimeout: c.Limits.HeaderTimeout,
		IdleTimeout: c.Limits.IdleTimeout, HalfClose: c.Limits.HalfClose,
	}
}

// openListeners opens what a configuration asks for and is not open yet.
func (p *Proxy) openListeners(c *config.Config) (map[string]*listener, error) {
	fresh := map[string]*listener{}
	var errs []error
	for _, w := range wanted(c) {
		if p.listeners[w.address] != nil || p.stopping[w.dir] {
			continue
		}
		l, err := p.open(w, c)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", w.field, err))
			continue
		}
		fresh[w.address] = l
	}
	if len(errs) > 0 {
		for _, l := range fresh {
			l.stop()
		}
		return nil, errors.Join(errs...)
	}
	return fresh, nil
}

// swapListeners starts the new listeners and stops those that are not wanted any more; their connections go on.
func (p *Proxy) swapListeners(c *config.Config, fresh map[string]*listener) {
	keep := map[string]bool{}
	for _, w := range wanted(c) {
		keep[w.address] = true
		if l := p.listeners[w.address]; l != nil {
			l.retarget(w, c)
		}
	}
	for address, l := range p.listeners {
		if !keep[address] {
			l.stop()
			for _, t := range l.targets() {
				t.drain()
			}
			delete(p.listeners, address)
			p.retired = append(p.retired, l)
		}
	}
	for address, l := range fresh {
		p.listeners[address] = l
		l.start()
	}
	p.o.Recorder.RetainListeners(func(dir telemetry.Direction, name string) bool {
		for _, l := range p.listeners {
			if t := l.target.Load(); t.dir == dir && t.name == name {
				return true
			}
		}
		return false
	})
}

// poolObserver counts what happens to connections.
type poolObserver struct {
	u   *telemetry.Upstream
	rec *telemetry.Recorder
}

func (o poolObserver) Opened(took time.Duration) { o.u.Opened(took) }
func (o poolObserver) Closed()                   { o.u.Closed() }
func (o poolObserver) Idle(delta int)            { o.u.Idle(delta) }
func (o poolObserver) Away(code string)          { o.u.Away(code) }
func (o poolObserver) Retired(why string)        { o.rec.Retired("upstream", why) }
func (o poolObserver) ConnectFailed(timeout bool) {
	if timeout {
		o.u.Failed(resilience.ConnectTimeout)
	} else {
		o.u.Failed(resilience.ConnectFailed)
	}
}
