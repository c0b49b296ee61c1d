package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

// TestReachGRPC: only a health service that says SERVING takes an endpoint back.
func TestReachGRPC(t *testing.T) {
	answers := map[string]struct {
		body   string
		status string
		well   bool
	}{
		"serving":     {"\x00\x00\x00\x00\x02\x08\x01", "0", true},
		"not_serving": {"\x00\x00\x00\x00\x02\x08\x02", "0", false},
		"unknown":     {"", "5", false},
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/grpc.health.v1.Health/Check" || len(q) < 7 || q[5] != 0x0a || int(q[6]) != len(q)-7 {
			t.Errorf("%s %q", r.URL.Path, q)
			return
		}
		a := answers[string(q[7:])]
		w.Header().Set("Content-Type", "application/grpc")
		_, _ = io.WriteString(w, a.body)
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", a.status)
	})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln)
	}()
	for service, a := range answers {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := reach(ctx, ln.Addr().String(), "cart", config.Probe{GRPC: true, Service: service})
		cancel()
		if (err == nil) != a.well {
			t.Errorf("%s: %v", service, err)
		}
	}
	_ = srv.Close()
	<-done
}
