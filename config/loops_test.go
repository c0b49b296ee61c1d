package config

import (
	"net/netip"
	"testing"
)

// TestLeadsBack: a call leads back when its address is one at which a listener of ours takes connections.
func TestLeadsBack(t *testing.T) {
	pod := []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")}
	for _, test := range []struct {
		outbound, inbound, address string
		toApp                      bool
		want                       string
	}{
		{"127.0.0.1:1", "0.0.0.0:2", "127.0.0.1:1", false, "listen.outbound"},
		{"127.0.0.1:1", "0.0.0.0:2", "localhost:1", false, "listen.outbound"},
		{"127.0.0.1:1", "0.0.0.0:2", "0.0.0.0:1", false, "listen.outbound"},
		{"127.0.0.1:1", "0.0.0.0:2", "127.0.0.2:1", false, ""},
		{"127.0.0.1:1", "0.0.0.0:2", "10.0.0.7:1", false, ""},
		{"127.0.0.1:1", "0.0.0.0:2", "127.0.0.1:2", false, ""}, // we call ourselves
		{"127.0.0.1:1", "0.0.0.0:2", "127.0.0.1:2", true, "listen.inbound"},
		{"127.0.0.1:1", "0.0.0.0:2", "10.0.0.7:2", true, "listen.inbound"},
		{"127.0.0.1:1", "0.0.0.0:2", "10.0.0.8:2", true, ""},
		{"127.0.0.1:1", "0.0.0.0:2", "127.0.0.1:1", true, "listen.outbound"},
		{"0.0.0.0:1", "", "10.0.0.7:1", false, "listen.outbound"},
		{"0.0.0.0:1", "", "[fd00::7]:1", false, ""},
		{"[::]:1", "", "[fd00::7]:1", false, "listen.outbound"},
		{"[::]:1", "", "10.0.0.7:1", false, "listen.outbound"},
		{":1", "", "127.8.8.8:1", false, "listen.outbound"},
		{"[::1]:1", "", "[::]:1", false, "listen.outbound"},
		{"0.0.0.0:1", "", "some.host:1", false, ""},
		{"0.0.0.0:1", "", "unix:/run/app.sock", false, ""},
		{"0.0.0.0:0", "", "127.0.0.1:0", false, ""},
		{"", "", "127.0.0.1:1", true, ""},
	} {
		c := &Config{Listen: Listen{Outbound: test.outbound, Inbound: test.inbound}, Node: Node{Addresses: pod}}
		if got := c.LeadsBack(test.address, test.toApp); got != test.want {
			t.Errorf("outbound %s, inbound %s, to %s (app %v): %q, want %q", test.outbound, test.inbound, test.address, test.toApp, got, test.want)
		}
	}
}
