package snapshot

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/resilience"
)

// Switch is a degradation switch (S-156 … S-165): what is configured, its state, and what stands in for the service.
type Switch struct {
	Name   string
	Config *config.Switch
	State  *resilience.Switch
	Answer *StandIn
	When   resilience.Failures // which it answers, where it is no shield
}

// Shield reports whether no call is made while it is on.
func (w *Switch) Shield() bool { return w.Config.Mode == config.ModeShield }

// StandIn is what is answered in place of a service.
type StandIn struct {
	Config *config.StandIn
	GRPC   resilience.GRPC // of KindError
	Text   []TextPart      // of a template, else nil
	Escape Escape          // of what placeholders stand for
	Local  *Route          // of KindLocal: leads to our own app
	Path   string          // of KindLocal
}

// The kinds of a StandIn, as the configuration has them.
const (
	KindAnswer = config.KindAnswer
	KindError  = config.KindError
	KindLocal  = config.KindLocal
	KindStale  = config.KindStale
)

// TextPart is text, or a placeholder.
type TextPart struct {
	Text string // as it is, where Kind is empty
	Kind string // method, path, query, header, service, request_id, reason
	Name string // of a query parameter or a header field
}

// Escape is how the value of a placeholder is written.
type Escape uint8

// The ways to write a value.
const (
	EscapeNone Escape = iota
	EscapeJSON
	EscapeHTML
)

// Fallback answers when a call has failed (S-162, S-166).
type Fallback struct {
	When   resilience.Failures
	Answer *StandIn
	Stale  *resilience.Stale // of KindStale
}

// degradation compiles the switches.
func (c *compiler) degradation(next *Snapshot) {
	c.aside = map[string]*Service{}
	if c.prev != nil && c.prev.Mesh.Config == c.cfg { // then it leads to the same places
		c.aside = maps.Clone(c.prev.Aside.byName)
		next.Switches = c.prev.Switches
	} else {
		for _, name := range slices.Sorted(maps.Keys(c.cfg.Switches)) {
			next.Switches = append(next.Switches, c.degrade(c.cfg.Switches[name]))
		}
	}
	c.switches = map[string][]*Switch{}
	for _, w := range next.Switches {
		c.switches[w.Config.Service] = append(c.switches[w.Config.Service], w)
	}
	for _, list := range c.switches { // those that are about a route alone come first
		slices.SortStableFunc(list, func(a, b *Switch) int { return cmp.Compare(min(1, len(b.Config.Route)), min(1, len(a.Config.Route))) })
	}
}

func (c *compiler) degrade(cfg *config.Switch) *Switch {
	w := &Switch{Name: cfg.Name, Config: cfg, Answer: c.standIn(&cfg.Answer)}
	w.When, _ = resilience.ParseFailures(config.TransportFailures()) // both know the same words
	var rule *resilience.SwitchRule
	if a := cfg.Auto; a != nil {
		rule = &resilience.SwitchRule{
			When: a.When.ErrorRatio, WhenFor: a.When.For, Until: a.Until.ErrorRatio, UntilFor: a.Until.For, Ramp: a.Ramp,
		}
	}
	w.State = resilience.NewSwitch(rule, cfg.Initial().Enabled.Value)
	if c.prev != nil {
		if was := c.prev.Switch(cfg.Name); was != nil {
			w.State = w.State.Adopt(was.State)
		}
	}
	return w
}

// Switch returns a switch by its name, nil if there is none.
func (s *Snapshot) Switch(name string) *Switch {
	i, ok := slices.BinarySearchFunc(s.Switches, name, func(w *Switch, name string) int { return cmp.Compare(w.Name, name) })
	if !ok {
		return nil
	}
	return s.Switches[i]
}

// degradable gives a route its switches, those that are about it alone first, and its fallback. was is its namesake before.
func (c *compiler) degradable(r, was *Route, p *config.Policy) {
	for _, w := range c.switches[r.Service.Name] {
		if r.Service.Inbound || w.Config.Route != "" && (r.Config == nil || w.Config.Route != r.Name) {
			continue
		}
		if w.Shield() {
			r.Shields = append(r.Shields, w)
		} else {
			r.StandIns = append(r.StandIns, w)
		}
		if w.State.Watches() {
			r.Watchers = append(r.Watchers, w)
		}
	}
	f := p.Fallback.Value
	critical := r.Service.Config != nil && r.Service.Config.Critical
	if f.Answer.Kind == "" || critical { // only a person may degrade what is critical (S-164)
		return
	}
	when, err := resilience.ParseFailures(f.When)
	if err != nil {
		c.fail(p.Fallback.From, err)
	}
	r.Fallback = &Fallback{When: when, Answer: c.standIn(&f.Answer)}
	if f.Answer.Kind == config.KindStale {
		r.Fallback.Stale = resilience.NewStale()
		if was != nil && was.Fallback != nil {
			r.Fallback.Stale = r.Fallback.Stale.Adopt(was.Fallback.Stale)
		}
	}
}

func (c *compiler) standIn(cfg *config.StandIn) *StandIn {
	s := &StandIn{Config: cfg}
	switch cfg.Kind {
	case config.KindError:
		s.GRPC, _ = resilience.GRPCNamed(cfg.GRPC) // the loader knows the same names
	case config.KindAnswer:
		if cfg.Template {
			s.template(cfg)
		}
	case config.KindLocal:
		host, path, _ := strings.Cut(strings.TrimPrefix(cfg.Local, "http://"), "/") // the loader has seen to the rest
		s.Local, s.Path = c.local(host), "/"+path
	}
	return s
}

// template takes a body apart.
func (s *StandIn) template(cfg *config.StandIn) {
	for _, h := range cfg.Headers {
		if strings.EqualFold(h.Name, "content-type") {
			switch kind := strings.ToLower(h.Value); {
			case strings.Contains(kind, "json"):
				s.Escape = EscapeJSON
			case strings.Contains(kind, "html"), strings.Contains(kind, "xml"):
				s.Escape = EscapeHTML
			}
		}
	}
	body, at := cfg.Body, 0
	for _, m := range config.Placeholders().FindAllStringSubmatchIndex(body, -1) {
		s.Text = append(s.Text, TextPart{Text: body[at:m[0]]})
		part := TextPart{Kind: body[m[2]:m[3]]}
		if m[4] >= 0 {
			part.Name = body[m[4]:m[5]]
		}
		s.Text = append(s.Text, part)
		at = m[1]
	}
	s.Text = append(s.Text, TextPart{Text: body[at:]})
}

// asides lists the services that no host leads to.
func (c *compiler) asides() *Directory {
	d := &Directory{byName: c.aside}
	for _, name := range slices.Sorted(maps.Keys(c.aside)) {
		d.List = append(d.List, c.aside[name])
	}
	return d
}

// localTimeout bounds what our own app may take to stand in.
const localTimeout = 5 * time.Second

// local returns a route to an address in our own pod, the same for the same address.
func (c *compiler) local(address string) *Route {
	if port, ok := strings.CutPrefix(address, "localhost:"); ok {
		address = "127.0.0.1:" + port
	}
	name := "local/" + address
	if s := c.aside[name]; s != nil {
		return s.Rest
	}
	var was *Service
	if c.prev != nil {
		was = c.prev.Aside.byName[name]
	}
	p := config.BuiltIn()
	p.Timeout.Value = localTimeout
	p.Outlier.Off.Value, p.Breaker.Off.Value = true, true
	s := &Service{Name: name, Protocol: "http", Policy: p}
	s.Endpoints = endpoints(s, []*config.Endpoint{{Address: address, Weight: 1}}, was)
	c.fill(s, was)
	s.Rest = c.route(s, nil, &s.Policy, restOf(was))
	c.aside[name] = s
	return s.Rest
}
