//go:build linux

package load

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestStreams: what the echo sends back is counted, for both kinds.
func TestStreams(t *testing.T) {
	for _, kind := range []Kind{Messages, GRPC} {
		ln, err := Echo(kind)
		if err != nil {
			t.Fatal(err)
		}
		n, err := Streams(ln.Addr().String(), "bench", kind, 2, 5, 3000, time.Second)
		if err != nil || n < 50 {
			t.Errorf("kind %d: %d, %v", kind, n, err)
		}
		_ = ln.Close()
	}
}

// TestStreamsOfTheOtherKind: an answer that is not what was sent is no success.
func TestStreamsOfTheOtherKind(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) }))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	if n, err := Streams(server.Listener.Addr().String(), "bench", Messages, 1, 1, 100, 5*time.Second); err == nil {
		t.Errorf("%d messages came back", n)
	}
}

func TestBeside(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := 1 << 10
		if r.URL.Path == "/bulk" {
			n = 8 << 20
		}
		_, _ = w.Write(make([]byte, n))
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	address := server.Listener.Addr().String()
	for _, bulk := range []string{"", "/bulk"} {
		if l, err := Beside(address, "bench", "/small", bulk, time.Second); err != nil || l.Count == 0 || l.P99 == 0 {
			t.Errorf("%+v %v", l, err)
		}
	}
}

// TestEchoOutlivesItsClients: the origin goes on when a client leaves with streams open, as it does behind a proxy.
func TestEchoOutlivesItsClients(t *testing.T) {
	ln, err := Echo(Messages)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	l := newLink(nc)
	_, _ = l.out.WriteString(http2.ClientPreface)
	_ = l.fr.WriteSettings()
	for id := uint32(1); id < 6; id += 2 {
		_ = l.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: literal([2]string{":method", "POST"}), EndHeaders: true})
		_ = l.fr.WriteData(id, false, make([]byte, 10))
		if f, err := l.next(); err != nil || f.Header().Type != http2.FrameHeaders {
			t.Fatal(f, err)
		}
		if f, err := l.next(); err != nil || f.Header().Type != http2.FrameData || f.Header().StreamID != id {
			t.Fatal(f, err)
		}
		_ = l.fr.WriteRSTStream(id, http2.ErrCodeCancel)
	}
}
