package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
)

// TestSpoken: what a registry says of an endpoint's protocol is spoken to it by a service that leaves it open, whatever the caller
// speaks, also once it says something else; a service that says it does not ask.
func TestSpoken(t *testing.T) {
	origin := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	origin.Config.Protocols = new(http.Protocols)
	origin.Config.Protocols.SetHTTP1(true)
	origin.Config.Protocols.SetUnencryptedHTTP2(true)
	origin.Start()
	defer origin.Close()
	const one, two = "HTTP/1.1", "HTTP/2.0"
	p := newApplied(t)
	address := meshtest.FreeAddress(t)
	for _, c := range []struct{ service, label, of1, of2 string }{
		{"auto", "", one, two},
		{"auto", "http2", two, two},
		{"auto", "grpc", two, two},
		{"auto", "http", one, one},
		{"auto", "mysql", one, two},
		{"auto, links: [{name: all, match: {size_over: 1B}}]", "grpc", two, two},
		{"http", "grpc", one, one},
		{"http2", "http", two, two},
	} {
		p.apply(fmt.Sprintf("listen: {outbound: none}\nservices: {a: {listen: %q, protocol: %s, endpoints: [{address: %q, labels: {protocol: %q}}]}}\n",
			address, c.service, origin.Listener.Addr(), c.label))
		for version, want := range map[string]string{one: c.of1, two: c.of2} {
			transport := &http.Transport{Protocols: new(http.Protocols), DisableKeepAlives: true}
			transport.Protocols.SetHTTP1(version == one)
			transport.Protocols.SetUnencryptedHTTP2(version == two)
			resp, err := (&http.Client{Transport: transport}).Get("http://" + address + "/")
			if err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			transport.CloseIdleConnections()
			if string(body) != want {
				t.Errorf("%+v: a caller of %s is passed on by %s", c, version, body)
			}
		}
	}
}
