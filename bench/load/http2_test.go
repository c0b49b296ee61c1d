//go:build linux

package load

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestHTTP2(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Host != "bench" || r.URL.Path != "/x" {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = w.Write([]byte("ok"))
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	address := server.Listener.Addr().String()
	if status, err := OnceHTTP2(address, "bench", "/x", 10*time.Second); err != nil || status != 200 {
		t.Error(status, err)
	}
	conns, err := IdleHTTP2(address, "bench", "/x", 3)
	if err != nil || len(conns) != 3 {
		t.Error(len(conns), err)
	}
	for _, nc := range conns {
		_ = nc.Close()
	}
	if _, err := IdleHTTP2(address, "bench", "/else", 1); err == nil {
		t.Error("took an answer with 400")
	}
}
