package snapshot_test

import (
	"testing"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
	"github.com/sidecar-mesh/sidecar/route"
)

// TestGRPCMatch: a match by gRPC method fits its path, and only calls of gRPC.
func TestGRPCMatch(t *testing.T) {
	s := meshtest.Compile(t, `services:
  a:
    protocol: grpc
    endpoints: [10.0.0.1:80]
    routes:
      - match: {grpc: shop.Cart/Get}
      - match: {grpc: shop.Cart/*}
      - match: {grpc: "*/Watch"}
      - {name: any, match: {grpc: "*/*"}}
`)
	a, _ := s.Outbound.Get("a")
	for _, c := range []struct{ path, contentType, want string }{
		{"/shop.Cart/Get", "application/grpc", "grpc:shop.Cart/Get"},
		{"/shop.Cart/Get", "Application/GRPC+proto", "grpc:shop.Cart/Get"},
		{"/shop.Cart/Get", "application/grpc;charset=x", "grpc:shop.Cart/Get"},
		{"/shop.Cart/Get", "application/grpc-web", ""},
		{"/shop.Cart/Get", "application/grpcfoo", ""},
		{"/shop.Cart/Get", "application/json", ""},
		{"/shop.Cart/Get", "", ""},
		{"/shop.Cart/Put", "application/grpc", "grpc:shop.Cart/*"},
		{"/shop.Cart", "application/grpc", "any"},
		{"/shop.Cart2/Get", "application/grpc", "any"},
		{"/shop.Stock/Watch", "application/grpc", "grpc:*/Watch"},
		{"/shop.Stock/x/Watch", "application/grpc", "any"},
	} {
		f := route.Facts{Method: "POST", Path: c.path, Fields: route.FieldList{}}
		if c.contentType != "" {
			f.Fields = route.FieldList{{Name: "Content-Type", Value: c.contentType}}
		}
		if got := a.Match(&f).Name; got != c.want {
			t.Errorf("%s of %q: route %q, want %q", c.path, c.contentType, got, c.want)
		}
	}
}
