package h2_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
)

// blocks encodes a header block twice: as it is sent first, and as it is sent when its fields are indexed.
func blocks(fields ...string) (first, then []byte) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for range 2 {
		first, then = then, nil
		b.Reset()
		for i := 0; i < len(fields); i += 2 {
			_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		then = bytes.Clone(b.Bytes())
	}
	return first, then
}

// quick is one end of a connection that allocates nothing for what it repeats.
type quick struct {
	nc   net.Conn
	in   [64 << 10]byte
	r, w int
	out  []byte
	owed int
}

func (q *quick) need(n int) error {
	if q.w-q.r >= n {
		return nil
	}
	q.w = copy(q.in[:], q.in[q.r:q.w])
	q.r = 0
	for q.w < n {
		m, err := q.nc.Read(q.in[q.w:])
		if err != nil {
			return err
		}
		q.w += m
	}
	return nil
}

// frame reads the next frame; its payload is valid until the following one.
func (q *quick) frame() (k http2.FrameType, flags http2.Flags, id uint32, payload []byte, err error) {
	if err := q.need(9); err != nil {
		return 0, 0, 0, nil, err
	}
	h := q.in[q.r : q.r+9]
	n := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
	k, flags, id = http2.FrameType(h[3]), http2.Flags(h[4]), binary.BigEndian.Uint32(h[5:])
	if err := q.need(9 + n); err != nil {
		return 0, 0, 0, nil, err
	}
	payload = q.in[q.r+9 : q.r+9+n]
	q.r += 9 + n
	return k, flags, id, payload, nil
}

func (q *quick) add(k http2.FrameType, flags http2.Flags, id uint32, payload []byte) {
	n := len(payload)
	q.out = append(q.out, byte(n>>16), byte(n>>8), byte(n), byte(k), byte(flags))
	q.out = binary.BigEndian.AppendUint32(q.out, id)
	q.out = append(q.out, payload...)
}

func (q *quick) send() error {
	_, err := q.nc.Write(q.out)
	q.out = q.out[:0]
	return err
}

// common answers what is not about messages, and gives back the credit for DATA.
func (q *quick) common(k http2.FrameType, flags http2.Flags, payload []byte) {
	switch {
	case k == http2.FrameSettings && flags&http2.FlagSettingsAck == 0:
		q.add(http2.FrameSettings, http2.FlagSettingsAck, 0, nil)
	case k == http2.FramePing && flags&http2.FlagPingAck == 0:
		q.add(http2.FramePing, http2.FlagPingAck, 0, payload)
	case k == http2.FrameData:
		if q.owed += len(payload); q.owed > 16<<10 {
			q.add(http2.FrameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, uint32(q.owed)))
			q.owed = 0
		}
	}
}

const endOfHeaders = http2.FlagHeadersEndHeaders

// steady2 is an origin that gives the same answer to all requests.
func steady2(t testing.TB, body []byte, trailers ...string) string {
	return serveConns(t, func(nc net.Conn) {
		first, then := blocks(":status", "200", "content-type", "text/plain", "server", "x", "date", "Mon, 02 Jan 2006 15:04:05 GMT")
		end1, end2 := blocks(trailers...)
		q := &quick{nc: nc}
		if _, err := io.ReadFull(nc, q.in[:len(http2.ClientPreface)]); err != nil {
			return
		}
		q.add(http2.FrameSettings, 0, 0, nil)
		for {
			k, flags, id, payload, err := q.frame()
			if err != nil {
				return
			}
			q.common(k, flags, payload)
			if (k == http2.FrameHeaders || k == http2.FrameData) && flags&1 != 0 {
				q.add(http2.FrameHeaders, endOfHeaders, id, first)
				if len(trailers) > 0 {
					q.add(http2.FrameData, 0, id, body)
					q.add(http2.FrameHeaders, endOfHeaders|http2.FlagHeadersEndStream, id, end1)
				} else {
					q.add(http2.FrameData, http2.FlagDataEndStream, id, body)
				}
				first, end1 = then, end2
			}
			if len(q.out) > 0 && q.send() != nil {
				return
			}
		}
	})
}

// steady1 is the same over HTTP/1.
func steady1(t testing.TB, answer string) string {
	return serveConns(t, func(nc net.Conn) {
		buf, n, text := make([]byte, 64<<10), 0, []byte(answer)
		for {
			m, err := nc.Read(buf[n:])
			if err != nil {
				return
			}
			if n += m; !bytes.Contains(buf[:n], []byte("\r\n\r\n")) || bytes.HasPrefix(buf[:n], []byte("POST")) && !bytes.HasSuffix(buf[:n], []byte("17}")) {
				continue
			}
			n = 0
			if _, err := nc.Write(text); err != nil {
				return
			}
		}
	})
}

// TestAllocations holds a steady exchange to no allocation at all.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops items under the race detector")
	}
	more := []string{"user-agent", "test/1.0", "accept", "*/*", "x-tenant", "blue", "cookie", "a=b; c=d"}
	for _, tc := range []struct {
		name, config string
		two          bool
		fields       []string
		body         string
		trailers     []string
	}{
		{"2 to 2", plain2, true, with(get, more...), "", nil},
		{"2 to 2, query", plain2, true, with([]string{":method", "GET", ":scheme", "http", ":path", "/a?b=c", ":authority", "svc"}, more...), "", nil},
		{"2 to 2, body", plain2, true, with(post, more...), `{"order": 17}`, nil},
		{"gRPC", plain2, true, with(grpc, more...), "\x00\x00\x00\x00\x05hello", []string{"grpc-status", "0"}},
		{"2 to 2, all of governance", meshtest.Governed(t, true), true, with(get, more...), "", nil},
		{"gRPC, all of governance", meshtest.Governed(t, true), true, with(grpc, more...), "\x00\x00\x00\x00\x05hello", []string{"grpc-status", "0"}},
		{"2 to 1, all of governance", meshtest.Governed(t, false), false, with(get, more...), "", nil},
		{"2 to 1", plain1, false, with(get, more...), "", nil},
		{"2 to 1, body", plain1, false, with(post, with(more, "content-length", "13")...), `{"order": 17}`, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			origin := ""
			if tc.two {
				origin = steady2(t, []byte("hello world"), tc.trailers...)
			} else {
				origin = steady1(t, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 11\r\n\r\nhello world")
			}
			r := newRig(t, setup{config: tc.config, origins: slices.Repeat([]string{origin}, 4), log: io.Discard})
			q := &quick{nc: r.dial1()}
			q.out = append(q.out, http2.ClientPreface...)
			q.add(http2.FrameSettings, 0, 0, nil)
			first, then := blocks(tc.fields...)
			id, body := uint32(1), []byte(tc.body)
			exchange := func() {
				flags := endOfHeaders
				if len(body) == 0 {
					flags |= http2.FlagHeadersEndStream
				}
				q.add(http2.FrameHeaders, flags, id, first)
				if len(body) > 0 {
					q.add(http2.FrameData, http2.FlagDataEndStream, id, body)
				}
				first = then
				if err := q.send(); err != nil {
					t.Fatal(err)
				}
				for {
					k, flags, at, payload, err := q.frame()
					if err != nil || k == http2.FrameGoAway || k == http2.FrameRSTStream {
						t.Fatal(err, k, at, id, payload)
					}
					q.common(k, flags, payload)
					if at == id && (k == http2.FrameData || k == http2.FrameHeaders) && flags&1 != 0 {
						break
					}
				}
				id += 2
			}
			for range 500 { // pools fill, series come into being
				exchange()
			}
			got := testing.AllocsPerRun(2000, exchange)
			t.Logf("%v allocations per exchange", got)
			if got > 0 {
				t.Errorf("%v allocations per exchange", got)
			}
		})
	}
}
