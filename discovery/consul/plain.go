package consul

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// plain carries queries over HTTP/1.1 without TLS. It is there for what waits: thousands of queries may be open at a time,
// each with an answer minutes away. net/http spends two goroutines and two buffers on each of those connections; here one
// that waits has neither: the caller's own goroutine waits for the first byte, and buffers are taken when it is there.
type plain struct {
	// Set when it is made, then read-only.
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	maxHeader int64
	idleFor   time.Duration

	readers, writers sync.Pool

	mu   sync.Mutex
	idle map[string][]idleConn // by address, the one used last at the end, guarded by mu
}

type idleConn struct {
	net.Conn
	since time.Time
}

// serves reports whether a request may be made here: it must be one that can be sent again without harm, as the server
// may have closed a connection that was idle.
func (p *plain) serves(r *http.Request) bool {
	return r.URL.Scheme == "http" && r.Method == http.MethodGet && (r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0)
}

// RoundTrip implements http.RoundTripper.
func (p *plain) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		conn, err := p.connect(r)
		if err != nil {
			return nil, err
		}
		resp, err := p.exchange(r, conn)
		if err == nil {
			return resp, nil
		}
		_ = conn.Close()
		if ctxErr := r.Context().Err(); ctxErr != nil {
			return nil, ctxErr
		}
		if !conn.used || !errors.Is(err, errUnanswered) || r.URL.Query().Has("index") {
			// A query that waits is not continued elsewhere: behind the address may be another history by now.
			return nil, err
		}
	}
}

// errUnanswered says that a connection ended before an answer began.
var errUnanswered = errors.New("the connection was closed before an answer")

// connect returns a connection that nobody else uses.
func (p *plain) connect(r *http.Request) (*plainConn, error) {
	address := r.URL.Host
	if r.URL.Port() == "" {
		address = net.JoinHostPort(r.URL.Hostname(), "80")
	}
	if c := p.take(address); c != nil {
		return &plainConn{Conn: c, address: address, used: true}, nil
	}
	c, err := p.dial(r.Context(), "tcp", address)
	if err != nil {
		return nil, err
	}
	return &plainConn{Conn: c, address: address}, nil
}

// exchange sends a request and reads the head of its answer. The context's end interrupts both, and the body too.
func (p *plain) exchange(r *http.Request, conn *plainConn) (*http.Response, error) {
	stop := context.AfterFunc(r.Context(), func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	failed := func(err error) (*http.Response, error) {
		stop()
		return nil, err
	}
	if err := p.send(r, conn); err != nil {
		return failed(errors.Join(errUnanswered, err))
	}
	if err := conn.await(); err != nil {
		return failed(errors.Join(errUnanswered, err))
	}
	from, _ := p.readers.Get().(*bufio.Reader)
	if from == nil {
		from = bufio.NewReader(nil)
	}
	from.Reset(conn)
	conn.left = p.maxHeader
	resp, err := http.ReadResponse(from, r)
	if err != nil {
		p.readers.Put(from)
		return failed(err)
	}
	conn.left = 1<<63 - 1
	resp.Body = &plainBody{ReadCloser: resp.Body, plain: p, conn: conn, from: from, stop: stop, keep: !resp.Close}
	return resp, nil
}

func (p *plain) send(r *http.Request, conn net.Conn) error {
	to, _ := p.writers.Get().(*bufio.Writer)
	if to == nil {
		to = bufio.NewWriter(nil)
	}
	to.Reset(conn)
	err := r.Write(to)
	if err == nil {
		err = to.Flush()
	}
	to.Reset(nil)
	p.writers.Put(to)
	return err
}

// take returns a connection that nobody uses, nil where there is none.
func (p *plain) take(address string) net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pruneLocked(address, time.Now())
	list := p.idle[address]
	if len(list) == 0 {
		return nil
	}
	last := len(list) - 1
	c := list[last]
	list[last] = idleConn{}
	p.idle[address] = list[:last]
	return c.Conn
}

// put keeps a connection for the next query.
func (p *plain) put(c *plainConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle == nil {
		p.idle = make(map[string][]idleConn)
	}
	now := time.Now()
	p.idle[c.address] = append(p.idle[c.address], idleConn{Conn: c.Conn, since: now})
	p.pruneLocked(c.address, now)
}

// pruneLocked closes what nobody used for long.
func (p *plain) pruneLocked(address string, now time.Time) {
	list, n := p.idle[address], 0
	for n < len(list) && now.Sub(list[n].since) > p.idleFor {
		_ = list[n].Close()
		n++
	}
	if n > 0 {
		p.idle[address] = append([]idleConn(nil), list[n:]...)
	}
}

// closeIdle closes what nobody uses.
func (p *plain) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, list := range p.idle {
		for _, c := range list {
			_ = c.Close()
		}
	}
	p.idle = nil
}

// plainConn is a connection of one exchange.
type plainConn struct {
	net.Conn
	address string
	used    bool // by an exchange before
	first   byte // of the answer, when has
	has     bool
	left    int64 // bytes that may still be read
}

// await waits for the first byte.
func (c *plainConn) await() error {
	var b [1]byte
	for {
		n, err := c.Conn.Read(b[:])
		if n == 1 {
			c.first, c.has = b[0], true
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Read implements io.Reader.
func (c *plainConn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if c.has {
		b[0], c.has = c.first, false
		return 1, nil
	}
	if c.left <= 0 {
		return 0, &Error{Kind: TooLarge, Text: "the head of the answer is too long"}
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	return n, err
}

// plainBody is the body of an answer. Read to its end, it gives the connection back.
type plainBody struct {
	io.ReadCloser
	plain *plain
	conn  *plainConn // nil once it is given back or closed
	from  *bufio.Reader
	stop  func() bool
	keep  bool
}

// Read implements io.Reader.
func (b *plainBody) Read(p []byte) (int, error) {
	if b.conn == nil {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.done(err == io.EOF) //nolint:errorlint // the body's own end
	}
	return n, err
}

// Close implements io.Closer.
func (b *plainBody) Close() error {
	b.done(false)
	return nil
}

func (b *plainBody) done(whole bool) {
	conn := b.conn
	if conn == nil {
		return
	}
	alive := b.stop()
	keep := whole && b.keep && alive && b.from.Buffered() == 0
	b.conn = nil
	b.from.Reset(nil)
	b.plain.readers.Put(b.from)
	b.from = nil
	if keep {
		b.plain.put(conn)
		return
	}
	_ = conn.Close()
}
