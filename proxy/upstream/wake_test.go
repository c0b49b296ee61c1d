package upstream_test

import (
	"testing"

	"github.com/sidecar-mesh/sidecar/proxy/upstream"
)

// TestDialingCap: beyond 64 connects at one time callers wait, and go on as soon as connects are over, though no
// connection is given back.
func TestDialingCap(t *testing.T) {
	const callers, most = 150, 64
	address, listen := deaf(t)
	p := newPool(t, address, upstream.Settings{MaxWaiting: callers})
	done := make(chan got, callers)
	for range callers {
		go func() {
			c, err := p.Get(false, patience, soon())
			done <- got{c, err}
		}()
	}
	p.counts(most, 0, callers-most)
	listen()
	for range callers {
		g := receive(t, done)
		if g.err != nil {
			t.Fatal(g.err)
		}
		defer g.conn.Discard()
	}
	p.counts(callers, 0, 0)
}

// TestRaised: who waits goes on when the limit is raised.
func TestRaised(t *testing.T) {
	o := newOrigin(t)
	p := newPool(t, o.address(), upstream.Settings{MaxOpen: 1, MaxWaiting: 4})
	p.get(false)
	first, second := p.wait(false, soon()), p.wait(false, soon())
	p.Set(upstream.Settings{MaxOpen: 3, MaxWaiting: 4})
	for _, w := range []chan got{first, second} {
		if g := receive(t, w); g.err != nil || g.conn.Reused() {
			t.Error(g.err)
		}
	}
	p.counts(3, 0, 0)
}

// TestFreshInLine: who waits for a fresh connection is not given one that has served.
func TestFreshInLine(t *testing.T) {
	o := newOrigin(t)
	p := newPool(t, o.address(), upstream.Settings{MaxOpen: 1, MaxWaiting: 4})
	a := p.get(false)
	w := p.wait(true, soon())
	a.Release(true)
	if g := receive(t, w); g.err != nil || g.conn.Reused() {
		t.Error("it has served before: ", g.err)
	}
	p.counts(1, 0, 0)
}

// TestPlaceInLine: a place that comes free belongs to who waited longest, not to who comes just then.
func TestPlaceInLine(t *testing.T) {
	o := newOrigin(t)
	for range 200 {
		p := newPool(t, o.address(), upstream.Settings{MaxOpen: 1, MaxWaiting: 1})
		a := p.get(false)
		w := p.wait(false, soon())
		late := make(chan got, 1)
		go func() {
			a.Discard()
			c, err := p.Get(false, patience, soon())
			late <- got{c, err}
		}()
		g := receive(t, w)
		if g.err != nil {
			t.Fatal("who waited: ", g.err)
		}
		g.conn.Discard()
		if g := receive(t, late); g.err == nil {
			g.conn.Discard()
		}
		p.Close()
	}
}
