package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// TestLimitsReachWhatIsThere: the limits of a reload hold for endpoints that were known before it, in all their pools, and for
// the connections to them that are open.
func TestLimitsReachWhatIsThere(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := range 50 {
			w.Header().Set(fmt.Sprintf("x-%d", i), "v")
		}
	}))
	defer origin.Close()
	for name, service := range map[string]string{
		"http1": "", "auto": "protocol: auto, ", "a link": "links: [{name: all, match: {size_over: 1B}}], ",
	} {
		t.Run(name, func(t *testing.T) {
			p := newApplied(t)
			address := meshtest.FreeAddress(t)
			apply := func(limits string) {
				t.Helper()
				p.apply(fmt.Sprintf("listen: {outbound: none}\n%s\nservices: {a: {listen: %q, %sendpoints: [%q]}}\n",
					limits, address, service, origin.Listener.Addr()))
			}
			ask := func(want int) {
				t.Helper()
				resp, err := http.Post("http://"+address+"/", "text/plain", strings.NewReader("large"))
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != want {
					t.Errorf("status %d, want %d", resp.StatusCode, want)
				}
			}
			apply("")
			ask(200)
			apply("limits: {header_count: 20}")
			ask(502)
			apply("")
			ask(200)
			http.DefaultClient.CloseIdleConnections()
		})
	}
}

// TestWiderLimitLetsGo: who waits for a limit goes on when a reload widens it, that of a service, of a route or of a bulkhead.
func TestWiderLimitLetsGo(t *testing.T) {
	for name, document := range map[string]string{
		"service":  "services: {a: {listen: %q, endpoints: [%q], policy: {limit: {in_flight: %d}}}}",
		"route":    "services: {a: {listen: %q, endpoints: [%q], routes: [{match: /x, policy: {limit: {in_flight: %d}}}]}}",
		"bulkhead": "services: {a: {listen: %q, endpoints: [%q], policy: {limit: {bulkhead: b}}}}\nbulkheads: {b: {in_flight: %d, waiting: 5}}",
	} {
		t.Run(name, func(t *testing.T) {
			begun, proceed := make(chan struct{}, 2), make(chan struct{})
			origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				begun <- struct{}{}
				<-proceed
			}))
			defer origin.Close()
			p := newApplied(t)
			address := meshtest.FreeAddress(t)
			apply := func(limit int) *snapshot.Service {
				t.Helper()
				p.apply(fmt.Sprintf("listen: {outbound: none}\n"+document+"\n", address, origin.Listener.Addr(), limit))
				a, _ := p.store.Load().Outbound.Get("a")
				return a
			}
			a := apply(1)
			var calls sync.WaitGroup
			for range 2 {
				calls.Go(func() {
					resp, err := http.Get("http://" + address + "/x")
					if err != nil {
						t.Error(err)
						return
					}
					_ = resp.Body.Close()
				})
			}
			<-begun
			limiter := a.Rest.Limiter
			for _, r := range a.Routes {
				limiter = r.Limiter
			}
			for begin := time.Now(); ; <-time.After(time.Millisecond) {
				if _, waits := limiter.InUse(); waits == 1 {
					break
				} else if time.Since(begin) > 10*time.Second {
					t.Fatal("nobody waits")
				}
			}
			apply(2)
			select {
			case <-begun:
			case <-time.After(5 * time.Second):
				t.Error("who waited did not go on")
			}
			close(proceed)
			calls.Wait()
			http.DefaultClient.CloseIdleConnections()
		})
	}
}
