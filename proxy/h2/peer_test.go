package h2_test

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

// peer is one end of a connection, frame by frame: a client, or an origin.
type peer struct {
	t  testing.TB
	nc net.Conn
	in *http2.Framer

	mu    sync.Mutex // guards what is sent
	out   *http2.Framer
	enc   *hpack.Encoder
	block bytes.Buffer

	greedy   bool // gives no credit for DATA
	deaf     bool // acknowledges no PING
	scripted bool // want ends the script, not the test
}

func newPeer(t testing.TB, nc net.Conn) *peer {
	p := &peer{t: t, nc: nc, in: http2.NewFramer(nil, nc), out: http2.NewFramer(nc, nil)}
	p.in.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.in.MaxHeaderListSize = 1 << 20
	p.out.AllowIllegalWrites = true
	p.enc = hpack.NewEncoder(&p.block)
	_ = nc.SetDeadline(time.Now().Add(patience))
	return p
}

// dial2 connects a client that has sent its preface and settings.
func (r *rig) dial2(settings ...http2.Setting) *peer {
	r.t.Helper()
	nc, err := net.Dial("tcp", r.address())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = nc.Close() })
	p := newPeer(r.t, nc)
	_, _ = io.WriteString(nc, http2.ClientPreface)
	_ = p.out.WriteSettings(settings...)
	return p
}

// serve2 runs an origin whose connections are served by serve, once their preface was read.
func serve2(t testing.TB, settings []http2.Setting, serve func(*peer)) string {
	t.Helper()
	return serveConns(t, func(nc net.Conn) {
		if b := make([]byte, len(http2.ClientPreface)); readFull(nc, b) != nil {
			return
		}
		p := newPeer(t, nc)
		_ = p.out.WriteSettings(settings...)
		p.scripted = true
		defer func() {
			if err := recover(); err != nil && err != errScript { //nolint:errorlint // it is thrown as it is
				panic(err)
			}
		}()
		serve(p)
	})
}

func readFull(nc net.Conn, b []byte) error {
	_, err := io.ReadFull(nc, b)
	return err
}

// serveConns runs an origin; the test's end cuts its connections and waits for their scripts.
func serveConns(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	ln := listenTCP(t)
	cs := new(conns)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			cs.add(nc)
			done.Go(func() {
				serve(nc)
				_ = nc.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		cs.mu.Lock()
		for _, nc := range cs.list {
			_ = nc.Close()
		}
		cs.mu.Unlock()
		done.Wait()
	})
	return ln.Addr().String()
}

// get is the pseudo-fields of a GET, post those of a POST, grpc those of a call.
var (
	get  = []string{":method", "GET", ":scheme", "http", ":path", "/", ":authority", "svc"}
	post = []string{":method", "POST", ":scheme", "http", ":path", "/", ":authority", "svc"}
	grpc = []string{
		":method", "POST", ":scheme", "http", ":path", "/t.S/M", ":authority", "svc", "te", "trailers",
		"content-type", "application/grpc",
	}
)

func with(fields []string, more ...string) []string {
	return append(append([]string(nil), fields...), more...)
}

// headers sends a header block: names and values in turn.
func (p *peer) headers(id uint32, end bool, fields ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = p.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	p.raw(id, end, p.block.Bytes())
}

// raw sends a header block as it is, in frames as large as may be.
func (p *peer) raw(id uint32, end bool, block []byte) {
	n := min(len(block), 16384)
	_ = p.out.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: block[:n], EndStream: end, EndHeaders: n == len(block),
	})
	for block = block[n:]; len(block) > 0; block = block[n:] {
		n = min(len(block), 16384)
		_ = p.out.WriteContinuation(id, n == len(block), block[:n])
	}
}

func (p *peer) data(id uint32, end bool, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.WriteData(id, end, b)
}

func (p *peer) reset(id uint32, code http2.ErrCode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.WriteRSTStream(id, code)
}

func (p *peer) goAway(last uint32, code http2.ErrCode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.WriteGoAway(last, code, nil)
}

func (p *peer) credit(id, n uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.WriteWindowUpdate(id, n)
}

func (p *peer) settings(list ...http2.Setting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.WriteSettings(list...)
}

func (p *peer) ping() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.WritePing(false, [8]byte{1})
}

// event is something that came.
type event struct {
	kind   http2.FrameType
	id     uint32
	end    bool
	ack    bool
	fields []hpack.HeaderField
	data   []byte
	code   http2.ErrCode
	last   uint32
	n      uint32 // of WINDOW_UPDATE
	list   []http2.Setting
}

// get returns the value of a field.
func (e event) get(name string) string {
	for _, f := range e.fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

func (e event) has(name string) bool {
	for _, f := range e.fields {
		if f.Name == name {
			return true
		}
	}
	return false
}

// String tells what scripts compare: HEADERS by their status or path, trailers by what is in them.
func (e event) String() string {
	s := fmt.Sprintf("%v#%d", e.kind, e.id)
	switch e.kind {
	case http2.FrameHeaders:
		switch {
		case e.has(":status"):
			s += " " + e.get(":status")
		case e.has(":method"):
			s += " " + e.get(":method") + " " + e.get(":path")
		default:
			for _, f := range e.fields {
				s += " " + f.Name + "=" + f.Value
			}
		}
	case http2.FrameData:
		s += fmt.Sprintf(" %d", len(e.data))
	case http2.FrameRSTStream:
		s = fmt.Sprintf("RST#%d %v", e.id, e.code)
	case http2.FrameGoAway:
		s = fmt.Sprintf("GOAWAY %d %v", e.last, e.code)
	}
	if e.end {
		s += " ES"
	}
	return s
}

// frame reads the next frame, whatever it is, and answers SETTINGS, PING and DATA as a peer should.
func (p *peer) frame() (event, error) {
	f, err := p.in.ReadFrame()
	if err != nil {
		return event{}, err
	}
	h := f.Header()
	e := event{kind: h.Type, id: h.StreamID}
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		e.end, e.fields = f.StreamEnded(), append([]hpack.HeaderField(nil), f.Fields...)
	case *http2.DataFrame:
		e.end, e.data = f.StreamEnded(), append([]byte(nil), f.Data()...)
		if n := h.Length; n > 0 && !p.greedy {
			p.credit(0, n)
			p.credit(e.id, n)
		}
	case *http2.RSTStreamFrame:
		e.code = f.ErrCode
	case *http2.GoAwayFrame:
		e.code, e.last = f.ErrCode, f.LastStreamID
		e.data = append(e.data, f.DebugData()...)
	case *http2.WindowUpdateFrame:
		e.n = f.Increment
	case *http2.PingFrame:
		if e.ack = f.IsAck(); !e.ack && !p.deaf {
			p.mu.Lock()
			_ = p.out.WritePing(true, f.Data)
			p.mu.Unlock()
		}
	case *http2.SettingsFrame:
		if e.ack = f.IsAck(); !e.ack {
			_ = f.ForeachSetting(func(s http2.Setting) error {
				e.list = append(e.list, s)
				return nil
			})
			p.mu.Lock()
			_ = p.out.WriteSettingsAck()
			p.mu.Unlock()
		}
	}
	return e, nil
}

// next reads the next frame that is about a message or an end, and returns the end of the connection as an error.
func (p *peer) next() (event, error) {
	for {
		e, err := p.frame()
		if err != nil {
			return e, err
		}
		switch e.kind {
		case http2.FrameHeaders, http2.FrameData, http2.FrameRSTStream, http2.FrameGoAway:
			return e, nil
		}
	}
}

// want fails the test unless the next event is as described, and returns it.
func (p *peer) want(what string) event {
	p.t.Helper()
	e, err := p.next()
	switch {
	case err != nil:
		p.t.Errorf("%v instead of %s", err, what)
	case e.String() != what:
		p.t.Errorf("%v %v instead of %s", e, e.fields, what)
	default:
		return e
	}
	if !p.scripted {
		p.t.FailNow()
	}
	panic(errScript)
}

var errScript = errors.New("the script failed")

// rest reads until the connection ends and returns the frames seen, each kind with its number.
func (p *peer) rest() map[string]int {
	seen := map[string]int{}
	for {
		e, err := p.next()
		var ne net.Error
		switch {
		case errors.As(err, &ne) && ne.Timeout():
			seen["hangs"]++
			return seen
		case errors.Is(err, io.EOF):
			seen["end"]++
			return seen
		case err != nil:
			seen["reset"]++ // what was not read is lost
			return seen
		}
		s := e.String()
		if e.kind == http2.FrameGoAway {
			s = "GOAWAY " + e.code.String()
		} else if i := strings.IndexByte(s, '#'); i >= 0 {
			_, tail, _ := strings.Cut(s, " ")
			s = s[:i] + " " + tail
		}
		seen[s]++
	}
}

// answer reads one exchange's frames until its end.
func (p *peer) answer(id uint32) (head event, body []byte, trailers event, err error) {
	for {
		e, err := p.next()
		switch {
		case err != nil:
			return head, body, trailers, err
		case e.kind == http2.FrameGoAway && e.code == http2.ErrCodeNo, e.id != id && e.kind != http2.FrameGoAway:
			continue
		case e.kind == http2.FrameData:
			body = append(body, e.data...)
		case e.kind == http2.FrameHeaders && !head.has(":status"):
			head = e
		case e.kind == http2.FrameHeaders && head.get(":status")[0] == '1':
			head = e
		case e.kind == http2.FrameHeaders:
			trailers = e
		default:
			return head, body, trailers, errors.New(e.String())
		}
		if e.end {
			return head, body, trailers, nil
		}
	}
}

// moment waits a moment: what was sent so far shall arrive by itself.
func (p *peer) moment() { <-time.After(100 * time.Millisecond) }

// together sends what send does in one piece.
func (p *peer) together(send func()) {
	var all bytes.Buffer
	one := http2.NewFramer(&all, nil)
	one.AllowIllegalWrites = true
	p.mu.Lock()
	before := p.out
	p.out = one
	p.mu.Unlock()
	send()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = before
	_, _ = p.nc.Write(all.Bytes())
}

// dial1 connects a raw client.
func (r *rig) dial1() net.Conn {
	r.t.Helper()
	nc, err := net.Dial("tcp", r.address())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	return nc
}

// after is a little later: slower than a rate that counts as progress, oftener than any time limit of a test.
func (p *peer) after() <-chan time.Time { return time.After(50 * time.Millisecond) }
