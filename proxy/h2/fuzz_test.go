package h2_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

const answering = "services: {svc: {hosts: ['*'], endpoints: ['127.0.0.1:1'], routes: [{match: {path: {prefix: /}}, respond: {status: 200, body: ok}}]}}\n"

// stream is bytes of frames to begin with.
func frames(f func(*http2.Framer)) []byte {
	var b bytes.Buffer
	fr := http2.NewFramer(&b, nil)
	fr.AllowIllegalWrites = true
	f(fr)
	return b.Bytes()
}

var rq = []byte{0x82, 0x86, 0x84, 0x01, 3, 's', 'v', 'c'}

func seeds(f *testing.F) {
	for _, b := range [][]byte{
		frames(func(fr *http2.Framer) {
			_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}, http2.Setting{ID: http2.SettingHeaderTableSize})
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: rq, EndHeaders: true})
			_ = fr.WriteDataPadded(1, true, []byte("x"), []byte{0, 0})
			_ = fr.WriteRSTStream(1, http2.ErrCodeCancel)
			_ = fr.WriteWindowUpdate(0, 100)
			_ = fr.WritePing(false, [8]byte{})
			_ = fr.WriteGoAway(0, http2.ErrCodeNo, nil)
		}),
		frames(func(fr *http2.Framer) {
			_ = fr.WriteSettings()
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true})
			_ = fr.WriteData(1, false, []byte("hello"))
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0, 1, 'a', 1, 'b'}, EndHeaders: true, EndStream: true})
		}),
		frames(func(fr *http2.Framer) {
			_ = fr.WriteSettings()
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: rq[:3]})
			_ = fr.WriteContinuation(1, true, rq[3:])
			_ = fr.WritePriority(1, http2.PriorityParam{StreamDep: 1})
			_ = fr.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: rq, EndHeaders: true})
		}),
	} {
		f.Add(b)
	}
}

// FuzzFrames sends anything behind a preface: the connection ends, or goes on, and nothing panics or stays behind.
func FuzzFrames(f *testing.F) {
	seeds(f)
	r := newRig(f, setup{config: answering})
	f.Fuzz(func(t *testing.T, b []byte) {
		client, server := net.Pipe()
		over := make(chan struct{})
		go func() {
			defer close(over)
			r.server.Serve(netio.New(server), []byte(http2.ClientPreface))
		}()
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(io.Discard, client)
		}()
		_ = client.SetWriteDeadline(time.Now().Add(patience))
		_, err := client.Write(b)
		_ = client.Close()
		<-read
		select {
		case <-over:
		case <-time.After(patience):
			t.Fatal("the connection does not end", err)
		}
	})
}

// FuzzOrigin has an origin answer with anything: the client gets one answer of HTTP/1, be it an error.
func FuzzOrigin(f *testing.F) {
	seeds(f)
	var answer atomic.Pointer[[]byte]
	origin := serveConns(f, func(nc net.Conn) {
		if b := make([]byte, len(http2.ClientPreface)); readFull(nc, b) == nil {
			go func() { _, _ = io.Copy(io.Discard, nc) }()
			_, _ = nc.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0})
			_, _ = nc.Write(*answer.Load())
			_ = nc.(*net.TCPConn).CloseWrite()
			<-time.After(time.Millisecond)
		}
	})
	text := "services: {svc: {protocol: http2, endpoints: [ORIGIN], policy: {timeout: 300ms, breaker: none, outlier: none}}}\n"
	r := newRig(f, setup{config: text, origins: []string{origin}})
	f.Fuzz(func(t *testing.T, b []byte) {
		answer.Store(&b)
		nc, err := net.Dial("tcp", r.address())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nc.Close() }()
		_ = nc.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(nc, "GET / HTTP/1.1\r\nHost: svc\r\n\r\n")
		line, err := bufio.NewReader(nc).ReadString('\n')
		if !strings.HasPrefix(line, "HTTP/1.1 ") && err != io.EOF { //nolint:errorlint // of bufio
			t.Fatalf("%q, %v", line, err)
		}
	})
}

// strictHead reads a head of HTTP/1 as a reader would that forgives nothing, and fails the test at what it should not find.
func strictHead(t *testing.T, r *bufio.Reader) (start string, fields map[string]string) {
	fields = map[string]string{}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return "", nil
		}
		line, ok := strings.CutSuffix(line, "\r\n")
		if !ok || strings.ContainsAny(line, "\r\n\x00") {
			t.Errorf("line %q", line)
			return "", nil
		}
		switch {
		case start == "":
			if start = line; strings.Count(line, " ") != 2 || !strings.HasSuffix(line, " HTTP/1.1") {
				t.Errorf("start line %q", line)
			}
		case line == "":
			return start, fields
		default:
			name, value, ok := strings.Cut(line, ": ")
			name = strings.ToLower(name)
			if _, twice := fields[name]; !ok || twice || name == "" || strings.ContainsAny(name, " \t\"(),/:;<=>?@[\\]{}") {
				t.Errorf("field line %q", line)
			}
			fields[name] = value
		}
	}
}

// TestNoOctetSplitsAMessage (DG-013): whatever octet stands wherever in a field, a request is refused, or comes out as the
// one request that it was.
func TestNoOctetSplitsAMessage(t *testing.T) {
	type seen struct {
		start  string
		fields map[string]string
	}
	got := make(chan seen, 1)
	origin := serveConns(t, func(nc net.Conn) {
		r := bufio.NewReader(nc)
		for {
			start, fields := strictHead(t, r)
			if start == "" {
				return
			}
			got <- seen{start, fields}
			_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	text := "services: {svc: {hosts: ['*'], endpoints: [ORIGIN], policy: {breaker: none, outlier: none}}}\n"
	r := newRig(t, setup{config: text, origins: []string{origin}})
	var c *peer
	id, passed := uint32(1), 0
	step := 1
	if raceEnabled || testing.Short() {
		step = 7
	}
	for _, target := range []string{":method", ":scheme", ":path", ":authority", "name", "value", "cookie", ":protocol"} {
		for where := range 3 {
			for octet := 0; octet < 256; octet += step {
				m := map[string]string{
					":method": "GET", ":scheme": "http", ":path": "/abc", ":authority": "svc.test", "name": "x-abc", "value": "abc",
					"cookie": "a=b",
				}
				if target == ":protocol" {
					m[":method"], m[target] = "CONNECT", "websocket"
				}
				s := m[target]
				at := []int{0, len(s) / 2, len(s)}[where]
				m[target] = s[:at] + string([]byte{byte(octet)}) + s[at:]
				if c == nil || id > 1500 {
					if c != nil {
						_ = c.nc.Close()
					}
					c, id = r.dial2(), 1
				}
				fields := []string{":method", m[":method"], ":scheme", m[":scheme"], ":path", m[":path"], ":authority", m[":authority"]}
				if p, ok := m[":protocol"]; ok {
					fields = append(fields, ":protocol", p)
				}
				c.headers(id, target != ":protocol", append(fields, m["name"], m["value"], "cookie", m["cookie"])...)
				head, _, _, err := c.answer(id)
				id += 2
				what := fmt.Sprintf("%s with %#x at %d", target, octet, at)
				select {
				case q := <-got:
					passed++
					if target == ":protocol" {
						if q.start != "GET /abc HTTP/1.1" || q.fields["upgrade"] != m[target] {
							t.Errorf("%s came as %q", what, q)
						}
					} else if q.start != m[":method"]+" "+strings.Replace(m[":path"], "%bc", "%BC", 1)+" HTTP/1.1" || q.fields["host"] != m[":authority"] ||
						q.fields[m["name"]] != m["value"] || q.fields["cookie"] != m["cookie"] || len(q.fields) > 6 {
						t.Errorf("%s came as %q", what, q)
					}
				default:
					if err == nil && head.get(":status")[0] != '4' {
						t.Errorf("%s: %v", what, head)
					}
				}
			}
		}
	}
	if passed < 100/step {
		t.Errorf("only %d passed", passed)
	}
}
