package proxy

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
)

// TestConnectAhead: connections are open before the first call, which uses one of them, to those that are there at the start and to those
// that come later; endpoints that do not answer hold up nobody (S-26).
func TestConnectAhead(t *testing.T) {
	t.Parallel()
	var conns [2]atomic.Int64
	var origins [2]*httptest.Server
	for i := range origins {
		origins[i] = httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		origins[i].Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				conns[i].Add(1)
			}
		}
		origins[i].Start()
		defer origins[i].Close()
	}
	p := newApplied(t)
	address := meshtest.FreeAddress(t)
	endpoints := "192.0.2.1:80, 192.0.2.2:80, " + origins[0].Listener.Addr().String() // the first two are black holes
	apply := func(more string) {
		t.Helper()
		began := time.Now()
		p.apply(fmt.Sprintf("listen: {outbound: none}\nservices: {a: {listen: %q, preconnect: 2, policy: {outlier: none}, endpoints: [%s%s]}}\n", address, endpoints, more))
		if took := time.Since(began); took >= aheadTime {
			t.Errorf("it waited %v for connections", took)
		}
	}
	opened := func(i int, want int64) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); conns[i].Load() != want; <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d connections to %d, want %d", conns[i].Load(), i, want)
			}
		}
	}
	apply("")
	opened(0, 2)
	if conns[1].Load() != 0 {
		t.Error("nobody has told of the other one")
	}
	apply(", " + origins[1].Listener.Addr().String())
	opened(1, 2)
	opened(0, 2) // not anew

	endpoints = origins[0].Listener.Addr().String()
	apply("")
	resp, err := http.Get("http://" + address + "/")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 200 || conns[0].Load() != 2 {
		t.Errorf("status %d, %d connections", resp.StatusCode, conns[0].Load())
	}
	http.DefaultClient.CloseIdleConnections()
}
