package discovery

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/sidecar-mesh/sidecar/config"
)

// named reports whether an address has to be resolved before it can be dialled: a host name with a port, `srv:NAME`, or
// the name of an SRV record (`_http._tcp.catalog.internal`).
func named(address string) bool {
	if numeric(address) || strings.HasPrefix(address, "unix:") {
		return false
	}
	if _, err := netip.ParseAddrPort(address); err == nil {
		return false
	}
	if strings.HasPrefix(address, "srv:") || strings.HasPrefix(address, "_") {
		return true
	}
	_, _, err := net.SplitHostPort(address)
	return err == nil
}

// numeric reports whether an address is an IPv4 one, which has one spelling; it is what nearly all are, and cheap to see.
func numeric(address string) bool {
	for i := range len(address) {
		if c := address[i]; (c < '0' || c > '9') && c != '.' && c != ':' {
			return false
		}
	}
	return true
}

// canonical returns the one spelling of an address under which it is compared.
func canonical(address string) string {
	if numeric(address) || strings.HasPrefix(address, "unix:") {
		return address
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return strings.ToLower(address)
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()).String()
}

func byAddress(a, b *config.Endpoint) int { return cmp.Compare(a.Address, b.Address) }

// refresh brings an answer into the form that is kept: sorted by address, each address once (the first one counts), and
// with the pointers of before for endpoints that did not change. It reports whether anything did. next is overwritten.
func refresh(prev, next []*config.Endpoint) ([]*config.Endpoint, bool) {
	next = slices.DeleteFunc(next, func(e *config.Endpoint) bool { return e == nil || e.Address == "" })
	for i, e := range next {
		if a := canonical(e.Address); a != e.Address {
			c := *e
			c.Address = a
			next[i] = &c
		}
	}
	if !slices.IsSortedFunc(next, byAddress) {
		slices.SortStableFunc(next, byAddress)
	}
	next = slices.CompactFunc(next, func(a, b *config.Endpoint) bool { return a.Address == b.Address })
	changed := len(prev) != len(next)
	i := 0
	for n, e := range next {
		for i < len(prev) && prev[i].Address < e.Address {
			i++
		}
		if i < len(prev) && sameEndpoint(prev[i], e) {
			next[n] = prev[i]
		} else {
			changed = true
		}
	}
	if !changed {
		return prev, false
	}
	return next, true
}

func sameEndpoint(a, b *config.Endpoint) bool {
	if a == b {
		return true
	}
	return a.Address == b.Address && a.Weight == b.Weight && a.Group == b.Group && a.Zone == b.Zone &&
		a.Region == b.Region && a.Version == b.Version && a.Health == b.Health && sameOrigin(a.From, b.From) && maps.Equal(a.Labels, b.Labels)
}

func sameOrigin(a, b config.Origin) bool {
	if a.Line != b.Line || a.Col != b.Col || (a.Source == nil) != (b.Source == nil) {
		return false
	}
	return a.Source == b.Source || *a.Source == *b.Source
}

// resolved is what an endpoint with a name becomes for one address behind it: everything that was said of the name, and
// its weight times that of the address (an SRV record has one).
func resolved(entry, at *config.Endpoint) *config.Endpoint {
	e := *entry
	e.Address = at.Address
	if at.Weight > 1 {
		e.Weight = int(min(int64(entry.Weight)*int64(at.Weight), maxWeight))
	}
	return &e
}

// maxWeight is the largest weight an endpoint may have.
const maxWeight = 1_000_000
