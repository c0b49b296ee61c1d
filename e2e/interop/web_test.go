package interop

import (
	"context"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// TestWeb lets a browser's client call servers of gRPC: through the server's own sidecar, and through two, of which the
// first one bridges.
func TestWeb(t *testing.T) {
	list := stacks(t)
	const page = "https://shop.test"
	node := list[1]
	node.command = []string{"node", "node/web.js"}
	for _, server := range list[:2] {
		address := server.serve(t)
		near := sidecartest.Run(t, `inbound: [{service: peer, app: %q, protocol: grpc, grpc_web: {origins: [%q]}}]`, address, page).Inbound
		own := sidecartest.FreeAddress(t)
		sidecartest.Run(t, `
services:
  peer:
    protocol: grpc
    listen: %q
    endpoints: [%q]
    grpc_web: {origins: ["https://other.test", %q]}
    policy: {outlier: none, breaker: none}
`, own, near, page)
		for name, at := range map[string]string{"one sidecar": near, "two sidecars": own} {
			for _, mode := range []string{"text", "binary"} {
				t.Run(server.name+" through "+name+" "+mode, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
					defer cancel()
					out, err := node.run(ctx, at, mode, page).CombinedOutput()
					if err != nil {
						t.Errorf("%v\n%s", err, out)
					} else {
						t.Logf("\n%s", out)
					}
				})
			}
		}
	}
}
