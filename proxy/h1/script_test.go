package h1_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/h1"
)

// readHead reads up to the end of a head, or of the connection.
func readHead(br *bufio.Reader) string {
	var s strings.Builder
	for {
		line, err := br.ReadString('\n')
		s.WriteString(line)
		if err != nil || line == "\r\n" {
			return s.String()
		}
	}
}

// expectHead reads a head that must begin so, and n bytes behind it.
func expectHead(t *testing.T, br *bufio.Reader, begin string, n int) {
	t.Helper()
	if head := readHead(br); !strings.HasPrefix(head, begin) {
		t.Fatalf("got %q, want %q", head, begin)
	}
	if _, err := br.Discard(n); err != nil {
		t.Fatal(err)
	}
}

// TestEarlyAnswer (H1-ER-002): an answer that comes before the body has been sent is delivered, the body goes on, and
// then the connection serves again.
func TestEarlyAnswer(t *testing.T) {
	const chunk, chunks = 1024, 200
	got := make(chan int64, 1)
	origin := newOrigin(t, func(nc *net.TCPConn) {
		br := bufio.NewReader(nc)
		readHead(br)
		n, _ := io.CopyN(io.Discard, br, chunk)
		_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		for !bytes.HasSuffix(peek(br), []byte("0\r\n\r\n")) {
			m, err := br.Discard(br.Buffered())
			if n += int64(m); err != nil {
				break
			}
		}
		got <- n + int64(br.Buffered())
	})
	r := newRig(t, setup{config: plainConfig, origins: []string{origin}})
	c := r.dial()
	answered := make(chan struct{})
	go func() {
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: orders\r\nTransfer-Encoding: chunked\r\n\r\n")
		for i := range chunks {
			_, _ = fmt.Fprintf(c, "%x\r\n%s\r\n", chunk, bytes.Repeat([]byte("x"), chunk))
			if i == chunks/2 {
				<-answered
			}
		}
		_, _ = io.WriteString(c, "0\r\n\r\n")
	}()
	br := bufio.NewReader(c)
	expectHead(t, br, "HTTP/1.1 200 OK\r\n", 2)
	close(answered)
	if n := <-got; n < chunk*chunks {
		t.Errorf("the origin got %d bytes, want at least %d", n, chunk*chunks)
	}
	_, _ = io.WriteString(c, "GET /x HTTP/1.1\r\nHost: nobody\r\n\r\n")
	expectHead(t, br, "HTTP/1.1 404 ", 0)
}

// TestEarlyAnswerEndsUpload: an origin that answers and leaves, in the middle of a body, costs the client nothing: the
// rest of its body is passed over, and what stands behind it is the next request.
func TestEarlyAnswerEndsUpload(t *testing.T) {
	leave := make(chan struct{})
	left := make(chan struct{})
	origin := newOrigin(t, func(nc *net.TCPConn) {
		readHead(bufio.NewReader(nc))
		_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		<-leave
		_ = nc.SetLinger(0)
		_ = nc.Close()
		close(left)
	})
	r := newRig(t, setup{config: plainConfig, origins: []string{origin}})
	c := r.dial()
	br := bufio.NewReader(c)
	const chunk = "5\r\nhello\r\n"
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: orders\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk)
	expectHead(t, br, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", 2)
	close(leave)
	<-left
	for range 20 { // the first of them ends the upload
		if _, err := io.WriteString(c, chunk); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	_, _ = io.WriteString(c, "0\r\n\r\nGET /x HTTP/1.1\r\nHost: nobody\r\n\r\n")
	expectHead(t, br, "HTTP/1.1 404 ", 0)
}

// peek waits for bytes and returns those that are at hand.
func peek(br *bufio.Reader) []byte {
	_, _ = br.Peek(1)
	b, _ := br.Peek(br.Buffered())
	return b
}

// TestOriginLeavesUpload (H1-ER-009): an origin that ends the connection in the middle of a body, without an answer, is
// at fault, not the client.
func TestOriginLeavesUpload(t *testing.T) {
	for name, leave := range map[string]func(*net.TCPConn){
		"RST": func(nc *net.TCPConn) { _ = nc.SetLinger(0) },
		"FIN": func(nc *net.TCPConn) {
			_ = nc.CloseWrite()
			_, _ = io.Copy(io.Discard, nc)
		},
	} {
		for _, size := range []int{20_000, 50_000_000} { // through a buffer, and by the kernel
			t.Run(fmt.Sprint(name, " ", size), func(t *testing.T) {
				origin := newOrigin(t, func(nc *net.TCPConn) {
					br := bufio.NewReader(nc)
					readHead(br)
					_, _ = io.CopyN(io.Discard, br, int64(min(size/2, 200_000)))
					leave(nc)
				})
				r := newRig(t, setup{config: plainConfig, origins: []string{origin}})
				c := r.dial()
				go func() {
					_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: orders\r\nContent-Length: %d\r\n\r\n", size)
					_, _ = c.Write(make([]byte, min(size-1, 1<<20)))
				}()
				expectHead(t, bufio.NewReader(c), "HTTP/1.1 502 ", 0)
			})
		}
	}
}

// TestPipelinedBehindUpload (H1-ER-008): what stands behind a large body is the next request.
func TestPipelinedBehindUpload(t *testing.T) {
	origin := newOrigin(t, func(nc *net.TCPConn) {
		br := bufio.NewReader(nc)
		for {
			head := readHead(br)
			if head == "" {
				return
			}
			if strings.HasPrefix(head, "POST") {
				_, _ = io.CopyN(io.Discard, br, 300_000)
			}
			_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	r := newRig(t, setup{config: plainConfig, origins: []string{origin}})
	c := r.dial()
	go func() {
		_, _ = io.WriteString(c, "POST /a HTTP/1.1\r\nHost: orders\r\nContent-Length: 300000\r\n\r\n")
		_, _ = c.Write(append(make([]byte, 300_000), "GET /b HTTP/1.1\r\nHost: orders\r\n\r\n"...))
	}()
	br := bufio.NewReader(c)
	expectHead(t, br, "HTTP/1.1 200 OK\r\n", 2)
	expectHead(t, br, "HTTP/1.1 200 OK\r\n", 2)
}

// TestEmptyLines (RFC 9112 2.2): empty lines behind a request leave the connection idle; a few before the next are passed
// over, and more than a few are refused.
func TestEmptyLines(t *testing.T) {
	const wait = 300 * time.Millisecond
	r := newRig(t, setup{
		config: plainConfig, origins: []string{newOrigin(t, steady(0, []byte(lengthAnswer)))},
		limits: func(l *h1.Limits) { l.HeaderTimeout = wait },
	})
	c := r.dial()
	br := bufio.NewReader(c)
	send := func(s string) {
		t.Helper()
		if _, err := io.WriteString(c, s); err != nil {
			t.Fatal(err)
		}
	}
	for _, lines := range []int{0, 1, 2, 8} {
		send(plainRequest)
		expectHead(t, br, "HTTP/1.1 200 OK\r\n", 11)
		send(strings.Repeat("\r\n", lines))
		_ = c.SetReadDeadline(time.Now().Add(2 * wait)) // longer than a head may take
		if b, err := br.Peek(1); len(b) > 0 || errors.Is(err, io.EOF) {
			t.Fatalf("behind %d empty lines: %q, %v", lines, readHead(br), err)
		}
		br.Reset(c)
		_ = c.SetReadDeadline(time.Now().Add(patience))
	}
	send("\r")
	send("\n" + plainRequest + "\r\n" + plainRequest)
	expectHead(t, br, "HTTP/1.1 200 OK\r\n", 11)
	expectHead(t, br, "HTTP/1.1 200 OK\r\n", 11)
	send(strings.Repeat("\r\n", 9) + plainRequest)
	expectHead(t, br, "HTTP/1.1 400 ", 0)
}

// TestNamedRequestID: a client that has its request id dropped on the way gets one of ours.
func TestNamedRequestID(t *testing.T) {
	heads := make(chan string, 1)
	origin := newOrigin(t, func(nc *net.TCPConn) {
		heads <- readHead(bufio.NewReader(nc))
		_, _ = io.WriteString(nc, lengthAnswer)
	})
	r := newRig(t, setup{config: plainConfig, origins: []string{origin}})
	c := r.dial()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: orders\r\nX-Request-Id: named-one\r\nConnection: x-request-id\r\n\r\n")
	if head := <-heads; strings.Count(head, "X-Request-Id: ") != 1 || strings.Contains(head, "named-one") {
		t.Errorf("the origin got %q", head)
	}
}

// TestTunnelBothEnded (WS-014, TC-015): what is on its way when both sides have said their last still arrives.
func TestTunnelBothEnded(t *testing.T) {
	const size = 8 << 20
	read, got := make(chan struct{}), make(chan int64, 1)
	origin := newOrigin(t, func(nc *net.TCPConn) {
		br := bufio.NewReader(nc)
		readHead(br)
		_, _ = io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n")
		_ = nc.CloseWrite()
		<-read
		n, err := io.Copy(io.Discard, br)
		if err != nil {
			t.Error(err)
		}
		got <- n
	})
	r := newRig(t, setup{config: plainConfig, origins: []string{origin}})
	c := r.dial()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: orders\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n")
	br := bufio.NewReader(c)
	expectHead(t, br, "HTTP/1.1 101 ", 0)
	if b, err := br.ReadByte(); !errors.Is(err, io.EOF) {
		t.Fatalf("%q, %v", b, err)
	}
	go func() {
		_, _ = c.Write(make([]byte, size))
		_ = c.CloseWrite()
	}()
	time.AfterFunc(200*time.Millisecond, func() { close(read) }) // all buffers are full by then
	if n := <-got; n != size {
		t.Errorf("%d bytes, want %d", n, size)
	}
}
