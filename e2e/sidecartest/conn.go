package sidecartest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// patience bounds what is to happen soon: the start and the end of a process, and everything that is done on a Conn, unless its
// deadline is moved.
const patience = 20 * time.Second

// Conn is one end of a TCP connection that speaks HTTP/1 octet by octet, or anything else.
type Conn struct {
	*net.TCPConn
	R *bufio.Reader
}

// NewConn wraps a connection.
func NewConn(c net.Conn) *Conn {
	_ = c.SetDeadline(time.Now().Add(patience))
	return &Conn{c.(*net.TCPConn), bufio.NewReader(c)}
}

// Dial connects to an address. The test's end closes the connection.
func Dial(t testing.TB, address string) *Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return NewConn(c)
}

// Send writes a text. It fails when the peer is gone.
func (c *Conn) Send(format string, args ...any) error {
	_, err := fmt.Fprintf(c, format, args...)
	return err
}

// Reset closes the connection with a RST.
func (c *Conn) Reset() {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// Ask sends a request of the client's side and returns its final response. It fails the test when there is none.
func (c *Conn) Ask(t testing.TB, format string, args ...any) *Message {
	t.Helper()
	request := fmt.Sprintf(format, args...)
	_ = c.SetDeadline(time.Now().Add(patience))
	if err := c.Send("%s", request); err != nil {
		t.Fatalf("sending the request: %v", err)
	}
	method, _, _ := strings.Cut(request, " ")
	return c.Answer(t, method)
}

// Answer returns the final response to a request that was sent with a method. It fails the test when there is none.
func (c *Conn) Answer(t testing.TB, method string) *Message {
	t.Helper()
	for {
		m, err := c.Response(method)
		if err != nil {
			t.Fatalf("reading the response: %v (so far %+v)", err, m)
		}
		if m.Status() >= 200 || m.Status() == 101 {
			return m
		}
	}
}

// Closed fails the test unless the peer ends the connection, with a FIN and without another octet.
func (c *Conn) Closed(t testing.TB, within time.Duration) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(within))
	rest, err := io.ReadAll(c.R)
	if err != nil {
		t.Errorf("the connection is not closed: %v", err)
	}
	if len(rest) > 0 {
		t.Errorf("before the end of the connection came %q", rest)
	}
}

// Expect reads as many octets as want has and fails the test when they differ.
func (c *Conn) Expect(t testing.TB, want string) {
	t.Helper()
	b := make([]byte, len(want))
	n, err := io.ReadFull(c.R, b)
	if err != nil || string(b) != want {
		t.Fatalf("read %q (%v), want %q", b[:n], err, want)
	}
}

// Message is a request or a response as it stood on the wire.
type Message struct {
	Start    string   // the first line
	Fields   []string // the lines of the head, as they were
	Body     []byte
	Trailers []string
	Chunked  bool
}

// Status returns the status code of a response.
func (m *Message) Status() int {
	parts := strings.SplitN(m.Start, " ", 3)
	if len(parts) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(parts[1])
	return n
}

// Method returns the method of a request.
func (m *Message) Method() string {
	method, _, _ := strings.Cut(m.Start, " ")
	return method
}

// Target returns the target of a request.
func (m *Message) Target() string {
	parts := strings.SplitN(m.Start, " ", 3)
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}

// Get returns the value of the first field of a name, whatever its case, or nothing.
func (m *Message) Get(name string) string { return lookup(m.Fields, name) }

// Has reports whether there is a field of a name.
func (m *Message) Has(name string) bool {
	for _, f := range m.Fields {
		if n, _, _ := strings.Cut(f, ":"); strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// Trailer returns the value of a trailer field.
func (m *Message) Trailer(name string) string { return lookup(m.Trailers, name) }

func lookup(fields []string, name string) string {
	for _, f := range fields {
		if n, v, _ := strings.Cut(f, ":"); strings.EqualFold(n, name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Head reads a head and nothing of the body.
func (c *Conn) Head() (*Message, error) {
	m := &Message{}
	for {
		line, err := c.R.ReadString('\n')
		if err != nil {
			if line == "" && m.Start == "" {
				return nil, err
			}
			return m, fmt.Errorf("in the head, after %q: %w", line, err)
		}
		line, ok := strings.CutSuffix(line, "\r\n")
		switch {
		case !ok:
			return m, fmt.Errorf("line %q ends without CR", line)
		case m.Start == "" && line == "":
			return m, errors.New("an empty line instead of a head")
		case m.Start == "":
			m.Start = line
		case line == "":
			return m, nil
		default:
			m.Fields = append(m.Fields, line)
		}
	}
}

// Request reads a request with its body.
func (c *Conn) Request() (*Message, error) {
	m, err := c.Head()
	if err != nil {
		return m, err
	}
	return m, c.body(m, false)
}

// Response reads a response, interim ones included, to a request with a method, with its body.
func (c *Conn) Response(method string) (*Message, error) {
	m, err := c.Head()
	if err != nil {
		return m, err
	}
	if s := m.Status(); method == "HEAD" || s < 200 || s == 204 || s == 304 || method == "CONNECT" && s < 300 {
		return m, nil
	}
	return m, c.body(m, true)
}

func (c *Conn) body(m *Message, toClose bool) error {
	switch {
	case strings.EqualFold(m.Get("transfer-encoding"), "chunked"):
		m.Chunked = true
		return c.chunks(m)
	case m.Has("content-length"):
		n, err := strconv.Atoi(m.Get("content-length"))
		if err != nil {
			return err
		}
		m.Body = make([]byte, n)
		got, err := io.ReadFull(c.R, m.Body)
		m.Body = m.Body[:got]
		return err
	case toClose:
		var err error
		m.Body, err = io.ReadAll(c.R)
		return err
	}
	return nil
}

func (c *Conn) chunks(m *Message) error {
	var body bytes.Buffer
	defer func() { m.Body = body.Bytes() }()
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		size, _, _ := strings.Cut(line, ";")
		n, err := strconv.ParseUint(strings.TrimSpace(size), 16, 62)
		if err != nil {
			return fmt.Errorf("chunk size %q: %w", line, err)
		}
		if n == 0 {
			break
		}
		if _, err := io.CopyN(&body, c.R, int64(n)); err != nil {
			return err
		}
		if end, err := c.line(); err != nil || end != "" {
			return fmt.Errorf("behind a chunk stands %q: %v", end, err)
		}
	}
	for {
		line, err := c.line()
		if err != nil || line == "" {
			return err
		}
		m.Trailers = append(m.Trailers, line)
	}
}

func (c *Conn) line() (string, error) {
	line, err := c.R.ReadString('\n')
	return strings.TrimSuffix(line, "\r\n"), err
}
