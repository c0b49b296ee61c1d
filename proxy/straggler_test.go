package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
)

// TestStraggler: a call that began when an endpoint was there may still try it when a reload has taken it away meanwhile.
func TestStraggler(t *testing.T) {
	for _, protocol := range []string{"http", "http2", "auto"} {
		t.Run(protocol, func(t *testing.T) {
			p := newApplied(t)
			address := meshtest.FreeAddress(t)
			apply := func(endpoint string) {
				p.apply(fmt.Sprintf("listen: {outbound: none}\nservices: {a: {listen: %q, protocol: %s, endpoints: [%q], "+
					"policy: {timeout: 20s, per_try_timeout: 300ms, retry: 1}}}\n", address, protocol, endpoint))
			}
			other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "other") }))
			defer other.Close()
			var calls atomic.Int64
			origin := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if calls.Add(1) == 1 {
					apply(other.Listener.Addr().String())
					<-r.Context().Done() // the attempt was given up
					return
				}
				_, _ = io.WriteString(w, "origin")
			}))
			origin.Config.Protocols = new(http.Protocols)
			origin.Config.Protocols.SetHTTP1(true)
			origin.Config.Protocols.SetUnencryptedHTTP2(true)
			origin.Start()
			defer origin.Close()
			apply(origin.Listener.Addr().String())
			resp, err := http.Get("http://" + address + "/")
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			http.DefaultClient.CloseIdleConnections()
			if resp.StatusCode != 200 || string(body) != "origin" {
				t.Errorf("%d %s %q", resp.StatusCode, resp.Header.Get("X-Sidecar-Reason"), body)
			}
		})
	}
}
