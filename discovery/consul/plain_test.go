package consul

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// rawServer is a server of raw answers: each connection gives the next one for each request, "" closes it, as the last one does.
func rawServer(t *testing.T, answers ...string) (url string, dialled func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns, done := make(chan net.Conn, 16), make(chan struct{})
	go func() {
		defer close(done)
		next := 0
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns <- c
			for r := bufio.NewReader(c); next < len(answers); {
				if _, err := http.ReadRequest(r); err != nil {
					break
				}
				answer := answers[next]
				next++
				if _, err := io.WriteString(c, answer); err != nil || answer == "" {
					break
				}
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return "http://" + l.Addr().String() + "/", func() int { return len(conns) }
}

func newPlain(t *testing.T) *plain {
	p := &plain{dial: (&net.Dialer{}).DialContext, maxHeader: 1000, idleFor: time.Minute}
	t.Cleanup(p.closeIdle)
	return p
}

// get returns the status and the body of one query.
func get(ctx context.Context, p *plain, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := p.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, body), err
}

// One connection serves one query after the other; what the server closed meanwhile is replaced without a failure.
func TestPlainKeepsConnections(t *testing.T) {
	sized, chunked, last := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nc\r\n0\r\n\r\n",
		"HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 1\r\n\r\nd"
	url, dialled := rawServer(t, sized, chunked, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", sized, last, sized)
	p := newPlain(t)
	for i, want := range []struct {
		text  string
		dials int
	}{{"200 ab", 1}, {"200 c", 1}, {"200 ", 1}, {"200 ab", 2}, {"500 d", 2}, {"200 ab", 3}} {
		if got, err := get(t.Context(), p, url); got != want.text || err != nil || dialled() != want.dials {
			t.Errorf("%d: %q, %v, %d connections; want %+v", i, got, err, dialled(), want)
		}
	}
}

// What is no answer is a failure, once.
func TestPlainFails(t *testing.T) {
	for name, answer := range map[string]string{
		"nothing":     "",
		"garbage":     "garbage\r\n\r\n",
		"a long head": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2000) + "\r\n\r\n",
	} {
		url, dialled := rawServer(t, answer)
		if got, err := get(t.Context(), newPlain(t), url); err == nil || dialled() != 1 {
			t.Errorf("%s: %q by %d connections", name, got, dialled())
		}
	}
	url, _ := rawServer(t, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort")
	if got, err := get(t.Context(), newPlain(t), url); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut short: %q, %v", got, err)
	}
}

// The context's end ends the wait for an answer, and the wait for the rest of one.
func TestPlainIsInterrupted(t *testing.T) {
	for _, begun := range []string{" ", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"} {
		url, _ := rawServer(t, begun, begun)
		p := newPlain(t)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		began := time.Now()
		if got, err := get(ctx, p, url); err == nil {
			t.Errorf("%q is an answer", got)
		}
		cancel()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("after %q the wait ended after %v", begun, took)
		}
		if p.take(strings.Trim(url, "htp:/")) != nil {
			t.Error("a connection with half an answer is kept")
		}
	}
}
