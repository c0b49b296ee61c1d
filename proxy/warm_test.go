package proxy

import (
	"fmt"
	"net"
	"testing"
	"time"
)

// TestSwitchWarms: before a group switch is in force, there are connections to the endpoints that it brings in; one that does
// not answer holds it up for no longer than the bound (S-133).
func TestSwitchWarms(t *testing.T) {
	p := newApplied(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	apply := func(groups string) {
		t.Helper()
		document := fmt.Sprintf("listen: {outbound: none}\ngroups: [%s]\nservices: {a: {group: bj, endpoints: [{address: 127.0.0.1:1, group: bj}, "+
			"{address: %q, group: sh}, {address: 192.0.2.1:80, group: sh}]}}\n", groups, l.Addr())
		p.apply(document)
	}
	apply("")
	began := time.Now()
	apply("{from: bj, to: sh}")
	if took := time.Since(began); took > 10*warmTime {
		t.Errorf("the switch took %v", took)
	}
	a, _ := p.Snapshot().Outbound.Get("a")
	if len(a.Endpoints) != 2 {
		t.Fatalf("%d endpoints after the switch", len(a.Endpoints))
	}
	if _, idle, _ := poolOf(a.Endpoints[0]).Counts(); idle != warmEach {
		t.Errorf("%d idle connections to %s, want %d", idle, a.Endpoints[0].Address, warmEach)
	}
}
