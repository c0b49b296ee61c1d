package h2_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestGRPCOverHTTP1 (GR-020): what an endpoint of HTTP/1 says to a call of gRPC is relayed as it is, and no status is made up. A
// caller of HTTP/1 gets the status in the trailers of its chunks.
func TestGRPCOverHTTP1(t *testing.T) {
	old := serveConns(t, func(nc net.Conn) {
		q, err := http.ReadRequest(bufio.NewReader(nc))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, q.Body)
		_, _ = io.WriteString(nc, "HTTP/1.1 415 Unsupported Media Type\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
	})
	r := newRig(t, setup{config: plain1, origins: []string{old}})
	if got := strings.ReplaceAll(call(r.dial2(), 1), "DATA 2 ES", "DATA 2, DATA 0 ES"); got != "HEADERS 415, DATA 2, DATA 0 ES" {
		t.Errorf("an endpoint of HTTP/1: %s", got)
	}
	r.settled()

	origin := replying(t, func(p *peer, id uint32) {
		p.headers(id, false, ":status", "200", "content-type", "application/grpc")
		p.data(id, false, message)
		p.headers(id, true, "grpc-status", "5", "grpc-message", "none")
	})
	for _, te := range []string{"", "TE: trailers\r\nConnection: TE\r\n"} {
		r := newRig(t, setup{config: plain2, origins: []string{origin}})
		nc := r.dial1()
		_, _ = fmt.Fprintf(nc, "POST /t.S/M HTTP/1.1\r\nHost: svc\r\nContent-Type: application/grpc\r\n%sContent-Length: %d\r\n\r\n%s", te, len(message), message)
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || string(body) != string(message) || resp.Trailer.Get("grpc-status") != "5" || resp.Trailer.Get("grpc-message") != "none" {
			t.Errorf("with %q: %v, %q, %v, %v", te, resp.Status, body, resp.Trailer, err)
		}
		_ = nc.Close()
		r.settled()
	}
}
