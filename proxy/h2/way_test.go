package h2

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// TestCompany: others count while they are open, when they came and went since somebody looked, and for a while.
func TestCompany(t *testing.T) {
	begin := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		before company
		open   int
		last   uint32
		after  time.Duration
		want   bool
	}{
		"alone":                         {company{}, 1, 5, 0, false},
		"behind others":                 {company{last: 3}, 1, 5, 0, false},
		"two":                           {company{}, 2, 5, 0, true},
		"an older one":                  {company{last: 5}, 2, 5, 0, true},
		"one came and went":             {company{}, 1, 7, 0, true},
		"it was looked at":              {company{last: 7, seen: begin}, 1, 7, sharedFor, false},
		"it was there a moment ago":     {company{last: 7, seen: begin}, 1, 7, sharedFor - 1, true},
		"another came and went":         {company{last: 7, seen: begin}, 1, 9, time.Hour, true},
		"the one before it just left":   {company{last: 3, seen: begin}, 1, 5, sharedFor - 1, true},
		"the one before it left before": {company{last: 3, seen: begin}, 1, 5, sharedFor, false},
	} {
		now := begin.Add(test.after)
		c := test.before
		if got := c.shared(5, test.open, test.last, now); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
		if test.want && test.after == 0 && c != (company{test.last, now}) {
			t.Errorf("%s: it is not remembered: %+v", name, c)
		}
	}
}

// TestWeigh: what the way needs is what is taken in the least round trip, twice; on the same machine it needs nothing, and where
// a PING did not wait what was found before holds.
func TestWeigh(t *testing.T) {
	const ms = time.Millisecond
	type measured struct {
		trip  time.Duration
		taken int64
		way   int64
		more  bool
	}
	for name, list := range map[string][]measured{
		"far away, more and more":     {{50 * ms, 48 << 10, 96 << 10, true}, {50 * ms, 96 << 10, 192 << 10, true}, {50 * ms, 4 << 20, 8 << 20, true}, {50 * ms, 8 << 20, 8 << 20, false}},
		"a little more":               {{50 * ms, 1 << 20, 2 << 20, true}, {50 * ms, 3 << 19, 3 << 20, true}, {50 * ms, 7 << 18, 7 << 19, false}},
		"the peer's queue":            {{10 * ms, 1 << 20, 2 << 20, true}, {40 * ms, 2 << 20, 1 << 20, false}, {20 * ms, 4 << 20, 4 << 20, true}},
		"a slow reader":               {{10 * ms, 1 << 20, 2 << 20, true}, {20 * ms, 1 << 10, 2 << 20, false}, {9 * ms, 1 << 20, 2 << 20, false}},
		"the first PING waited":       {{10 * ms, 1 << 20, 2 << 20, true}, {1 * ms, 1 << 10, 2 << 10, false}, {2 * ms, 1 << 10, 2 << 10, false}},
		"the same machine":            {{farAway - 1, 1 << 20, 0, false}, {50 * ms, 4 << 20, 0, false}},
		"the same machine, busy":      {{1 * ms, 32 << 10, 64 << 10, false}, {farAway - 1, 1 << 20, 0, false}, {50 * ms, 4 << 20, 0, false}},
		"next door, at a gigabyte/s":  {{ms / 2, 500_000, 1_000_000, true}},
		"little: the least is enough": {{50 * ms, 1 << 10, 2 << 10, false}},
	} {
		var p pace
		for i, m := range list {
			p.taken = m.taken
			if more := p.weigh(m.trip); p.way != m.way || more != m.more {
				t.Errorf("%s, %d: %d, %v", name, i, p.way, more)
			}
		}
	}
}

// TestOnTheWay (S-184): a peer that sends at once whatever it may, to a reader that takes it piece by piece: what it may have
// sent, before it answers somebody else, is little where somebody else is there, whatever the window; it never stops.
func TestOnTheWay(t *testing.T) {
	for name, client := range map[string]bool{"from an endpoint": true, "from a client": false} {
		t.Run(name, func(t *testing.T) { onTheWay(t, client) })
	}
}

func onTheWay(t *testing.T, client bool) {
	s := &session{client: client, lim: &Limits{Windows: NewWindowMemory(16 << 20)}, streams: map[uint32]*stream{}, flushing: true}
	s.pace = pace{window: maxStreamWindow, least: 1, next: time.Now().Add(time.Hour)}
	opened := func(id uint32) {
		s.nextID, s.highest = id+2, id
		s.streams[id] = getStreamLocked(s, id)
	}
	opened(1)
	large := s.streams[1]
	waiting := int64(0) // to be taken
	// run lets so many octets be taken, and returns the most that the peer could send at a time.
	run := func(octets int64) (most int64) {
		t.Helper()
		for octets > 0 {
			most = max(most, large.recvWin)
			waiting += large.recvWin
			large.recvWin = 0
			n := min(waiting, 5000)
			if n == 0 {
				t.Fatal("the peer may send nothing, and nothing is to be taken")
			}
			waiting -= n
			octets -= n
			large.creditLocked(n)
			if large.recvWin+waiting+large.owed != large.window {
				t.Fatalf("%d + %d + %d are not the window of %d", large.recvWin, waiting, large.owed, large.window)
			}
		}
		s.out = s.out[:0]
		return most
	}
	run(64 << 20)
	if large.window != maxStreamWindow {
		t.Fatalf("a window of %d", large.window)
	}
	// The reader holds all of the window by now but what may be on its way.
	if most := run(64 << 20); most > wayAlone || most < wayAlone/4 {
		t.Errorf("alone %d octets may come at a time", most)
	}
	opened(3)
	run(2 * wayAlone)
	if most := run(1 << 20); most > wayShared || most < wayShared/4 {
		t.Errorf("beside another %d octets may come at a time", most)
	}
	delete(s.streams, 3)
	s.company.seen = time.Now().Add(time.Hour) // however slow this machine is
	if most := run(1 << 20); most > wayShared {
		t.Errorf("a moment later %d octets may come at a time", most)
	}
	s.company.seen = time.Now().Add(-2 * sharedFor)
	if most := run(64 << 20); most <= wayShared {
		t.Errorf("alone again only %d octets may come at a time", most)
	}
	s.pace.way = 2 << 20
	opened(7)
	run(8 << 20)
	if most := run(64 << 20); most > 2<<20 || most <= wayAlone {
		t.Errorf("over a long way %d octets may come at a time", most)
	}
	large.release()
	if used := s.lim.Windows.Used(); used != 0 {
		t.Errorf("%d octets of window are not given back", used)
	}
}

// TestUnsent: what a peer does not take waits with us, where it is told apart, and not in the kernel, on either side.
func TestUnsent(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	for _, client := range []bool{true, false} {
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nc.Close() }()
		newSession(netio.New(nc), client, &Limits{}, nil, nil)
		raw, err := nc.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		if e := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT) }); e != nil || err != nil || got != unsent {
			t.Errorf("client %v: %d octets, %v, %v", client, got, e, err)
		}
	}
}
