package sidecartest

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Origin is a scripted server.
type Origin struct {
	Address string

	t        testing.TB
	listener net.Listener
	accepted atomic.Int64
	requests atomic.Int64
	serve    func(*Conn)
	work     sync.WaitGroup

	mu    sync.Mutex
	conns map[*Conn]struct{} // guarded by mu; nil when closed
}

// Serve starts an origin that calls serve for each connection, on a goroutine of its own, and closes it afterwards. The
// test's end closes it.
func Serve(t testing.TB, serve func(*Conn)) *Origin {
	t.Helper()
	return ServeAt(t, FreeAddress(t), serve)
}

// ServeAt is Serve at an address.
func ServeAt(t testing.TB, address string, serve func(*Conn)) *Origin {
	t.Helper()
	l := Listen(t, address)
	o := &Origin{t: t, Address: l.Addr().String(), listener: l, serve: serve, conns: map[*Conn]struct{}{}}
	o.work.Add(1)
	go o.accept()
	t.Cleanup(o.Close)
	return o
}

// Answer starts an origin that answers every request with what answer returns, and closes the connection where that is
// nothing. Response bodies of ours are short: see OK.
func Answer(t testing.TB, answer func(*Message) string) *Origin {
	t.Helper()
	return AnswerAt(t, FreeAddress(t), answer)
}

// AnswerAt is Answer at an address.
func AnswerAt(t testing.TB, address string, answer func(*Message) string) *Origin {
	t.Helper()
	var o *Origin
	ready := make(chan struct{})
	o = ServeAt(t, address, func(c *Conn) {
		<-ready
		for {
			m, err := c.Request()
			if err != nil {
				return
			}
			o.requests.Add(1)
			reply := answer(m)
			if reply == "" || c.Send("%s", reply) != nil {
				return
			}
		}
	})
	close(ready)
	return o
}

// Reply makes a response with a body.
func Reply(status int, body string, fields ...string) string {
	s := fmt.Sprintf("HTTP/1.1 %d Scripted\r\n", status)
	for _, f := range fields {
		s += f + "\r\n"
	}
	return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", s, len(body), body)
}

// OK answers any request with 200 and a body.
func OK(body string) func(*Message) string {
	reply := Reply(200, body)
	return func(*Message) string { return reply }
}

func (o *Origin) accept() {
	defer o.work.Done()
	for {
		nc, err := o.listener.Accept()
		if err != nil {
			return
		}
		c := NewConn(nc)
		o.mu.Lock()
		if o.conns == nil {
			o.mu.Unlock()
			_ = c.Close()
			return
		}
		o.conns[c] = struct{}{}
		o.mu.Unlock()
		o.accepted.Add(1)
		o.work.Add(1)
		go func() {
			defer o.work.Done()
			o.serve(c)
			_ = c.Close()
			o.mu.Lock()
			delete(o.conns, c)
			o.mu.Unlock()
		}()
	}
}

// Accepted returns how many connections came so far.
func (o *Origin) Accepted() int { return int(o.accepted.Load()) }

// Requests returns how many requests an origin made by Answer has read.
func (o *Origin) Requests() int { return int(o.requests.Load()) }

// Open returns how many connections are open.
func (o *Origin) Open() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.conns)
}

// Close stops listening, resets what is open and waits for the scripts. It may be called again.
func (o *Origin) Close() {
	_ = o.listener.Close()
	o.mu.Lock()
	for c := range o.conns {
		c.Reset()
	}
	o.conns = nil
	o.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.work.Wait()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		o.t.Error("a script of an origin does not end")
	}
}
