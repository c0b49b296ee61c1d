package h2_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
)

// TestRequestsWithoutRoom: of requests whose answers have no room to come back a few are begun, another one when there is room
// for it or when one of the few is over. One that is given up before is never begun.
func TestRequestsWithoutRoom(t *testing.T) {
	const few = 4
	var asked atomic.Int64
	origin, _ := serveHTTP(t, false, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, "hello")
	})
	r := newRig(t, setup{config: plain1, origins: []string{origin}})
	c := r.dial2(window(0))
	waiting := map[uint32]bool{}
	for id := uint32(1); id < 2*(few+3); id += 2 {
		c.headers(id, true, path("/")...)
		waiting[id] = true
	}
	begun := func() uint32 {
		e, err := c.next()
		if err != nil || e.kind != http2.FrameHeaders || e.get(":status") != "200" || !waiting[e.id] {
			t.Fatalf("%v, %v: another one was to begin", e, err)
		}
		delete(waiting, e.id)
		return e.id
	}
	ends := func(id uint32) {
		for end := false; !end; {
			e, err := c.next()
			if err != nil || e.id != id || e.kind != http2.FrameData {
				t.Fatalf("%v, %v: stream %d was to end", e, err, id)
			}
			end = e.end
		}
	}
	var first uint32
	for range few {
		first = begun()
	}
	c.moment()
	if n := asked.Load(); n != few {
		t.Fatalf("%d were begun", n)
	}
	var room uint32
	for room = range waiting {
		break
	}
	c.credit(room, 1000)
	if id := begun(); id != room {
		t.Fatalf("stream %d was begun, and there is room for %d", id, room)
	}
	ends(room)
	var gone uint32
	for gone = range waiting {
		break
	}
	c.reset(gone, http2.ErrCodeCancel)
	delete(waiting, gone)
	c.credit(first, 1000)
	ends(first)
	last := begun()
	c.credit(last, 1000)
	ends(last)
	if n := asked.Load(); n != few+2 {
		t.Errorf("%d were begun at the end", n)
	}
	_ = c.nc.Close()
	r.settled()
}
