package consul

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"github.com/hashicorp/consul/api"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/registration"
)

// Registry registers instances with the first agent of a registry: the one beside us, since an agent is the owner of what
// is registered with it. It implements registrar.Registry.
type Registry struct {
	c          *client
	host       string // of the agent; empty for a socket
	datacenter string // that the registry is said to be of; empty: whichever the agent is of

	mu    sync.Mutex
	agent agentIdentity // once it is known; guarded by mu
	// tokens are, by instance, those that the agent has it under. The agent tells the servers by them: one that was renewed since
	// must be told to it anew. Guarded by mu.
	tokens map[string]string
}

// agentIdentity is who an agent is.
type agentIdentity struct{ node, ip, datacenter string }

// NewRegistry prepares a registry, without I/O.
func NewRegistry(reg *config.Registry) (*Registry, error) {
	if reg.Consul == nil {
		return nil, errors.New("registry " + reg.Name + ": not a Consul registry")
	}
	c, err := newClient(reg.Consul, usual())
	if err != nil {
		return nil, err
	}
	return &Registry{c: c, host: hostOf(reg.Consul.Addresses[0]), datacenter: reg.Consul.Datacenter}, nil
}

// hostOf is the host of an agent's address.
func hostOf(address string) string {
	if strings.HasPrefix(address, "unix:") {
		return ""
	}
	if _, rest, ok := strings.Cut(address, "://"); ok {
		address = rest
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// Close ends the connections.
func (r *Registry) Close() { r.c.close() }

func (r *Registry) api() *api.Agent { return r.c.agents[0].api.Agent() }

func (r *Registry) query(ctx context.Context) *api.QueryOptions {
	return (&api.QueryOptions{Token: r.c.readToken()}).WithContext(ctx)
}

// checkID is the check that we keep for an instance.
func checkID(i *registration.Instance) string { return "sidecar:" + i.ID }

// Register implements registrar.Registry. Checks that others have added stay: an operator's maintenance among them (S-208).
func (r *Registry) Register(ctx context.Context, i *registration.Instance, well bool) registration.Result {
	if why := r.elsewhere(ctx); why != "" {
		return registration.Result{Kind: registration.Failed, Text: why}
	}
	check := &api.AgentServiceCheck{CheckID: checkID(i), Name: "sidecar", Status: api.HealthCritical}
	if well {
		check.Status = api.HealthPassing
	}
	if i.DeregisterAfter > 0 {
		check.DeregisterCriticalServiceAfter = i.DeregisterAfter.String()
	}
	if p := &i.Probe; p.Own() {
		check.TCP, check.HTTP, check.GRPC = p.TCP, p.HTTP, p.GRPC
		check.Interval, check.Timeout = p.Interval.String(), p.Timeout.String()
	} else {
		check.TTL = i.TTL.String()
	}
	address := i.Address
	if address == "" {
		address = r.localAddress()
	}
	token := r.c.readToken()
	opts := api.ServiceRegisterOpts{Token: token}.WithContext(ctx)
	err := r.api().ServiceRegisterOpts(&api.AgentServiceRegistration{
		ID: i.ID, Name: i.Service, Address: address, Port: i.Port, Tags: i.Tags, Meta: i.Meta,
		Weights: &api.AgentWeights{Passing: i.Weight, Warning: 1}, Check: check,
	}, opts)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.tokens == nil {
			r.tokens = map[string]string{}
		}
		r.tokens[i.ID] = token
	}
	return failure(err)
}

// renewed reports whether the token is another one than that which the agent has the instance under.
func (r *Registry) renewed(i *registration.Instance) bool {
	token := r.c.readToken()
	r.mu.Lock()
	defer r.mu.Unlock()
	had, ok := r.tokens[i.ID]
	return ok && had != token
}

// localAddress is the address from which the agent is reached. One on this very machine knows its node's address better.
func (r *Registry) localAddress() string {
	ip, err := netip.ParseAddr(r.host)
	if r.host == "" || r.host == "localhost" || err == nil && ip.IsLoopback() {
		return ""
	}
	c, err := net.Dial("udp", net.JoinHostPort(r.host, "8500")) // sends nothing
	if err != nil {
		return ""
	}
	defer c.Close()
	local, ok := c.LocalAddr().(*net.UDPAddr)
	if !ok || local.IP.IsLoopback() {
		return ""
	}
	return local.IP.String()
}

// Report implements registrar.Registry.
func (r *Registry) Report(ctx context.Context, i *registration.Instance, well bool, note string) registration.Result {
	var err error
	switch {
	case r.renewed(i):
		return r.renew(ctx, i, well)
	case i.Probe.Own():
		_, _, err = r.api().Service(i.ID, r.query(ctx))
	case well:
		err = r.api().UpdateTTLOpts(checkID(i), "the app is well", api.HealthPassing, r.query(ctx))
	default:
		err = r.api().UpdateTTLOpts(checkID(i), note, api.HealthCritical, r.query(ctx))
	}
	if unknown(err) {
		return lost()
	}
	return failure(err)
}

// renew registers an instance that the agent has under another token anew, as it is.
func (r *Registry) renew(ctx context.Context, i *registration.Instance, well bool) registration.Result {
	checks, err := r.api().ChecksWithFilterOpts("CheckID == "+quote(checkID(i)), r.query(ctx))
	if err != nil {
		return failure(err)
	}
	check := checks[checkID(i)]
	switch {
	case check == nil:
		return lost()
	case i.Probe.Own():
		well = check.Status == api.HealthPassing
	}
	return r.Register(ctx, i, well)
}

func lost() registration.Result {
	return registration.Result{Kind: registration.Lost, Text: "the agent does not know it"}
}

// Deregister implements registrar.Registry.
func (r *Registry) Deregister(ctx context.Context, i *registration.Instance) registration.Result {
	if r.renewed(i) {
		if result := r.Register(ctx, i, false); result.Kind != registration.OK {
			return result
		}
	}
	err := r.api().ServiceDeregisterOpts(i.ID, r.query(ctx))
	if unknown(err) {
		err = nil
	}
	return failure(err)
}

// Verify implements registrar.Registry: neither the agent nor the catalogue has it any more (S-27).
func (r *Registry) Verify(ctx context.Context, i *registration.Instance) registration.Result {
	switch _, _, err := r.api().Service(i.ID, r.query(ctx)); {
	case err == nil:
		return registration.Result{Kind: registration.There, Text: "the agent has it still"}
	case !unknown(err):
		return failure(err)
	}
	self, err := r.self(ctx)
	if err != nil {
		return failure(err)
	}
	q := r.query(ctx)
	q.Filter = "ServiceID == " + quote(i.ID)
	list, _, err := r.c.agents[0].api.Catalog().Service(i.Service, "", q)
	if err != nil {
		return failure(err)
	}
	for _, s := range list {
		if s.Node == self.node {
			return registration.Result{Kind: registration.There, Text: "the catalogue lists it still"}
		}
	}
	return registration.Result{}
}

// Sweep implements registrar.Registry.
func (r *Registry) Sweep(ctx context.Context, node string, keep func(id string) bool) (removed []string, err error) {
	list, err := r.api().ServicesWithFilterOpts("Meta.sidecar == "+quote(node), r.query(ctx))
	if err != nil {
		return nil, classify(err)
	}
	var errs []error
	for id := range list {
		if keep(id) {
			continue
		}
		if err := r.api().ServiceDeregisterOpts(id, r.query(ctx)); err != nil && !unknown(err) {
			errs = append(errs, fmt.Errorf("%s: %w", id, classify(err)))
			continue
		}
		removed = append(removed, id)
	}
	return removed, errors.Join(errs...)
}

// self returns who the agent is.
func (r *Registry) self(ctx context.Context) (agentIdentity, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agent.node != "" {
		return r.agent, nil
	}
	var self struct {
		Config struct{ NodeName, Datacenter string }
		Member struct{ Addr string }
	}
	if _, err := r.c.agents[0].api.Raw().Query("/v1/agent/self", &self, r.query(ctx)); err != nil {
		return agentIdentity{}, err
	}
	r.agent = agentIdentity{node: self.Config.NodeName, ip: self.Member.Addr, datacenter: self.Config.Datacenter}
	return r.agent, nil
}

// elsewhere says that the agent is of another datacenter than the registry: what is registered with an agent appears in the agent's own, and
// nowhere else. Where the agent does not say who it is, it is taken to be the right one.
func (r *Registry) elsewhere(ctx context.Context) (why string) {
	if r.datacenter == "" {
		return ""
	}
	self, err := r.self(ctx)
	if err != nil || self.datacenter == "" || strings.EqualFold(self.datacenter, r.datacenter) {
		return ""
	}
	return fmt.Sprintf("the agent is of the datacenter %s, and would register it there: to register in %s, the first address has to be an agent of it",
		self.datacenter, r.datacenter)
}

// quote writes a text as filter expressions want it.
func quote(s string) string { return "\"" + strings.ReplaceAll(s, "\"", "") + "\"" }

// unknown reports whether the agent does not know what it was asked about.
func unknown(err error) bool {
	var s api.StatusError
	return errors.As(err, &s) && (s.Code == http.StatusNotFound ||
		strings.Contains(s.Body, "Unknown check") || strings.Contains(s.Body, "does not have associated TTL") ||
		strings.Contains(s.Body, "Unknown service"))
}

// failure is how an action ended.
func failure(err error) registration.Result {
	if err == nil {
		return registration.Result{}
	}
	return registration.Result{Kind: registration.Failed, Text: classify(err).Error()}
}

// Check implements registrar.Registry. The rules are keys below a prefix:
//
//	allow               who may register: addresses, networks or node ids, one a line; absent: everybody (S-19)
//	catalogue/SERVICE   the services that may be registered, with their groups, one a line; no group: any (S-18)
//	offline/SERVICE     an operator wants the service away, or with /ID one instance of it; the value says why (S-208)
//
// They are asked in this order, and the first that says no counts. This is advice that we give ourselves; what must be
// prevented is for the access rules of Consul to prevent.
func (r *Registry) Check(ctx context.Context, i *registration.Instance) registration.Result {
	for _, ask := range []func(context.Context, *registration.Instance) (registration.Result, error){
		r.offline, r.allowed, r.listed,
	} {
		result, err := ask(ctx, i)
		if err != nil {
			return failure(err)
		}
		if result.Kind != registration.OK {
			return result
		}
	}
	return registration.Result{}
}

func (r *Registry) get(ctx context.Context, key string) (value string, there bool, err error) {
	q := r.query(ctx)
	q.AllowStale = true
	pair, _, err := r.c.agents[0].api.KV().Get(key, q)
	if err != nil || pair == nil {
		return "", false, err
	}
	return string(pair.Value), true, nil
}

func (r *Registry) offline(ctx context.Context, i *registration.Instance) (registration.Result, error) {
	base := i.Rules + "/offline/" + i.Service
	for _, key := range []string{base + "/" + i.ID, base} {
		why, there, err := r.get(ctx, key)
		if err != nil {
			return registration.Result{}, err
		}
		if there {
			return registration.Result{Kind: registration.Offline, Text: cmp.Or(excerpt(strings.TrimSpace(why)), "the key "+key+" is there")}, nil
		}
	}
	return registration.Result{}, nil
}

func (r *Registry) allowed(ctx context.Context, i *registration.Instance) (registration.Result, error) {
	text, there, err := r.get(ctx, i.Rules+"/allow")
	if err != nil || !there {
		return registration.Result{}, err
	}
	ip := cmp.Or(i.Address, r.localAddress())
	if ip == "" {
		self, err := r.self(ctx)
		if err != nil {
			return registration.Result{}, err
		}
		ip = self.ip
	}
	if allows(text, ip, i.Node) {
		return registration.Result{}, nil
	}
	return registration.Result{Kind: registration.NotAllowed, Text: fmt.Sprintf("neither the address %s nor the node %s is in the key %s/allow", ip, i.Node, i.Rules)}, nil
}

// allows reports whether a list names an address or a node.
func allows(list, ip, node string) bool {
	addr, _ := netip.ParseAddr(ip)
	name, _, _ := strings.Cut(node, ":")
	for _, item := range lines(list) {
		if item == node || item == name || item == ip {
			return true
		}
		if p, err := netip.ParsePrefix(item); err == nil && addr.IsValid() && p.Contains(addr.Unmap()) {
			return true
		}
	}
	return false
}

func (r *Registry) listed(ctx context.Context, i *registration.Instance) (registration.Result, error) {
	key := i.Rules + "/catalogue/"
	text, there, err := r.get(ctx, key+i.Service)
	if err != nil {
		return registration.Result{}, err
	}
	if !there {
		keys, _, err := r.c.agents[0].api.KV().Keys(key, "/", r.query(ctx))
		if err != nil || len(keys) == 0 { // no catalogue is kept
			return registration.Result{}, err
		}
		return registration.Result{Kind: registration.UnknownService, Text: "there is no key " + key + i.Service}, nil
	}
	groups := lines(text)
	if len(groups) == 0 {
		return registration.Result{}, nil
	}
	for _, g := range groups {
		if g == i.Group {
			return registration.Result{}, nil
		}
	}
	return registration.Result{Kind: registration.UnknownGroup, Text: fmt.Sprintf("the key %s does not list the group %q", key+i.Service, i.Group)}, nil
}

// lines returns what stands on the lines of a text, without comments.
func lines(text string) []string {
	var list []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}
