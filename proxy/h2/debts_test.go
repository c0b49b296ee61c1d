package h2

import (
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
	"github.com/sidecar-mesh/sidecar/telemetry"
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
	if !second.charge(now, addressShare) || second.hold(now) != leastHold {
		t.Error("more is too much")
	}
	if second.waiting.Store(20); second.hold(now) != 20*holdEach {
		t.Errorf("behind 20 others a new connection waits %v", second.hold(now))
	}
	if second.waiting.Store(1000); second.hold(now) != mostHold {
		t.Errorf("behind 1000 others a new connection waits %v", second.hold(now))
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

// owing returns a connection of an address that owes something, and the other end of it.
func owing(t *testing.T, owed, leeway int) (*session, net.Conn) {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	lim := &Limits{HeaderBytes: 60 << 10, HeaderCount: 100, IdleTimeout: time.Hour}
	recorder, err := telemetry.New(telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	srv := &Server{Pipeline: &pipeline.Pipeline{Recorder: recorder}}
	s := newSession(netio.New(ours), false, lim, &serverConn{srv: srv}, nil)
	s.debt, s.leeway = new(debt), leeway
	s.debt.charge(time.Now(), owed)
	return s, theirs
}

// tooMuch is what an address may not owe.
const tooMuch = 4 * bucketSize

// TestPenance: of an address that owes too much, those are slowed down who make the trouble, and of those who came meanwhile
// those who make any before they were answered something.
func TestPenance(t *testing.T) {
	for name, c := range map[string]struct {
		owed, own, leeway, answered int
		want                        time.Duration
	}{
		"nobody":              {0, 2 * ownTrouble, ownTrouble, 0, 0},
		"neighbour":           {tooMuch, 0, ownTrouble, 0, 0},
		"culprit":             {tooMuch, 2 * ownTrouble, ownTrouble, 0, costPing * pauseEach},
		"newcomer":            {tooMuch, 0, 0, 0, costPing * pauseEach},
		"newcomer who calls":  {tooMuch, 0, 0, 1, 0},
		"newcomer in trouble": {tooMuch, ownTrouble, 0, 1, costPing * pauseEach},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := owing(t, c.owed, c.leeway)
			s.glitch.take(time.Now(), c.own)
			s.answered.Store(int64(c.answered))
			if err := s.charge(costPing); err != nil {
				t.Fatal(err)
			}
			if s.penance != c.want {
				t.Errorf("waits %v, want %v", s.penance, c.want)
			}
		})
	}
}

// TestRepent: each pause is twice as long as the last, and after some of them the connection ends. One whose address owes
// nothing any more begins anew.
func TestRepent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := owing(t, tooMuch, 0)
		for _, want := range []time.Duration{64 * time.Millisecond, 128 * time.Millisecond, 256 * time.Millisecond} {
			if err := s.charge(costSettings); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := s.repent(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < want/2 || took > want*3/2 || s.paused != want {
				t.Errorf("paused for %v and %v, want about %v", s.paused, took, want)
			}
		}
		time.Sleep(time.Minute)
		if err := s.charge(costPing); err != nil || s.penance > 0 || s.repented > 0 {
			t.Fatalf("a minute later: %v, %v to wait", err, s.penance)
		}
		s.debt.charge(time.Now(), tooMuch)
		ended := false
		for n := 0; !ended && n < 10; n++ {
			_ = s.charge(costPing)
			ended = s.repent() != nil
		}
		if !ended || s.repented <= mostPenance {
			t.Errorf("not thrown out after %v", s.repented)
		}
	})
}

// TestThrownOut: a connection that ends in an error of its client's is told so at once, and closed after a moment where its
// address owes too much. Streams are reset then: their ends would be told by that of the connection else.
func TestThrownOut(t *testing.T) {
	for name, c := range map[string]struct {
		owed  int
		least time.Duration
	}{"first offence": {0, 0}, "one of many": {tooMuch, closeAfter / 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, theirs := owing(t, c.owed, 0)
				s.streams[1], s.highest = getStreamLocked(s, 1), 1
				go s.run()
				began := time.Now()
				fr := http2.NewFramer(theirs, theirs)
				if err := fr.WritePing(false, [8]byte{}); err != nil { // before SETTINGS
					t.Fatal(err)
				}
				f, err := fr.ReadFrame()
				if c.owed > 0 {
					if r, ok := f.(*http2.RSTStreamFrame); !ok || r.ErrCode != http2.ErrCodeProtocol {
						t.Errorf("%v, %v: the stream was to be reset", f, err)
					}
					f, err = fr.ReadFrame()
				}
				if _, ok := f.(*http2.GoAwayFrame); !ok || time.Since(began) > 0 {
					t.Errorf("%v, %v after %v", f, err, time.Since(began))
				}
				if f, err = fr.ReadFrame(); err == nil {
					t.Errorf("%v behind GOAWAY", f)
				}
				if took := time.Since(began); took < c.least || took > c.least*3+time.Second {
					t.Errorf("closed after %v", took)
				}
			})
		})
	}
}

// TestGivenUp: a request that was given up before anybody looked at it costs no work.
func TestGivenUp(t *testing.T) {
	s, _ := owing(t, 0, 0)
	c := s.owner.(*serverConn)
	c.session = s
	s.mu.Lock()
	st := getStreamLocked(s, 1)
	s.streams[1], s.working = st, 1
	st.resetByPeerLocked(cancelled)
	s.mu.Unlock()
	c.jobs.Add(1)
	job{c: c, st: st, x: pipeline.Begin(c.peer)}.do(new(exchange)) // there is no configuration: serving would panic
	if len(s.streams) > 0 || s.working > 0 {
		t.Error("the stream is not over")
	}
}
