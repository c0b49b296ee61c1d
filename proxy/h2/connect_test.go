package h2_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// plainTCP is a service that CONNECT reaches.
const plainTCP = "services: {svc: {protocol: tcp, listen: 127.0.0.1:19, endpoints: [ORIGIN]}}\n"

// connectTo begins a tunnel and returns the origin's end of it.
func connectTo(t *testing.T) (*rig, *peer, *net.TCPConn) {
	t.Helper()
	came := make(chan *net.TCPConn, 1)
	origin := serveConns(t, func(nc net.Conn) {
		came <- nc.(*net.TCPConn)
		<-t.Context().Done()
	})
	r := newRig(t, setup{config: plainTCP, origins: []string{origin}})
	c := r.dial2()
	c.headers(1, false, ":method", "CONNECT", ":authority", "svc")
	c.want("HEADERS#1 200")
	select {
	case nc := <-came:
		_ = nc.SetDeadline(time.Now().Add(patience))
		return r, c, nc
	case <-time.After(patience):
		t.Fatal("no connection")
	}
	return nil, nil, nil
}

// TestConnectErrors (H2-CO-003, RFC 9113 8.5): a reset of either side is one for the other.
func TestConnectErrors(t *testing.T) {
	t.Run("of the target", func(t *testing.T) {
		r, c, nc := connectTo(t)
		c.data(1, false, []byte("a"))
		if err := readFull(nc, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		_ = nc.SetLinger(0)
		_ = nc.Close()
		c.want("RST#1 CONNECT_ERROR")
		r.settled()
	})
	t.Run("of the client", func(t *testing.T) {
		r, c, nc := connectTo(t)
		c.data(1, false, []byte("a"))
		if err := readFull(nc, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		c.reset(1, http2.ErrCodeCancel)
		if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the target sees %v", err)
		}
		r.settled()
	})
	t.Run("orderly", func(t *testing.T) {
		r, c, nc := connectTo(t)
		c.data(1, true, []byte("a"))
		if b, err := io.ReadAll(nc); err != nil || string(b) != "a" {
			t.Errorf("%q %v", b, err)
		}
		_, _ = nc.Write([]byte("b"))
		if e := c.want("DATA#1 1"); string(e.data) != "b" {
			t.Error(e)
		}
		_ = nc.CloseWrite()
		c.want("DATA#1 0 ES")
		r.settled()
	})
}

// TestConnectTrailers (H2-CO-004): nothing but DATA belongs on a tunnel.
func TestConnectTrailers(t *testing.T) {
	r, c, nc := connectTo(t)
	c.data(1, false, []byte("a"))
	if err := readFull(nc, make([]byte, 1)); err != nil { // the tunnel stands
		t.Fatal(err)
	}
	c.headers(1, true, "x-late", "1")
	c.want("RST#1 PROTOCOL_ERROR")
	if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the target sees %v", err)
	}
	r.settled()
}

// TestExtendedConnectRefused (H2-CO-006, H2-CO-009): what an extended CONNECT must have, and what it must not.
func TestExtendedConnectRefused(t *testing.T) {
	whole := []string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/", ":authority", "svc"}
	without := func(name string) []string {
		var list []string
		for i := 0; i < len(whole); i += 2 {
			if whole[i] != name {
				list = append(list, whole[i], whole[i+1])
			}
		}
		return list
	}
	for name, fields := range map[string][]string{
		"no scheme":    without(":scheme"),
		"no path":      without(":path"),
		"no authority": without(":authority"),
		"connection":   with(whole, "connection", "upgrade"),
		"upgrade":      with(whole, "upgrade", "websocket"),
		"not CONNECT":  append([]string{":method", "GET"}, without(":method")...),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{config: plain1, origins: []string{"127.0.0.1:1"}})
			c := r.dial2()
			c.headers(1, false, fields...)
			c.want("RST#1 PROTOCOL_ERROR")
			r.settled()
		})
	}
}

// TestExtendedConnectEarly (H2-CO-009, H2-CO-010): what a client sends before the answer waits for it, and is dropped when the
// answer is no; the key of HTTP/1 that it may send is none of ours.
func TestExtendedConnectEarly(t *testing.T) {
	for _, yes := range []bool{true, false} {
		got := make(chan string, 1)
		origin := serveConns(t, func(nc net.Conn) {
			_ = nc.SetDeadline(time.Now().Add(patience))
			in := bufio.NewReader(nc)
			q, err := http.ReadRequest(in)
			if err != nil {
				got <- err.Error()
				return
			}
			if yes {
				key := q.Header.Get(pipeline.WebSocketKey)
				_, _ = io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: "+pipeline.WebSocketAccept(key)+"\r\n\r\n")
			} else {
				_, _ = io.WriteString(nc, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
			}
			b := make([]byte, 5)
			if !yes {
				_ = nc.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			}
			n, _ := io.ReadFull(in, b)
			got <- string(b[:n])
		})
		r := newRig(t, setup{config: plain1, origins: []string{origin}})
		c := r.dial2()
		c.headers(1, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/", ":authority", "svc",
			"sec-websocket-version", "13", "sec-websocket-key", "bm9uc2Vuc2Utbm9uc2Vuc2U=")
		c.data(1, false, []byte("early"))
		if yes {
			c.want("HEADERS#1 200")
			if s := <-got; s != "early" {
				t.Errorf("the server got %q", s)
			}
		} else {
			c.want("HEADERS#1 403 ES")
			if s := <-got; s != "" {
				t.Errorf("the server got %q although it had refused", s)
			}
		}
	}
}
