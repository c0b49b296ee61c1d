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
			warmOne(poolOf(e), until)
			<-places
		})
		if time.Now().After(until) {
			break
		}
	}
	all.Wait()
}

// warmOne leaves connections idle in a pool.
func warmOne(p pool, until time.Time) {
	switch p := p.(type) {
	case *h1.Pool:
		warmHTTP1(p, until)
	case *autoPool: // callers of HTTP/2 find out themselves what the endpoint speaks
		warmHTTP1(p.one, until)
	case *h2.Pool:
		if up, err := p.Open(pipeline.HTTP2, false, time.Until(until), until); err == nil {
			up.Close(true)
		}
	}
}

func warmHTTP1(p *h1.Pool, until time.Time) {
	var conns []*upstream.Conn
	for range warmEach {
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

// switchedIn tells whether endpoints that are new to a service come in by a group switch, or by its end.
func switchedIn(s, was *snapshot.Service) bool {
	return was != nil && s.Protocol != "tcp" && len(s.Switches)+len(was.Switches) > 0
}
