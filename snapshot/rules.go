package snapshot

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/route"
	"github.com/sidecar-mesh/sidecar/route/rules"
)

// ruleSets reads the rules of all services. Text that did not change is not read again.
func (c *compiler) ruleSets(next *Snapshot) {
	next.rules, next.programs = map[string]*rules.Set{}, programs{}
	if c.prev != nil && c.prev.Mesh.Config == c.cfg {
		next.rules, next.programs, next.Warnings = c.prev.rules, c.prev.programs, c.prev.Warnings
		c.sets, c.programs = next.rules, next.programs
		return
	}
	c.sets, c.programs = next.rules, next.programs
	for _, r := range c.cfg.RuleSets() {
		next.rules[r.Service] = c.ruleSet(next, r.Service, r.Rules)
	}
	slices.SortStableFunc(next.Warnings, func(a, b config.Error) int { return strings.Compare(a.File, b.File) })
}

// ruleSet reads the rules of one service.
func (c *compiler) ruleSet(next *Snapshot, name string, written *config.Rules) *rules.Set {
	var all []rules.Rule
	for i, w := range written.List {
		path := "rules of " + name + "[" + strconv.Itoa(i) + "]"
		warn := func(msg string) { next.Warnings = append(next.Warnings, mistakeAt(w.From, path, msg)) }
		parsed, warnings, err := parse(w)
		for _, msg := range warnings {
			warn(msg)
		}
		if err == nil {
			err = c.programs.add(parsed, c)
		}
		if err != nil {
			c.errs = append(c.errs, config.Errors{mistakeAt(w.From, path, err.Error())})
			continue
		}
		all = append(all, parsed...)
	}
	set := rules.NewSet(all)
	for _, msg := range set.Doubts() {
		next.Warnings = append(next.Warnings, mistakeAt(written.From, "rules of "+name, msg))
	}
	return set
}

func mistakeAt(at config.Origin, path, msg string) config.Error {
	e := config.Error{Line: int(at.Line), Col: int(at.Col), Path: path, Msg: msg}
	if at.Source != nil {
		e.File = at.Source.Name
	}
	return e
}

// parse reads one rule; what stands beside its text wins over what a URL says.
func parse(w *config.Rule) (list []rules.Rule, warnings []string, err error) {
	if w.Script != "" {
		var r rules.Rule
		r, err = rules.NewScript(w.Script, "")
		list = []rules.Rule{r}
	} else {
		list, warnings, err = rules.Parse(w.Text)
	}
	if err != nil {
		return nil, warnings, err
	}
	for i := range list {
		r := &list[i]
		if w.Name != "" {
			r.Name = w.Name
		}
		r.From = w.From.String()
		r.Priority = w.Priority.Or(r.Priority)
		r.Enabled = w.Enabled.Or(r.Enabled)
		r.Force = w.Force.Or(r.Force)
		r.Runtime = w.Runtime.Or(r.Runtime)
		if w.Until.Set {
			r.Until = w.Until.Value.Time()
		}
	}
	return list, warnings, nil
}

// guardOf returns the rules that a provider can enforce; nil if none of them can refuse anybody.
func guardOf(s *rules.Set) *rules.Set {
	if s == nil || !slices.ContainsFunc(s.Rules(), func(r rules.Rule) bool { return r.Forbid }) {
		return nil
	}
	return s
}

// viewOf returns the rules between us and a service that can act; nil if none can.
func (c *compiler) viewOf(s *Service) *rules.View {
	set := c.sets[s.Name]
	if set == nil {
		return nil
	}
	v, err := set.For(Caller(&c.cfg.Node))
	if err != nil {
		c.fail(s.origin(), fmt.Errorf("rules of %s: %w", s.Name, err))
		return nil
	}
	if !v.Acts() {
		return nil
	}
	return v
}

// Caller is a node as the left side of a rule sees it.
func Caller(n *config.Node) rules.Party {
	p := rules.Party{Attr: func(key string) (string, bool) {
		v := ""
		switch key {
		case "application", "service":
			v = n.Service
		case "id":
			v = n.ID
		case "group":
			v = n.Group
		case "version":
			v = n.Version
		case "zone":
			v = n.Zone
		case "region":
			v = n.Region
		case "tenant":
			v = n.Tenant
		case "environment":
			v = n.Environment
		}
		if v != "" {
			return v, true
		}
		v, ok := n.Labels[key]
		return v, ok
	}}
	for _, a := range n.Addresses {
		p.Hosts = append(p.Hosts, rules.AddrHost(a))
	}
	return p
}

// callerOf is a node as scripts see it.
func callerOf(n *config.Node) route.Caller {
	c := route.Caller{Service: n.Service, Labels: n.Labels}
	for _, a := range n.Addresses {
		if !a.IsLoopback() {
			c.Addr = a
			break
		}
	}
	return c
}

// party is an endpoint as the right side of a rule sees it.
func (e *Endpoint) party() rules.Party {
	host, port := splitAddress(e.Address)
	return rules.Party{Hosts: []rules.Host{rules.HostOf(host)}, Attr: func(key string) (string, bool) {
		switch key {
		case "port":
			return port, port != ""
		case "address":
			return e.Address, true
		}
		v := labelOf(e.Spec, key)
		return v, v != ""
	}}
}

// splitAddress takes host:port apart; the path of a unix socket is all host.
func splitAddress(address string) (host, port string) {
	i := strings.LastIndexByte(address, ':')
	if i < 0 || strings.HasPrefix(address, "unix:") {
		return address, ""
	}
	return strings.Trim(address[:i], "[]"), address[i+1:]
}

// Method is what rules call a request: the RPC method of a gRPC call, the name of the route on HTTP (S-115).
func (r *Route) Method(grpcPath string) string {
	if grpcPath != "" {
		return grpcPath[strings.LastIndexByte(grpcPath, '/')+1:]
	}
	return r.Name
}

// errNoScripts is what a script rule says where no engine is built in.
var errNoScripts = errors.New("script rules are not available here")

// Refuses returns the rule by which our own app refuses a caller at now, nil if none does. It judges by the address alone: what
// else a caller is, only it knows. It does not allocate.
func (s *Service) Refuses(caller netip.Addr, text, method string, now time.Time) *rules.Rule {
	if s.Guard == nil {
		return nil
	}
	hosts := [1]rules.Host{{Text: text, Addr: caller}}
	party := rules.Party{Partial: true}
	if caller.IsValid() {
		party.Hosts = hosts[:]
	}
	return s.Guard.Refuses(&party, method, now)
}
