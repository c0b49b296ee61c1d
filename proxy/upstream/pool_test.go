package upstream_test

import (
	"errors"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/upstream"
)

// TestReuse: the connection used last is lent first; a fresh one is another.
func TestReuse(t *testing.T) {
	o := newOrigin(t)
	p := newPool(t, o.address(), upstream.Settings{})
	a, b := p.get(false), p.get(false)
	if a == b || a.Reused() || b.Reused() || a.Connecting <= 0 || a.Queued != 0 {
		t.Fatalf("%+v, %+v", a, b)
	}
	a.Release(true)
	b.Release(true)
	p.counts(2, 2, 0)
	if c := p.get(false); c != b || !c.Reused() || c.Connecting != 0 || c.Queued != 0 {
		t.Errorf("not the one used last: %+v", c)
	}
	if c := p.get(true); c == a || c.Reused() {
		t.Error("fresh, but used before")
	}
	if c := p.get(false); c != a {
		t.Error("the idle one is not used")
	}
	p.counts(3, 0, 0)
	a.Release(false)
	p.counts(2, 0, 0)
	if opened, closed, idle, failed, _ := p.counter.now(); opened != 3 || closed != 1 || idle != 0 || failed != 0 {
		t.Errorf("%d opened, %d closed, %d idle, %d failed", opened, closed, idle, failed)
	}
}

// TestLimit: who comes beyond the limit waits in line, and so many may.
func TestLimit(t *testing.T) {
	o := newOrigin(t)
	p := newPool(t, o.address(), upstream.Settings{MaxOpen: 2, MaxWaiting: 3})
	a, b := p.get(false), p.get(false)
	first, second, third := p.wait(false, soon()), p.wait(false, soon()), p.wait(false, soon())
	if _, err := p.Get(false, patience, soon()); !errors.Is(err, upstream.ErrWaiting) {
		t.Errorf("one too many: %v", err)
	}
	a.Release(true)
	if g := receive(t, first); g.conn != a || g.conn.Queued <= 0 || g.conn.Connecting != 0 {
		t.Errorf("the first got %+v, %v", g.conn, g.err)
	}
	b.Discard() // no connection, but the place of one
	g := receive(t, second)
	if g.err != nil || g.conn == a || g.conn == b || g.conn.Queued <= 0 || g.conn.Connecting <= 0 {
		t.Errorf("the second got %+v, %v", g.conn, g.err)
	}
	g.conn.Release(true)
	if g := receive(t, third); g.err != nil || !g.conn.Reused() {
		t.Errorf("the third got %+v, %v", g.conn, g.err)
	}
	p.counts(2, 0, 0)
}

// TestWaitingEnds: in time, in place, and when the pool is closed.
func TestWaitingEnds(t *testing.T) {
	o := newOrigin(t)
	p := newPool(t, o.address(), upstream.Settings{MaxOpen: 1, MaxWaiting: 5})
	a := p.get(false)
	start := time.Now()
	if _, err := p.Get(false, patience, start.Add(50*time.Millisecond)); !errors.Is(err, upstream.ErrSaturated) {
		t.Error(err)
	}
	if d := time.Since(start); d < 50*time.Millisecond {
		t.Errorf("after %v", d)
	}
	p.counts(1, 0, 0)
	behind, last := p.wait(false, time.Now().Add(2*time.Second)), p.wait(false, soon())
	if g := receive(t, behind); !errors.Is(g.err, upstream.ErrSaturated) {
		t.Error(g.err)
	}
	a.Release(true)
	if g := receive(t, last); g.conn != a {
		t.Error("who waits is passed over: ", g.err)
	}
	more := p.wait(false, soon())
	p.Close()
	g := receive(t, more)
	if g.err != nil || g.conn == a {
		t.Error("who waits when the pool closes may dial at once: ", g.err)
	}
	g.conn.Release(true)
	a.Release(true)
	p.counts(0, 0, 0)
}

// TestRefused: nobody listens, and the place is free again.
func TestRefused(t *testing.T) {
	o := newOrigin(t)
	_ = o.ln.Close()
	p := newPool(t, o.address(), upstream.Settings{MaxOpen: 1, MaxWaiting: 1})
	for range 3 {
		if _, err := p.Get(false, patience, soon()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
	}
	p.counts(0, 0, 0)
	if _, _, _, failed, timeouts := p.counter.now(); failed != 3 || timeouts != 0 {
		t.Errorf("%d failed, %d of them timed out", failed, timeouts)
	}
}

// TestBlackHole (TC-006): connects end when their time is over, be it their own or the caller's.
func TestBlackHole(t *testing.T) {
	address, _ := deaf(t)
	p := newPool(t, address, upstream.Settings{MaxOpen: 10})
	for name, bounds := range map[string][2]time.Duration{
		"connect": {50 * time.Millisecond, patience}, "caller": {patience, 50 * time.Millisecond},
	} {
		start := time.Now()
		_, err := p.Get(false, bounds[0], start.Add(bounds[1]))
		if d := time.Since(start); !errors.Is(err, upstream.ErrTimeout) || d < 50*time.Millisecond || d > patience/2 {
			t.Errorf("%s: %v after %v", name, err, d)
		}
	}
	p.counts(0, 0, 0)
	if _, _, _, failed, timeouts := p.counter.now(); failed != 2 || timeouts != 2 {
		t.Errorf("%d failed, %d of them timed out", failed, timeouts)
	}
}

// TestFailedConnectWakes: the place of a connect that failed goes to who waits.
func TestFailedConnectWakes(t *testing.T) {
	address, listen := deaf(t)
	p := newPool(t, address, upstream.Settings{MaxOpen: 1, MaxWaiting: 1})
	failing := make(chan got, 1)
	go func() {
		c, err := p.Get(false, 2*time.Second, soon())
		failing <- got{c, err}
	}()
	p.counts(1, 0, 0)
	waiting := p.wait(false, soon())
	if g := receive(t, failing); !errors.Is(g.err, upstream.ErrTimeout) {
		t.Fatal(g.err)
	}
	listen()
	g := receive(t, waiting)
	if g.err != nil {
		t.Fatal(g.err)
	}
	g.conn.Discard()
}

// TestPeerLeaves: an idle connection whose peer ends it, or resets it, is gone at once.
func TestPeerLeaves(t *testing.T) {
	for name, leave := range map[string]func(*net.TCPConn){
		"FIN": func(nc *net.TCPConn) { _ = nc.Close() },
		"RST": func(nc *net.TCPConn) { netio.New(nc).Reset() },
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(t)
			p := newPool(t, o.address(), upstream.Settings{})
			a, b := p.get(false), p.get(false)
			far := o.next()
			a.Release(true)
			b.Release(true)
			leave(far)
			p.counts(1, 1, 0)
			if c := p.get(false); c != b {
				t.Error("not the one that is left")
			}
			b.Release(true)
			leave(o.next())
			p.counts(0, 0, 0)
			if _, closed, idle, _, _ := p.counter.now(); closed != 2 || idle != 0 {
				t.Errorf("%d closed, %d idle", closed, idle)
			}
		})
	}
	t.Run("while lent", func(t *testing.T) {
		o := newOrigin(t)
		p := newPool(t, o.address(), upstream.Settings{})
		a := p.get(false)
		_ = o.next().Close()
		for end := soon(); ; { // until it must have been told
			if _, err := a.Buffered(); err != nil || time.Now().After(end) {
				break
			}
		}
		a.Release(true)
		if c := p.get(false); c == a {
			t.Error("lent again")
		}
		p.counts(1, 0, 0)
	})
}

// TestUnasked (H1-RS-044): a connection on which bytes wait that nobody asked for is not lent again.
func TestUnasked(t *testing.T) {
	o := newOrigin(t)
	p := newPool(t, o.address(), upstream.Settings{})
	a := p.get(false)
	far := o.next()
	a.Release(true)
	if _, err := far.Write([]byte("HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	for end := soon(); ; {
		if waiting, _ := a.Buffered(); waiting || time.Now().After(end) {
			break
		}
	}
	if c := p.get(false); c == a || c.Reused() {
		t.Error("lent again")
	}
	p.counts(1, 0, 0)
}

// TestClose: idle ones at once, lent ones when they come back, and who comes late has one of its own.
func TestClose(t *testing.T) {
	o := newOrigin(t)
	p := newPool(t, o.address(), upstream.Settings{})
	a, b, c := p.get(false), p.get(false), p.get(false)
	a.Release(true)
	p.Close()
	p.counts(2, 0, 0)
	b.Release(true)
	c.Release(false)
	p.counts(0, 0, 0)
	late := p.get(false)
	p.counts(1, 0, 0)
	late.Release(true)
	p.counts(0, 0, 0)
	p.Close()
	if opened, closed, idle, _, _ := p.counter.now(); opened != 4 || closed != 4 || idle != 0 {
		t.Errorf("%d opened, %d closed, %d idle", opened, closed, idle)
	}
}

// TestCloseWhileConnecting: a connection that comes too late is not kept.
func TestCloseWhileConnecting(t *testing.T) {
	address, listen := deaf(t)
	p := newPool(t, address, upstream.Settings{})
	done := make(chan got, 1)
	go func() {
		c, err := p.Get(false, patience, soon())
		done <- got{c, err}
	}()
	p.counts(1, 0, 0)
	p.Close()
	listen()
	g := receive(t, done)
	if g.err != nil {
		t.Fatal(g.err)
	}
	g.conn.Release(true)
	p.counts(0, 0, 0)
}

// TestLowered: connections beyond a lowered limit are closed as they come back.
func TestLowered(t *testing.T) {
	o := newOrigin(t)
	p := newPool(t, o.address(), upstream.Settings{MaxOpen: 4, MaxWaiting: 4})
	list := []*upstream.Conn{p.get(false), p.get(false), p.get(false), p.get(false)}
	p.Set(upstream.Settings{MaxOpen: 2, MaxWaiting: 4})
	waiting := p.wait(false, soon())
	list[0].Release(true)
	p.counts(3, 0, 1)
	list[1].Release(true)
	p.counts(2, 0, 1)
	list[2].Release(true)
	if g := receive(t, waiting); g.conn != list[2] {
		t.Error("who waits got another: ", g.err)
	}
	list[2].Release(true)
	list[3].Release(true)
	p.counts(2, 2, 0)
}

// TestFreshInAFullPool: an idle connection makes room for a fresh one.
func TestFreshInAFullPool(t *testing.T) {
	o := newOrigin(t)
	p := newPool(t, o.address(), upstream.Settings{MaxOpen: 2, MaxWaiting: 2})
	a, b := p.get(false), p.get(false)
	a.Release(true)
	b.Release(true)
	c := p.get(true)
	if c.Reused() {
		t.Error("used before")
	}
	p.counts(2, 1, 0)
	if d := p.get(false); d != b {
		t.Error("the one used last had to make room")
	}
	if _, closed, idle, _, _ := p.counter.now(); closed != 1 || idle != 0 {
		t.Errorf("%d closed, %d idle", closed, idle)
	}
}

// TestSweep: a connection that nobody wants is closed after six sweeps; use makes it young again.
func TestSweep(t *testing.T) {
	o := newOrigin(t)
	p := newPool(t, o.address(), upstream.Settings{})
	a, b := p.get(false), p.get(false)
	a.Release(true)
	b.Release(true)
	for range 3 {
		p.Sweep()
	}
	p.get(false).Release(true)
	for range 2 {
		p.Sweep()
	}
	p.counts(2, 2, 0)
	p.Sweep()
	p.counts(1, 1, 0)
	if c := p.get(false); c != b {
		t.Error("the wrong one was closed")
	} else {
		c.Release(true)
	}
	for range 6 {
		p.Sweep()
	}
	p.counts(0, 0, 0)
}

// TestUnixSocket: an endpoint may be a path.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	p := newPool(t, "unix:"+path, upstream.Settings{})
	c := p.get(false)
	c.Release(true)
	if d := p.get(false); d != c {
		t.Error("not reused")
	}
}

// TestStress: whatever happens at the same time, the limit holds, nobody waits for ever and nothing is left behind.
func TestStress(t *testing.T) {
	o := newOrigin(t)
	var far sync.WaitGroup
	stop := make(chan struct{})
	far.Go(func() { // peers leave, speak unasked, or stay
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case nc := <-o.accepted:
				switch i % 5 {
				case 0:
					_ = nc.Close()
				case 1:
					netio.New(nc).Reset()
				case 2:
					_, _ = nc.Write([]byte("x"))
					fallthrough
				default:
					far.Go(func() {
						<-stop
						_ = nc.Close()
					})
				}
			}
		}
	})
	const limit = 8
	p := newPool(t, o.address(), upstream.Settings{MaxOpen: limit, MaxWaiting: 100})
	var users sync.WaitGroup
	for g := range 16 {
		users.Go(func() {
			for i := range 300 {
				c, err := p.Get((g+i)%7 == 0, patience, soon())
				if errors.Is(err, syscall.ECONNRESET) {
					continue // before the connect had returned
				}
				if err != nil {
					t.Error(err)
					return
				}
				if open, idle, _ := p.Counts(); open > limit || idle > limit {
					t.Errorf("%d open, %d idle", open, idle)
				}
				switch i % 4 {
				case 0:
					c.Release(false)
				case 1:
					c.Abort()
					c.Release(false)
				default:
					c.Release(true)
				}
				if i%50 == 0 {
					p.Sweep()
				}
			}
		})
	}
	users.Wait()
	p.Close()
	p.counts(0, 0, 0)
	close(stop)
	far.Wait()
	if opened, closed, idle, _, _ := p.counter.now(); opened != closed || idle != 0 {
		t.Errorf("%d opened, %d closed, %d idle", opened, closed, idle)
	}
}
