package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
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
