package sniff

import (
	"bytes"
	"strings"
	"testing"
)

// clientHello is the beginning of a TLS 1.2 record with a ClientHello.
const clientHello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"

func TestDetect(t *testing.T) {
	for _, tc := range []struct {
		id   string
		in   string
		want Protocol
		at   int // how many bytes it takes to tell; 0: all
	}{
		{"SN-001", "GET /x HTTP/1.1\r\n", HTTP1, 5},
		{"SN-001 1.0, LF alone", "POST /x HTTP/1.0\n", HTTP1, 6},
		{"SN-001 absolute form", "GET http://svc.test/ HTTP/1.1\r\n", HTTP1, 0},
		{"SN-001 asterisk form", "OPTIONS * HTTP/1.1\r\n", HTTP1, 0},
		{"SN-001 authority form", "CONNECT svc.test:443 HTTP/1.1\r\n", HTTP1, 0},
		{"SN-001 unknown method", "PURGE /x HTTP/1.1\r\n", HTTP1, 0},
		{"SN-002", "P", More, 0},
		{"SN-002 later", "POST / HTTP/1.1\r\n", HTTP1, 6},
		{"SN-003", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HTTP2, 0},
		{"SN-003 with frames", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", HTTP2, 24},
		{"SN-004", "PRI * HTTP/1.1\r\n", HTTP1, 0},
		{"SN-005", clientHello, TLS, 6},
		{"SN-006", "\x16\x03", More, 0},
		{"SN-006 not TLS", "\x16\x02", Other, 0},
		{"SN-006 another handshake message", "\x16\x03\x01\x00\x05\x02", Other, 0},
		{"SN-007", "SSH-2.0-x\r\n", Other, 4},
		{"SN-008", "GET foo\r\n", Other, 0},
		{"SN-008 a key like a path", "GET /foo\r\n", HTTP1, 5},
		{"SN-009", "get a\r\n", Other, 1},
		{"SN-010", "*1\r\n$4\r\nPING\r\n", Other, 1},
		{"SN-011", "\x00\x00\x00\x08\x04\xd2\x16\x2f", Other, 1},
		{"SN-012", "\x3f\x00\x00\x00\x01\x00\x00\x00", Other, 1},
		{"SN-013 AMQP", "AMQP\x00\x00\x09\x01", Other, 5},
		{"SN-013 MQTT", "\x10\x0c\x00\x04MQTT", Other, 1},
		{"SN-013 Kafka", "\x00\x00\x00\x1a\x00\x12\x00\x00", Other, 1},
		{"SN-014", "", More, 0},
		{"SN-016", "G", More, 0},
		{"SN-017", "POST \x00\x01\x02", Other, 6},
		{"SN-018", "GET " + strings.Repeat("a", 64<<10), Other, 4 + 512},
		{"SN-018 an HTTP target", "GET /" + strings.Repeat("a", 64<<10), HTTP1, 5},
		{"SN-018 unknown method, target", "XGET /" + strings.Repeat("a", 64<<10), HTTP1, 5 + 8<<10},
		{"SN-019 v1", "PROXY TCP4 192.0.2.10 192.0.2.20 40000 8080\r\n", Other, 0},
		{"SN-019 v2", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c", Other, 1},
		{"SN-020 HELO", "HELO a\r\n", Other, 0},
		{"SN-020 EHLO", "EHLO\r\n", Other, 5},
		{"SN-020 USER", "USER x\r\n", Other, 0},
		{"SN-022", "get / http/1.1\r\n", Other, 1},
		{"SN-022 lower-case version", "PUTT / http/1.1\r\n", Other, 0},
		{"very long method", strings.Repeat("A", 21) + " / HTTP/1.1\r\n", Other, 21},
	} {
		t.Run(tc.id, func(t *testing.T) {
			b := []byte(tc.in)
			if got := Detect(b); got != tc.want {
				t.Fatalf("%v, want %v", got, tc.want)
			}
			at := tc.at
			if at == 0 {
				at = len(b)
			}
			for i := range b { // as if split there
				if i > 1<<10 && i < at-2 || i > at+10 {
					continue // long inputs say the same for long
				}
				want := tc.want
				if i < at {
					want = More
				}
				if got := Detect(b[:i]); got != want {
					t.Fatalf("%v by %d bytes, want %v", got, i, want)
				}
			}
		})
	}
}

func TestString(t *testing.T) {
	for p, want := range map[Protocol]string{More: "more", HTTP1: "http1", HTTP2: "http2", TLS: "tls", Other: "other"} {
		if got := p.String(); got != want {
			t.Errorf("%d is %q, want %q", p, got, want)
		}
	}
}

// FuzzSniff: a verdict stands, whatever follows; there is one by the byte cap; and it changes nothing.
func FuzzSniff(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", clientHello, "GET foo\r\n", "SSH-2.0-x\r\n", "XGET /\t HTTP/1.1\n", "",
	} {
		f.Add([]byte(s), []byte("\r\n\r\n"))
	}
	f.Add([]byte("XGET "+strings.Repeat("a", 600)+" HTTP/1.1\n"), []byte("\n"))
	f.Fuzz(func(t *testing.T, b, more []byte) {
		was := bytes.Clone(b)
		first := More
		for i := range len(b) + 1 {
			got := Detect(b[:i])
			if first != More && got != first {
				t.Fatalf("%v by %d bytes of %q, %v before", got, i, b, first)
			}
			first = got
		}
		if first == More {
			if got := Detect(append(bytes.Clone(b), bytes.Repeat([]byte{'a'}, enough)...)); got == More {
				t.Fatalf("no verdict for %q and %d bytes behind it", b, enough)
			}
			return
		}
		if got := Detect(append(bytes.Clone(b), more...)); got != first {
			t.Fatalf("%v by %q, %v with %q behind it", first, b, got, more)
		}
		if !bytes.Equal(b, was) {
			t.Fatalf("%q became %q", was, b)
		}
	})
}
