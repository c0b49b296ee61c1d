package h1

import (
	"net"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// conn implements pipeline.Stream.
var _ pipeline.Stream = (*conn)(nil)

// Body implements pipeline.Stream.
func (c *conn) Body() pipeline.Body { return &c.reqBody }

// InterruptBody implements pipeline.Stream.
func (c *conn) InterruptBody() { c.nc.Interrupt() }

// ResumeBody implements pipeline.Stream.
func (c *conn) ResumeBody() { c.nc.Resume() }

// Guard implements pipeline.Stream.
func (c *conn) Guard(u pipeline.Upstream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.up = u
	return c.gone
}

// Interim implements pipeline.Stream. HTTP/1.0 knows no interim responses (RFC 9110 15.2).
func (c *conn) Interim(r *pipeline.Response) error {
	if c.f.minor == 0 || c.begun {
		return nil
	}
	c.said100 = c.said100 || r.Status == 100
	c.out.ready()
	c.out.buf = appendStatus(c.out.buf, r.Status, r.Reason)
	c.out.buf = appendFramed(c.out.buf, r.Fields, outNone, 0)
	c.out.buf = append(c.out.buf, "\r\n"...)
	return c.out.flush()
}

// Head implements pipeline.Stream.
func (c *conn) Head(r *pipeline.Response, unread bool) error {
	c.begun = true
	c.framing = c.frame(r)
	c.close = c.close || c.framing == outToClose || c.srv.draining.Load() || unread && c.giveUpBody(r) || c.refusesSwitch(r)
	c.out.ready()
	b := appendStatus(c.out.buf, r.Status, r.Reason)
	b = appendFramed(b, r.Fields, c.framing, r.Length)
	switch {
	case r.Status == 101:
		b = append(b, "Connection: Upgrade\r\n"...)
	case r.Status == 426 && c.close:
		b = append(b, "Connection: Upgrade, close\r\n"...)
	case r.Status == 426:
		b = append(b, "Connection: Upgrade\r\n"...)
	case r.NoBody && c.x.Req.Method == "CONNECT" && r.Status < 300:
	case c.close && c.srv.offline.Load() != 0:
		b = append(b, pipeline.OfflineName+": "...)
		b = pipeline.AppendOfflineValue(b, time.Unix(0, c.srv.offline.Load()), time.Now())
		b = append(b, "\r\nConnection: close, "+pipeline.OfflineName+"\r\n"...)
	case c.close:
		b = append(b, "Connection: close\r\n"...)
	case c.f.minor == 0:
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	c.out.buf = append(b, "\r\n"...)
	return c.out.err
}

// giveUpBody reports whether a request body that is still to come is not worth waiting for: the answer refuses it, or the
// client may never send it.
func (c *conn) giveUpBody(r *pipeline.Response) bool {
	return r.Local || r.Status >= 400 || c.x.Req.Expect && !c.said100
}

// refusesSwitch reports whether the client asked for another protocol in vain. What it sent in that already must not be
// taken for requests.
func (c *conn) refusesSwitch(r *pipeline.Response) bool {
	return c.x.Req.Upgrade != "" && r.Status != 101 || c.x.Req.Method == "CONNECT" && r.Status >= 300
}

// frame chooses how the response marks its end.
func (c *conn) frame(r *pipeline.Response) outFraming {
	switch {
	case r.NoBody && r.KeepLength:
		return outKeep
	case r.NoBody:
		return outNone
	case r.Length >= 0:
		return outLength
	case c.f.minor == 0:
		return outToClose
	}
	return outChunked
}

// Write implements pipeline.Stream.
func (c *conn) Write(p []byte) error {
	switch c.framing {
	case outNone, outKeep:
		return c.out.err
	case outChunked:
		return c.out.writeChunk(p)
	}
	return c.out.write(p)
}

// Flush implements pipeline.Stream.
func (c *conn) Flush() error { return c.out.flush() }

// End implements pipeline.Stream.
func (c *conn) End(trailers []pipeline.Field) error {
	if c.framing == outChunked {
		c.out.ready()
		c.out.buf = lastChunk(c.out.buf, trailers)
	}
	err := c.out.flush()
	if c.tunnel && err == nil {
		err = c.nc.CloseWrite()
	}
	return err
}

// RawWriter implements pipeline.Stream.
func (c *conn) RawWriter(n int64) *netio.Conn {
	if c.framing != outLength && c.framing != outToClose || c.out.flush() != nil {
		return nil
	}
	c.out.n.Add(n)
	return c.nc
}

// Abort implements pipeline.Stream: a response that ends without its last chunk, or before its length, is cut short for
// everyone to see; where only the close marks the end, it must be a reset.
func (c *conn) Abort() {
	c.close = true
	if c.framing == outToClose {
		c.nc.Reset()
	}
	c.out.err = net.ErrClosed
}

// Tunnel implements pipeline.Stream.
func (c *conn) Tunnel() (*netio.Conn, []byte) {
	c.tunnel, c.close, c.framing = true, true, outToClose
	c.reqBody.start(&c.in, bodyToClose, 0, false)
	return c.nc, c.in.cur[c.in.r:c.in.w]
}
