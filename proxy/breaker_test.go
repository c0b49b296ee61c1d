package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
)

// TestBreakerPerEndpoint: a sick endpoint of two gets as many attempts as it takes to know, then one now and then, and all it
// can take once it is well; its neighbour serves meanwhile, and a reload that wants no such breaker lets it go at once.
func TestBreakerPerEndpoint(t *testing.T) {
	p := newApplied(t)
	var sick atomic.Bool
	var calls [2]atomic.Int64
	addresses := make([]any, 0, 2)
	for i := range calls {
		origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if calls[i].Add(1); i == 0 && sick.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		t.Cleanup(origin.Close)
		addresses = append(addresses, origin.Listener.Addr().String())
	}
	at := meshtest.FreeAddress(t)
	apply := func(breaker string) {
		p.apply(fmt.Sprintf("listen: {outbound: none}\nservices: {a: {listen: "+at+", endpoints: [%q, %q], "+
			"policy: {retry: 1, outlier: none, breaker: {"+breaker+"}}}}\n", addresses...))
	}
	get := func(n int) {
		t.Helper()
		for range n {
			resp, err := http.Get("http://" + at + "/")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Fatalf("%s: %s", resp.Status, resp.Header.Get("X-Sidecar-Reason"))
			}
		}
	}
	defer http.DefaultClient.CloseIdleConnections()

	apply("per: endpoint, request_volume: 5, sleep_window: 1h")
	sick.Store(true)
	if get(40); calls[0].Load() != 5 || calls[1].Load() != 40 {
		t.Errorf("%d attempts at the sick endpoint and %d at the other, want 5 and 40", calls[0].Load(), calls[1].Load())
	}
	apply("per: endpoint, request_volume: 5, sleep_window: 50ms") // other numbers: a new breaker
	if get(12); calls[0].Load() < 10 {
		t.Errorf("%d attempts at the sick endpoint after the reload, want 10", calls[0].Load())
	}
	sick.Store(false)
	was := calls[0].Load()
	for begin := time.Now(); calls[0].Load() < was+10; {
		if get(1); time.Since(begin) > 10*time.Second {
			t.Fatalf("the endpoint got %d calls since it is well", calls[0].Load()-was)
		}
	}
	var told []string
	for _, e := range p.rec.Events().Snapshot() {
		if e.Kind == "breaker" {
			if e.Service != "a" || e.Endpoint != addresses[0] {
				t.Errorf("event %+v", e)
			}
			told = append(told, e.To)
		}
	}
	if got := strings.Join(told, " "); !strings.HasPrefix(got, "open open half_open") || !strings.HasSuffix(got, "half_open closed") {
		t.Errorf("events: %s", got)
	}
	w := httptest.NewRecorder()
	p.rec.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if !strings.Contains(w.Body.String(), `sidecar_endpoint_breaker_changes_total{service="a",to="closed"} 1`) {
		t.Error("the change is not counted")
	}

	apply("per: endpoint, request_volume: 6, sleep_window: 1h")
	sick.Store(true)
	get(20)
	sick.Store(false)
	was = calls[0].Load()
	apply("per: service")
	if get(10); calls[0].Load() != was+5 {
		t.Errorf("%d of 10 calls reached the endpoint when it had no breaker any more, want 5", calls[0].Load()-was)
	}
}
