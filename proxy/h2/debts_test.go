package h2

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// TestDebts: connections of an address share a debt, which is bounded and is forgotten.
func TestDebts(t *testing.T) {
	now := time.Unix(1000, 0)
	var ds debts
	first, second := ds.join(netip.MustParseAddr("10.0.0.1"), now), ds.join(netip.MustParseAddr("10.0.0.1"), now)
	other := ds.join(netip.MustParseAddr("10.0.0.2"), now)
	if first != second || first == other {
		t.Fatal("a debt is that of an address")
	}
	if first.charge(now, bucketSize) || first.hold(now) != 0 {
		t.Error("one connection alone may spend all of its budget")
	}
	if first.charge(now, bucketSize) {
		t.Error("and so may a second one")
	}
	if !second.charge(now, addressShare) || second.hold(now) != mostPause {
		t.Error("more is too much")
	}
	if other.charge(now, costReset) || other.hold(now) != 0 {
		t.Error("that is nothing to another address")
	}
	if first.charge(now, -worthAnswer) {
		t.Error("answered requests give back")
	}
	for range 1000 {
		first.charge(now, bucketSize)
	}
	if now = now.Add(16 * time.Second); first.hold(now) != 0 {
		t.Errorf("16 s later %v is owed still", first.owes(now))
	}
}

// TestNetworks: an IPv6 host has a whole network of addresses, and one behind a unix socket has none.
func TestNetworks(t *testing.T) {
	now := time.Unix(1000, 0)
	var ds debts
	join := func(a string) *debt { return ds.join(netip.MustParseAddr(a), now) }
	if join("2001:db8::1") != join("2001:db8::ffff:2") || join("2001:db8::1") == join("2001:db8:0:1::1") {
		t.Error("a debt is that of a /64")
	}
	nobody := ds.join(netip.Addr{}, now)
	if again := ds.join(netip.Addr{}, now); again != nobody {
		t.Error("what has no address is one")
	}
}

// TestManyDebts: addresses that are gone do not pile up; those with connections, and those that owe, stay.
func TestManyDebts(t *testing.T) {
	now := time.Unix(1000, 0)
	var ds debts
	address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	stays := ds.join(address(0), now)
	owes := ds.join(address(1), now)
	owes.charge(now, bucketSize)
	ds.leave(owes)
	for i := 2; i < 5*manyDebts; i++ {
		ds.leave(ds.join(address(i), now))
		if len(ds.of) > manyDebts {
			t.Fatalf("%d addresses are remembered", len(ds.of))
		}
	}
	if ds.join(address(0), now) != stays || ds.join(address(1), now) != owes {
		t.Error("an address with connections, or one that owes, was forgotten")
	}
	for i := range 2 * manyDebts { // all owe: those without connections go
		b := ds.join(address(i), now)
		b.charge(now, bucketSize)
		if ds.leave(b); len(ds.of) > manyDebts {
			t.Fatalf("%d addresses that owe are remembered", len(ds.of))
		}
	}
	if ds.join(address(0), now) != stays {
		t.Error("an address with connections was forgotten")
	}
}

// TestPenance: of an address that owes too much, those are slowed down who make the trouble.
func TestPenance(t *testing.T) {
	for name, c := range map[string]struct {
		owed, own int
		want      time.Duration
	}{
		"nobody":    {0, 2 * ownTrouble, 0},
		"neighbour": {4 * bucketSize, 0, 0},
		"culprit":   {4 * bucketSize, 2 * ownTrouble, costPing * pauseEach},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer func() { _, _ = ours.Close(), theirs.Close() }()
			s := newSession(netio.New(ours), false, &Limits{HeaderBytes: 60 << 10, HeaderCount: 100, IdleTimeout: time.Hour}, nil, nil)
			s.debt = new(debt)
			s.debt.charge(time.Now(), c.owed)
			s.glitch.take(time.Now(), c.own)
			if err := s.charge(costPing); err != nil {
				t.Fatal(err)
			}
			if s.penance != c.want {
				t.Errorf("waits %v, want %v", s.penance, c.want)
			}
		})
	}
}
