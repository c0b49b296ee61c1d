package sidecartest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Peer is one end of a connection of HTTP/2, frame by frame. It acknowledges SETTINGS and PING by itself.
type Peer struct {
	Conn   net.Conn
	Pings  int  // that came
	Greedy bool // gives no credit for DATA

	in    *http2.Framer
	mu    sync.Mutex // guards what is sent
	out   *http2.Framer
	enc   *hpack.Encoder
	block bytes.Buffer
}

func newPeer(c net.Conn) *Peer {
	p := &Peer{Conn: c, in: http2.NewFramer(nil, c), out: http2.NewFramer(c, nil)}
	p.in.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.in.MaxHeaderListSize = 1 << 20
	p.out.AllowIllegalWrites = true
	p.enc = hpack.NewEncoder(&p.block)
	_ = c.SetDeadline(time.Now().Add(patience))
	return p
}

// DialHTTP2 connects a client that has said its preface and settings. The test's end closes the connection.
func DialHTTP2(t testing.TB, address string, settings ...http2.Setting) *Peer {
	t.Helper()
	c := Dial(t, address)
	p := newPeer(c.TCPConn)
	_, _ = io.WriteString(c, http2.ClientPreface)
	_ = p.out.WriteSettings(settings...)
	return p
}

// ServeHTTP2 starts an origin that calls serve for each connection whose preface has come.
func ServeHTTP2(t testing.TB, serve func(*Peer), settings ...http2.Setting) *Origin {
	t.Helper()
	return Serve(t, func(c *Conn) {
		if _, err := io.ReadFull(c.TCPConn, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		p := newPeer(c.TCPConn)
		_ = p.out.WriteSettings(settings...)
		serve(p)
	})
}

// Headers sends a header block: names and values in turn.
func (p *Peer) Headers(id uint32, end bool, fields ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = p.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	b := p.block.Bytes()
	n := min(len(b), 16384)
	_ = p.out.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b[:n], EndStream: end, EndHeaders: n == len(b)})
	for b = b[n:]; len(b) > 0; b = b[n:] {
		n = min(len(b), 16384)
		_ = p.out.WriteContinuation(id, n == len(b), b[:n])
	}
}

// Ask sends a request without a body.
func (p *Peer) Ask(id uint32, method, host, path string, more ...string) {
	p.Headers(id, true, append([]string{":method", method, ":scheme", "http", ":path", path, ":authority", host}, more...)...)
}

// Begin sends the head of a request whose body is to come.
func (p *Peer) Begin(id uint32, method, host, path string, more ...string) {
	p.Headers(id, false, append([]string{":method", method, ":scheme", "http", ":path", path, ":authority", host}, more...)...)
}

// Call sends a call of gRPC with one empty message.
func (p *Peer) Call(id uint32, host, path string, more ...string) {
	p.Begin(id, "POST", host, path, append([]string{"te", "trailers", "content-type", "application/grpc"}, more...)...)
	p.Data(id, true, make([]byte, 5))
}

// Data sends a DATA frame.
func (p *Peer) Data(id uint32, end bool, b []byte) {
	p.Write(func(f *http2.Framer) error { return f.WriteData(id, end, b) })
}

// Write sends any frame.
func (p *Peer) Write(send func(*http2.Framer) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = send(p.out) // whoever reads learns that the connection is gone
}

// Frame is a frame that came.
type Frame struct {
	http2.FrameHeader
	Fields []hpack.HeaderField
	Data   []byte
	Code   http2.ErrCode
	Last   uint32
}

// End reports whether the frame ends its stream in good order.
func (f Frame) End() bool {
	return (f.Type == http2.FrameHeaders || f.Type == http2.FrameData) && f.Flags&http2.FlagDataEndStream != 0
}

// Get returns the value of a field, or nothing.
func (f Frame) Get(name string) string {
	for _, h := range f.Fields {
		if h.Name == name {
			return h.Value
		}
	}
	return ""
}

// Next returns the next frame but for SETTINGS, PING and WINDOW_UPDATE.
func (p *Peer) Next() (Frame, error) {
	for {
		fr, err := p.in.ReadFrame()
		if err != nil {
			return Frame{}, err
		}
		f := Frame{FrameHeader: fr.Header()}
		switch fr := fr.(type) {
		case *http2.MetaHeadersFrame:
			f.Fields = append(f.Fields, fr.Fields...)
		case *http2.DataFrame:
			f.Data = bytes.Clone(fr.Data())
			if !p.Greedy && f.Length > 0 {
				p.Credit(0, f.Length)
				p.Credit(f.StreamID, f.Length)
			}
		case *http2.RSTStreamFrame:
			f.Code = fr.ErrCode
		case *http2.GoAwayFrame:
			f.Code, f.Last = fr.ErrCode, fr.LastStreamID
		case *http2.PingFrame:
			if !fr.IsAck() {
				p.Pings++
				p.Write(func(out *http2.Framer) error { return out.WritePing(true, fr.Data) })
			}
			continue
		case *http2.SettingsFrame:
			if !fr.IsAck() {
				p.Write(func(out *http2.Framer) error { return out.WriteSettingsAck() })
			}
			continue
		default:
			continue
		}
		return f, nil
	}
}

// Credit sends a WINDOW_UPDATE.
func (p *Peer) Credit(id, n uint32) {
	p.Write(func(f *http2.Framer) error { return f.WriteWindowUpdate(id, n) })
}

// Stream is what came on a stream until its end.
type Stream struct {
	Status   string
	Head     Frame
	Interims []string
	Body     []byte
	Trailers Frame
}

var errReset = errors.New("reset")

// Answer reads until a stream ends and passes over the others. A reset is an error that names its code.
func (p *Peer) Answer(id uint32) (Stream, error) {
	var s Stream
	for {
		f, err := p.Next()
		if err != nil {
			return s, err
		}
		if f.Type == http2.FrameGoAway && f.Code != http2.ErrCodeNo {
			return s, fmt.Errorf("GOAWAY %v", f.Code)
		}
		if f.StreamID != id {
			continue
		}
		switch {
		case f.Type == http2.FrameRSTStream:
			return s, fmt.Errorf("%w: %v", errReset, f.Code)
		case f.Type == http2.FrameData:
			s.Body = append(s.Body, f.Data...)
		case strings.HasPrefix(f.Get(":status"), "1"):
			s.Interims = append(s.Interims, f.Get(":status"))
		case s.Status == "":
			s.Status, s.Head = f.Get(":status"), f
		default:
			s.Trailers = f
		}
		if f.End() {
			return s, nil
		}
	}
}
