package h2_test

import (
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestSiege: where clients of an address flood and come again, they are thrown out, slowed down, and wait when they are back.
// Others of that address are served, those who come meanwhile after a moment.
func TestSiege(t *testing.T) {
	r := newRig(t, setup{config: replies})
	fair := r.dial2()
	ask := func(c *peer, id uint32) {
		t.Helper()
		if got := told(c, id, get...); got != "HEADERS 204 ES" {
			t.Fatal(got)
		}
	}
	ask(fair, 1)
	var over atomic.Bool
	var attackers sync.WaitGroup
	defer func() {
		over.Store(true)
		attackers.Wait()
	}()
	for range 4 {
		attackers.Go(func() {
			for !over.Load() {
				c := r.dial2()
				done := make(chan struct{})
				go func() {
					defer close(done)
					c.rest()
				}()
				for err, n := error(nil), 0; err == nil && n < 400; n++ { // as much as sockets take from who is not read
					c.mu.Lock()
					err = c.out.WritePing(false, [8]byte{})
					c.mu.Unlock()
				}
				_ = c.nc.Close()
				<-done
			}
		})
	}
	for _, what := range []string{"ended", "slowed"} {
		if !eventually(func() bool { return r.abuse(what) }) {
			t.Fatalf("nobody was %s", what)
		}
	}
	for id := uint32(3); id < 203; id += 2 {
		ask(fair, id)
	}
	ask(r.dial2(), 1)
	if !eventually(func() bool { return r.abuse("held") }) {
		t.Error("new connections are served at once")
	}
}

// abuse reports whether something was done about abuse.
func (r *rig) abuse(what string) bool {
	w := httptest.NewRecorder()
	r.rec.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return strings.Contains(w.Body.String(), `sidecar_downstream_abuse_total{direction="outbound",what="`+what+`"}`)
}
