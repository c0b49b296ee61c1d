//go:build linux

package load

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func serve(t *testing.T, handler http.HandlerFunc) string {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestOpenKeepsTheRate(t *testing.T) {
	var served atomic.Int64
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) { served.Add(1); _, _ = w.Write([]byte("ok")) })
	l, err := Open(address, Request("x", "/"), 500, 4, 0, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if l.Count != 500 || l.Errors != 0 || served.Load() != 500 {
		t.Errorf("%+v, served %d, want 500", l, served.Load())
	}
}

// A server that stalls once for 300 ms of a second delays about 30 % of what was due, so the 90th percentile must show it.
func TestOpenCountsFromTheSchedule(t *testing.T) {
	var served atomic.Int64
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if served.Add(1) == 100 {
			<-time.After(300 * time.Millisecond)
		}
		_, _ = w.Write([]byte("ok"))
	})
	l, err := Open(address, Request("x", "/"), 500, 1, 0, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if l.Count != 500 || l.P90 < 100*time.Millisecond {
		t.Errorf("%+v: the stall is hidden", l)
	}
}

func TestOpenCountsFailures(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusBadGateway)
	})
	l, err := Open(address, Request("x", "/"), 100, 2, 0, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if l.Count != 0 || l.Errors == 0 {
		t.Errorf("%+v, want failures", l)
	}
}

func TestOneAndOnceAndIdle(t *testing.T) {
	body := strings.Repeat("x", 10_000)
	address := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(body)) })
	status, got, err := Once(address, Request("x", "/"), 10*time.Second)
	if err == nil {
		t.Errorf("a chunked reply was taken in: %d %d", status, len(got))
	}
	body = body[:1000]
	if status, got, err = Once(address, Request("x", "/"), 10*time.Second); err != nil || status != 200 || string(got) != body {
		t.Errorf("%d %q %v", status, got, err)
	}
	if l, err := One(address, Request("x", "/"), 500*time.Millisecond); err != nil || l.Count == 0 || l.P50 <= 0 {
		t.Errorf("%+v %v", l, err)
	}
	conns, err := Idle(address, Request("x", "/"), 5)
	if err != nil || len(conns) != 5 {
		t.Errorf("%d %v", len(conns), err)
	}
	for _, nc := range conns {
		_ = nc.Close()
	}
}

func TestRelay(t *testing.T) {
	source, err := Source()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = source.Close() }()
	octets, err := Sink(source.Addr().String(), 2, 500*time.Millisecond)
	if err != nil || octets < 64<<10 {
		t.Errorf("%d octets, %v", octets, err)
	}
}

func TestReply(t *testing.T) {
	const whole = "HTTP/1.1 200 OK\r\nServer: x\r\ncontent-length: 3\r\nA: b\r\n\r\nabc"
	var r reply
	for i := range whole {
		copy(r.space(), whole[i:i+1])
		done, err := r.add(1)
		if err != nil || done != (i == len(whole)-1) {
			t.Fatalf("after %d: %v %v", i+1, done, err)
		}
	}
	for _, bad := range []string{"HTTP/1.1 xyz\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", whole + "HTTP"} {
		r.reset()
		if _, err := r.add(copy(r.space(), bad)); err == nil {
			t.Errorf("took %q", bad)
		}
	}
}

func TestLoop(t *testing.T) {
	var served atomic.Int64
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if served.Add(1) > 1e9 {
			w.WriteHeader(http.StatusBadGateway)
		}
		_, _ = w.Write([]byte("ok"))
	})
	l, err := NewLoop(address, Request("x", "/"), 4)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	total := 0
	for range 2 { // on the same connections
		n, err := l.Run(500 * time.Millisecond)
		if err != nil || n < 4 {
			t.Fatal(n, err)
		}
		total += n
	}
	if int64(total) != served.Load() {
		t.Errorf("%d of %d", total, served.Load())
	}
	served.Store(1e9)
	if _, err := l.Run(time.Millisecond); err == nil {
		t.Error("took a 502 for an answer")
	}
}
