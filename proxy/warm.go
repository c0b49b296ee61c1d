package proxy

import (
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/h1"
	"github.com/sidecar-mesh/sidecar/proxy/h2"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
	"github.com/sidecar-mesh/sidecar/proxy/upstream"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

const (
	warmTime  = 500 * time.Millisecond // for all of them: a switch must not wait for endpoints that do not answer
	warmAtOne = 64                     // endpoints that are connected to at the same time
	warmEach  = 2                      // connections to one endpoint

	aheadTime  = time.Second // for one endpoint to be connected to ahead
	aheadAtOne = 256         // so that black holes do not hold up the others
)

// warm opens connections to the endpoints that a group switch brings in, before the calls of a whole room arrive there at
// once (S-133). What does not connect in time is left to those calls.
func warm(fresh []*snapshot.Endpoint) {
	until := time.Now().Add(warmTime)
	places := make(chan struct{}, warmAtOne)
	var all sync.WaitGroup
	for _, e := range fresh {
		places <- struct{}{}
		all.Go(func() {
			warmOne(poolOf(e), warmEach, until)
			<-places
		})
		if time.Now().After(until) {
			break
		}
	}
	all.Wait()
}

// ahead are endpoints that are new, with the number of connections that their services want to have opened to each.
type ahead []aheadOne

type aheadOne struct {
	*snapshot.Endpoint
	connections int
}

// connectAhead opens connections to endpoints that were found, beside everything else (S-26). One that cannot be connected to is left to
// the calls.
func (p *Proxy) connectAhead(list ahead) {
	if len(list) == 0 {
		return
	}
	p.done.Go(func() {
		places := make(chan struct{}, aheadAtOne)
		var all sync.WaitGroup
		for _, e := range list {
			places <- struct{}{}
			all.Go(func() {
				warmOne(poolOf(e.Endpoint), e.connections, time.Now().Add(aheadTime))
				<-places
			})
		}
		all.Wait()
	})
}

// warmOne leaves connections idle in a pool: n of HTTP/1, or one of HTTP/2, which carries many calls.
func warmOne(p pool, n int, until time.Time) {
	switch p := p.(type) {
	case *h1.Pool:
		warmHTTP1(p, n, until)
	case *h2.Pool:
		warmHTTP2(p, until)
	case *autoPool: // where nobody says what the endpoint speaks, callers of HTTP/2 find out themselves
		if p.said.Load() == 2 {
			warmHTTP2(p.two, until)
		} else {
			warmHTTP1(p.one, n, until)
		}
	case *linkedPool:
		warmOne(p.pool, n, until)
	}
}

func warmHTTP1(p *h1.Pool, n int, until time.Time) {
	var conns []*upstream.Conn
	for range n {
		c, err := p.Get(false, time.Until(until), until)
		if err != nil {
			break
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		c.Release(true)
	}
}

func warmHTTP2(p *h2.Pool, until time.Time) {
	if up, err := p.Open(pipeline.HTTP2, false, time.Until(until), until); err == nil {
		up.Close(true)
	}
}

// switchedIn tells whether endpoints that are new to a service come in by a group switch, or by its end.
func switchedIn(s, was *snapshot.Service) bool {
	return was != nil && s.Protocol != "tcp" && len(s.Switches)+len(was.Switches) > 0
}
