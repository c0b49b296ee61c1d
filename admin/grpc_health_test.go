package admin

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// grpcAsk sends one message to the health listener over HTTP/2, as gRPC does.
func grpcAsk(t *testing.T, s *Server, path, message string) (body, status string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = s.server(s.api.health())
	srv.Start()
	defer srv.Close()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: protocols}
	defer tr.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+path, strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/grpc")
	r, err := tr.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if path == healthWatch {
		b := make([]byte, 7)
		_, _ = io.ReadFull(r.Body, b)
		return string(b), ""
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), r.Trailer.Get("Grpc-Status")
}

func TestGRPCHealth(t *testing.T) {
	p, _, s := rig(t)
	own := "\x00\x00\x00\x00\x06\x0a\x04shop"
	for _, c := range []struct {
		ready                       bool
		path, message, body, status string
	}{
		{true, healthCheck, "\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\x02\x08\x01", "0"},
		{false, healthCheck, "\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\x02\x08\x02", "0"},
		{true, healthCheck, own, "\x00\x00\x00\x00\x02\x08\x01", "0"},
		{true, healthCheck, "\x00\x00\x00\x00\x05\x0a\x03foo", "", "5"},
		{true, healthCheck, "\x00\x00\x00\x00\x02\x0a\x03", "", "3"},
		{true, healthCheck, "\x00\xff\xff\xff\xff", "", "3"},
		{true, healthWatch, own, "\x00\x00\x00\x00\x02\x08\x01", ""},
		{true, healthWatch, "\x00\x00\x00\x00\x05\x0a\x03foo", "\x00\x00\x00\x00\x02\x08\x03", ""},
	} {
		p.readiness.Ready = c.ready
		if body, status := grpcAsk(t, s, c.path, c.message); body != c.body || status != c.status {
			t.Errorf("%s %q: %q, status %q", c.path, c.message, body, status)
		}
	}
}
