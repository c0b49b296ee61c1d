package pipeline

import (
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// lane is an attempt that runs on a goroutine of its own, up to the head of its response. It has all it needs: while it
// waits for a connection it may be called off and left alone, and then it must not touch what belongs to the exchange.
type lane struct {
	what    resilience.Action
	ep      *snapshot.Endpoint
	entry   resilience.Ticket // of the breaker of ep
	began   time.Time
	connect time.Duration // bound of opening a connection
	link    int           // class of its connection
	req     Request
	fields  []Field // of req
	body    []byte  // all of it, of the exchange
	trailer []Field
	over    chan<- *lane // where it is told that this is over
	run     func()       // do, made once

	mu      sync.Mutex
	up      Upstream // guarded by mu
	settled bool     // guarded by mu: the connection is there, or cannot be had
	off     bool     // guarded by mu: nobody waits for it any more

	resp   Response
	err    error
	opened bool // err is not about the connection
}

var lanes sync.Pool

func newLane() *lane {
	if l, ok := lanes.Get().(*lane); ok {
		return l
	}
	l := &lane{fields: make([]Field, 0, 32)}
	l.resp.Fields = make([]Field, 0, 32)
	l.run = l.do
	return l
}

// release forgets everything but memory.
func (l *lane) release() {
	fields, respFields := l.fields[:cap(l.fields)], l.resp.Fields[:cap(l.resp.Fields)]
	clear(fields)
	clear(respFields)
	*l = lane{fields: fields[:0], run: l.run, resp: Response{Fields: respFields[:0]}}
	lanes.Put(l)
}

// do makes the attempt.
func (l *lane) do() {
	if l.up == nil {
		up, err := poolOf(l.ep, l.link).Open(l.req.Version, l.what.Fresh, l.connect, l.what.Until)
		l.mu.Lock()
		l.settled = true
		if l.off {
			l.mu.Unlock()
			if err == nil {
				up.Close(false)
			}
			l.leave()
			return
		}
		if err == nil {
			l.up = up
		}
		l.mu.Unlock()
		if l.err = err; err == nil {
			l.opened = true
			l.send()
		}
	}
	if l.opened {
		l.await()
	}
	l.over <- l
}

// leave ends an attempt whose result nobody learns.
func (l *lane) leave() {
	l.ep.Meter.Active.Add(-1)
	l.ep.Untried(time.Now(), l.entry)
	l.release()
}

// send sends the request. That it fails is no verdict: the endpoint may have answered before it stopped reading.
func (l *lane) send() {
	if l.up.SendHead(&l.req) != nil {
		return
	}
	if m, ok := l.up.(Multiplexed); ok {
		m.Hurry(l.what.Until)
	}
	if len(l.body) > 0 && l.up.SendBody(l.body) != nil {
		return
	}
	_ = l.up.SendEnd(l.trailer, true) // see above
}

// await waits for a head. That the request may be sent (100) nobody asked for.
func (l *lane) await() {
	for {
		if l.err = l.up.ReadHead(&l.resp, l.what.Until); l.err != nil || l.resp.Status != 100 {
			return
		}
	}
}

// callOff ends an attempt whose result does not matter any more. It reports whether the lane comes to an end by itself;
// else it tells so as always, at once.
func (l *lane) callOff() (alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.settled {
		l.off = true
		return true
	}
	if l.up != nil {
		l.up.Interrupt()
	}
	return false
}

// crowd stands for all attempts of an exchange where the engine knows one: it only passes on that the client has left.
type crowd struct {
	Upstream // none: whoever calls more than Interrupt is wrong
	gone     chan struct{}
}

// Interrupt implements Upstream.
func (c *crowd) Interrupt() {
	select {
	case c.gone <- struct{}{}:
	default:
	}
}

// Prompt is a Pool that can tell whether Open would have to wait: for a connection to be made, or for a place.
type Prompt interface {
	Ready(v Version) bool
}
