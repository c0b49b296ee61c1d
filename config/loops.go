package config

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// LeadsBack names the listener of ours at which a call to address would arrive again, for ever: the outbound one, or when
// the call goes to our own app any that takes its traffic. Empty: none. A service that calls itself by way of its inbound
// listener is no circle.
func (c *Config) LeadsBack(address string, toApp bool) string {
	if c.meets(c.Listen.Outbound, address) {
		return "listen.outbound"
	}
	if toApp && c.meets(c.Listen.Inbound, address) {
		return "listen.inbound"
	}
	return ""
}

// meets reports whether a connection to address arrives at a listener of ours. Of a name nothing is known.
func (c *Config) meets(listener, address string) bool {
	i, j := strings.LastIndexByte(listener, ':'), strings.LastIndexByte(address, ':')
	if i < 0 || j < 0 || address[j+1:] != listener[i+1:] || address[j+1:] == "0" {
		return false
	}
	at, to := listenIP(listener[:i]), listenIP(address[:j])
	if !at.IsValid() || !to.IsValid() {
		return false
	}
	if to.IsUnspecified() { // the system takes it for loopback
		to = loopbackOf(to)
	}
	if !at.IsUnspecified() {
		return at == to
	}
	return (at.Is6() || to.Is4()) && (to.IsLoopback() || slices.Contains(c.Node.Addresses, to))
}

func loopbackOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// loops looks for endpoints and apps that are listeners of ours.
func (k *checker) loops() {
	for _, s := range k.config.ordered() {
		for i, e := range s.Endpoints {
			l := k.config.LeadsBack(e.Address, false)
			if l == "" && k.config.meets(s.Listen, e.Address) {
				l = "services." + s.Name + ".listen"
			}
			if l != "" {
				k.fail(claim{path: "services." + s.Name + ".endpoints[" + strconv.Itoa(i) + "]", from: e.From}, "the address "+e.Address+" is this sidecar's own "+l+": calls would go round in a circle; give the address of the service itself")
			}
		}
	}
	for i, in := range k.config.Inbound {
		if l := k.config.LeadsBack(in.App, true); l != "" {
			k.fail(claim{path: "inbound[" + strconv.Itoa(i) + "].app", from: in.From}, "the address "+in.App+" is this sidecar's own "+l+": calls would go round in a circle; give the address of the app itself")
		}
	}
}
