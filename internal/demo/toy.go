package demo

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// toy is one endpoint of a service: a web server on loopback that can be killed, started again and made slow.
type toy struct {
	name    string
	address string       // once started, the same for good
	delay   atomic.Int64 // nanoseconds until it answers
	pauses  atomic.Int64 // nanoseconds that one answer in pauseEvery takes longer
	served  atomic.Int64

	server  *http.Server // nil while dead
	serving sync.WaitGroup
}

// newToy starts an endpoint on a port of its own.
func newToy(ctx context.Context, name string, delay time.Duration) (*toy, error) {
	t := &toy{name: name, address: "127.0.0.1:0"}
	t.delay.Store(int64(delay))
	return t, t.start(ctx)
}

// start makes it answer, on the port that it had. Somebody else may hold that for a moment, so it is tried for a while.
func (t *toy) start(ctx context.Context) error {
	var ln net.Listener
	var err error
	if !until(ctx, patience, func() bool {
		ln, err = net.Listen("tcp", t.address)
		return err == nil
	}) {
		return errors.Join(ctx.Err(), err)
	}
	t.address = ln.Addr().String()
	t.server = &http.Server{Handler: t, ReadHeaderTimeout: patience}
	server := t.server
	t.serving.Go(func() { _ = server.Serve(ln) })
	return nil
}

// kill closes its port and cuts its connections, as the end of a process does.
func (t *toy) kill() {
	if t.server != nil {
		_ = t.server.Close()
		t.server = nil
	}
	t.serving.Wait()
}

// pauseEvery is how many answers there are to one that takes longer.
const pauseEvery = 25

// ServeHTTP answers with its name, after its delay.
func (t *toy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	takes := t.delay.Load()
	if t.served.Add(1)%pauseEvery == 0 {
		takes += t.pauses.Load()
	}
	timer := time.NewTimer(time.Duration(takes))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done(): // whoever asked has left
		return
	}
	w.Header().Set("X-Toy", t.name)
	_, _ = io.WriteString(w, t.name+" answers "+r.URL.Path+"\n")
}
