package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/sidecar-mesh/sidecar/config"
)

// answer is what a host resolved to.
type answer struct {
	addrs []netip.Addr
	ttl   time.Duration
}

// localTTL is how long what does not come from a name server counts.
const localTTL = 5 * time.Second

// maxRecords bounds the records of one answer that count.
const maxRecords = 10_000

// lookup resolves a target. known is what the targets of its SRV records resolved to before.
func (s *Source) lookup(ctx context.Context, t target, known map[string]answer) result {
	ctx, cancel := context.WithTimeout(ctx, lookupMax)
	defer cancel()
	if t.kind != hostKind {
		res := s.services(ctx, t.host, known)
		if t.kind == srvKind || !errors.Is(res.err, errGone) {
			return res
		}
	}
	a, err := s.client.addresses(ctx, t.host, true)
	if err != nil {
		return result{err: err}
	}
	return result{endpoints: endpoints(nil, a.addrs, t.port, 1), ttl: a.ttl}
}

func endpoints(list []*config.Endpoint, addrs []netip.Addr, port uint16, weight int) []*config.Endpoint {
	for _, a := range addrs {
		list = append(list, &config.Endpoint{Address: netip.AddrPortFrom(a, port).String(), Weight: weight})
	}
	return list
}

// services resolves SRV records: the group of the lowest priority that has an address. A weight of 0 ("very small", RFC
// 2782) counts as 1.
func (s *Source) services(ctx context.Context, name string, known map[string]answer) result {
	var reply *mdns.Msg
	owner, err := s.client.each(name, true, func(fqdn string) (bool, error) {
		var err error
		reply, err = s.client.query(ctx, fqdn, mdns.TypeSRV)
		if err != nil {
			return false, err
		}
		records, _ := srvRecords(reply, fqdn)
		return len(records) > 0, nil
	})
	if err != nil {
		return result{err: err}
	}
	records, ttl := srvRecords(reply, owner)
	res := result{ttl: ttl, hosts: make(map[string]answer)}
	for len(records) > 0 {
		group := records
		if i := slices.IndexFunc(records, func(r *mdns.SRV) bool { return r.Priority != records[0].Priority }); i >= 0 {
			group = records[:i]
		}
		records = records[len(group):]
		if err := s.group(ctx, &res, group, reply.Extra, known); err != nil {
			return result{err: err}
		}
		if len(res.endpoints) > 0 {
			return res
		}
	}
	return result{err: fmt.Errorf("%s: no SRV record leads to an address: %w", name, errGone)}
}

// group resolves the targets of one priority. One that cannot be found out now counts as it was before.
func (s *Source) group(ctx context.Context, res *result, group []*mdns.SRV, extra []mdns.RR, known map[string]answer) error {
	var failed error
	for _, r := range group {
		host := strings.ToLower(r.Target)
		a, done := res.hosts[host]
		if !done {
			a.addrs, a.ttl = addressesIn(extra, host, s.client.system.current().six)
		}
		if len(a.addrs) == 0 && host != "." {
			var err error
			a, err = s.client.addresses(ctx, host, false)
			switch old, ok := known[host]; {
			case errors.Is(err, errGone):
			case err != nil && ok:
				a = answer{addrs: old.addrs, ttl: 0} // asked again soon
			case err != nil:
				failed = err
			}
		}
		if len(a.addrs) == 0 {
			continue
		}
		res.hosts[host] = a
		res.ttl = min(res.ttl, a.ttl)
		res.endpoints = endpoints(res.endpoints, a.addrs, r.Port, max(int(r.Weight), 1))
	}
	return failed
}

// srvRecords gives the usable SRV records of a reply, by priority, and the least TTL.
func srvRecords(reply *mdns.Msg, name string) ([]*mdns.SRV, time.Duration) {
	var records []*mdns.SRV
	owners, ttl := aliases(reply.Answer, name)
	for _, rr := range reply.Answer {
		if r, ok := rr.(*mdns.SRV); ok && owners[strings.ToLower(r.Hdr.Name)] && r.Port != 0 && len(records) < maxRecords {
			records = append(records, r)
			ttl = min(ttl, seconds(r.Hdr.Ttl))
		}
	}
	slices.SortStableFunc(records, func(a, b *mdns.SRV) int { return int(a.Priority) - int(b.Priority) })
	return records, ttl
}

// addresses resolves a host: a literal, localhost, the hosts file, then the name servers. IPv4 is used where the host has
// it, IPv6 where it has only that (the other way round on a machine without IPv4): one server is one endpoint, not two.
func (c *client) addresses(ctx context.Context, host string, search bool) (answer, error) {
	bare := strings.ToLower(strings.TrimSuffix(host, "."))
	if ip, err := netip.ParseAddr(bare); err == nil {
		return answer{addrs: []netip.Addr{ip.Unmap()}, ttl: localTTL}, nil
	}
	sys := c.system.current()
	if addrs := sys.hosts[bare]; len(addrs) > 0 {
		return answer{addrs: oneFamily(addrs, sys.six), ttl: localTTL}, nil
	}
	if bare == "localhost" || strings.HasSuffix(bare, ".localhost") { // RFC 6761
		return answer{addrs: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, ttl: localTTL}, nil
	}
	var a answer
	_, err := c.each(host, search, func(fqdn string) (bool, error) {
		var err error
		a, err = c.families(ctx, fqdn, sys.six)
		return len(a.addrs) > 0, err
	})
	return a, err
}

// families asks for the addresses of one full name, in the family that is preferred and then in the other. The answer is
// empty when there are none; NXDOMAIN for one family does not speak for the other (some servers get that wrong).
func (c *client) families(ctx context.Context, fqdn string, six bool) (answer, error) {
	types := []uint16{mdns.TypeA, mdns.TypeAAAA}
	if six {
		slices.Reverse(types)
	}
	for _, t := range types {
		reply, err := c.query(ctx, fqdn, t)
		if err != nil && !errors.Is(err, errGone) {
			return answer{}, err
		}
		if err != nil {
			continue
		}
		var a answer
		a.addrs, a.ttl = addressesIn(reply.Answer, strings.ToLower(fqdn), t == mdns.TypeAAAA)
		if len(a.addrs) > 0 {
			return a, nil
		}
	}
	return answer{}, nil
}

// each tries the full names that a name may stand for, by search domains and ndots, until one has records. When none has,
// the error is errGone only if that is sure for all of them.
func (c *client) each(name string, search bool, try func(fqdn string) (found bool, err error)) (string, error) {
	names := []string{mdns.Fqdn(name)}
	if search {
		names = c.system.current().candidates(name)
	}
	var failed error
	for _, fqdn := range names {
		found, err := try(fqdn)
		if found {
			return fqdn, nil
		}
		if err != nil && !errors.Is(err, errGone) && failed == nil {
			failed = err
		}
	}
	if failed != nil {
		return "", failed
	}
	return "", fmt.Errorf("%s: %w", strings.TrimSuffix(name, "."), errGone)
}

// addressesIn finds the addresses of a host (in lower case, with its final dot) in a section, following CNAMEs.
func addressesIn(section []mdns.RR, host string, six bool) ([]netip.Addr, time.Duration) {
	owners, ttl := aliases(section, host)
	var addrs []netip.Addr
	for _, rr := range section {
		var ip netip.Addr
		var ok bool
		switch r := rr.(type) {
		case *mdns.A:
			if ip, ok = netip.AddrFromSlice(r.A); six {
				continue
			}
		case *mdns.AAAA:
			if ip, ok = netip.AddrFromSlice(r.AAAA); !six {
				continue
			}
		}
		if !ok || !owners[strings.ToLower(rr.Header().Name)] || len(addrs) >= maxRecords {
			continue
		}
		addrs = append(addrs, ip.Unmap())
		ttl = min(ttl, seconds(rr.Header().Ttl))
	}
	return addrs, ttl
}

// aliases gives the names that a name leads to by the CNAMEs of a section, itself included, and their least TTL.
func aliases(section []mdns.RR, name string) (map[string]bool, time.Duration) {
	ttl := time.Duration(1<<63 - 1)
	at := strings.ToLower(name)
	owners := map[string]bool{at: true}
	for again := true; again; {
		again = false
		for _, rr := range section {
			r, ok := rr.(*mdns.CNAME)
			if !ok || !strings.EqualFold(r.Hdr.Name, at) {
				continue
			}
			next := strings.ToLower(r.Target)
			if owners[next] {
				continue
			}
			owners[next], at, again = true, next, true
			ttl = min(ttl, seconds(r.Hdr.Ttl))
		}
	}
	return owners, ttl
}

func seconds(n uint32) time.Duration { return time.Duration(n) * time.Second }

func oneFamily(addrs []netip.Addr, six bool) []netip.Addr {
	var of []netip.Addr
	for _, a := range addrs {
		if a.Is6() == six {
			of = append(of, a)
		}
	}
	if len(of) == 0 {
		return addrs
	}
	return of
}
