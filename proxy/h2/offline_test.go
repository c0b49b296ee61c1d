package h2_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sidecar-mesh/sidecar/balance"
)

// state is what keeps the first endpoint of the rig's service out.
func (r *rig) state() uint32 {
	svc, _ := r.store.Load().Outbound.Get("svc")
	return svc.Endpoints[0].Meter.State.Load()
}

// TestServerSaysOffline: a client that comes while the server leaves is served, and told with the answer, behind the GOAWAY;
// a call whose answer has begun is told in its trailers.
func TestServerSaysOffline(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	origin, _ := serveHTTP(t, true, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/stream" {
			w.Header().Set("Trailer", "X-Sum")
			_ = http.NewResponseController(w).Flush()
			close(begun)
			<-release
			w.Header().Set("X-Sum", "1")
		}
	})
	r := newRig(t, setup{config: plain2, origins: []string{origin}})
	stream := r.dial2()
	stream.headers(1, true, path("/stream")...)
	<-begun
	if e := stream.want("HEADERS#1 200"); e.has("x-sidecar-offline") {
		t.Error("marked too early")
	}
	const away = 200 // seconds
	r.server.Offline(time.Now().Add(away * time.Second))
	stream.want("GOAWAY 2147483647 NO_ERROR")
	late := r.dial2()
	late.headers(1, true, path("/")...)
	late.want("GOAWAY 2147483647 NO_ERROR")
	e := late.want("HEADERS#1 200 ES")
	if left, err := strconv.Atoi(e.get("x-sidecar-offline")); err != nil || left > away || left < away/2 {
		t.Errorf("offline %q", e.get("x-sidecar-offline"))
	}
	close(release)
	for {
		e, err := stream.next()
		if err != nil {
			t.Fatal(err)
		}
		if e.kind == http2.FrameHeaders {
			if !e.has("x-sidecar-offline") || e.get("x-sum") != "1" {
				t.Errorf("trailers: %v", e)
			}
			break
		}
	}
}

// TestClientHearsOffline: the mark counts only behind a GOAWAY of the connection that it comes on, in a head and in trailers;
// the client of ours never sees it.
func TestClientHearsOffline(t *testing.T) {
	mark := []string{"x-sidecar-offline", "5"}
	for name, tc := range map[string]struct {
		answer func(*peer, uint32)
		want   uint32
	}{
		"head": {func(p *peer, id uint32) {
			p.goAway(1<<31-1, http2.ErrCodeNo)
			p.headers(id, true, with([]string{":status", "200"}, mark...)...)
		}, balance.StateDraining},
		"trailers": {func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200")
			p.goAway(1<<31-1, http2.ErrCodeNo)
			p.headers(id, true, mark...)
		}, balance.StateDraining},
		"relayed": {func(p *peer, id uint32) {
			p.headers(id, false, with([]string{":status", "200"}, mark...)...)
			p.headers(id, true, mark...)
		}, 0},
		"mere goaway": {func(p *peer, id uint32) {
			p.goAway(1<<31-1, http2.ErrCodeNo)
			ok200(p, id)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			origin := serve2(t, nil, func(p *peer) {
				for {
					e, err := p.next()
					if err != nil {
						return
					}
					if e.kind == http2.FrameHeaders && e.end {
						tc.answer(p, e.id)
					}
				}
			})
			r := newRig(t, setup{config: plain2, origins: []string{origin}})
			c := r.dial2()
			c.headers(1, true, path("/")...)
			head, _, trailers, err := c.answer(1)
			if err != nil || head.get(":status") != "200" || head.has("x-sidecar-offline") || trailers.has("x-sidecar-offline") {
				t.Errorf("%v %v %v", head, trailers, err)
			}
			if got := r.state(); got != tc.want {
				t.Errorf("state %s, want %s", balance.StateText(got), balance.StateText(tc.want))
			}
		})
	}
}
