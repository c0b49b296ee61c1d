package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
)

// TestRetargetedListenerLeavesNothing: the goroutines that served streams of a listener end when it serves something else,
// and when it goes.
func TestRetargetedListenerLeavesNothing(t *testing.T) {
	p := newApplied(t)
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	defer origin.Close()
	address := meshtest.FreeAddress(t)
	apply := func(protocol, listen string) {
		t.Helper()
		text := "listen: {outbound: none}\nservices: {a: {protocol: " + protocol + listen + ", endpoints: [" + origin.Listener.Addr().String() + "]}}\n"
		p.apply(text)
	}
	client := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	client.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	defer client.CloseIdleConnections()
	ask := func() {
		t.Helper()
		resp, err := client.Get("http://" + address + "/")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		client.CloseIdleConnections()
	}
	for _, next := range []struct{ protocol, listen string }{{"auto", ", listen: " + address}, {"http", ""}} {
		apply("http", ", listen: "+address)
		ask()
		if workers() == 0 {
			t.Fatal("no goroutine served a stream")
		}
		apply(next.protocol, next.listen)
		for end := time.Now().Add(10 * time.Second); workers() > 0; <-time.After(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d goroutines still wait for streams", workers())
			}
		}
		apply("http", "")
	}
}

// workers counts the goroutines that serve streams, or wait for them.
func workers() int {
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "h2.(*workers).work(")
}
