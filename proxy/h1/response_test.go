package h1

import (
	"fmt"
	"strings"
	"testing"
)

// TestResponseRefused: heads of responses that cannot be relayed.
func TestResponseRefused(t *testing.T) {
	for _, tc := range []struct{ id, head string }{
		{"H1-RS-013", resp("200 OK", "Content-Length: 5", "Content-Length: 6")},
		{"H1-RS-013 equal", resp("200 OK", "Content-Length: 5", "Content-Length: 5")},
		{"H1-RS-013 on a 204", resp("204 No Content", "Content-Length: 5", "Content-Length: 6")},
		{"H1-RS-014", resp("200 OK", "Content-Length: 5, 5")},
		{"H1-RS-015", resp("200 OK", "Content-Length: -1")},
		{"H1-RS-016", resp("200 OK", "Content-Length: 50", "Transfer-Encoding: chunked")},
		{"H1-RS-017", resp("200 OK", "Transfer-Encoding: foo")},
		{"H1-RS-018", resp("200 OK", "Transfer-Encoding: gzip, chunked")},
		{"H1-RS-019", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"H1-RS-026", resp("200 OK", "X-A : b")},
		{"H1-RS-027", resp("200 OK", "X-A: b", " c")},
		{"H1-RS-028", resp("200 OK", "X-A: b\x00c")},
		{"H1-RS-029", resp("200 OK", "X-A: b\rSet-Cookie: x=y")},
		{"H1-RS-030", "HTTP/1.1 200 OK\nContent-Length: 5\n\n"},
		{"H1-RS-031", resp("2OO OK")},
		{"H1-RS-032", resp("99 X")},
		{"H1-RS-032 zero", resp("099 X")},
		{"H1-RS-033", resp("1000 X")},
		{"H1-RS-037", "<html>hi</html>\r\n\r\n"},
		{"H1-RS-038", "HTTP/2.0 200 OK\r\n\r\n"},
		{"H1-RS-039", "ICY 200 OK\r\n\r\n"},
		{"H1-RS-042", resp("200 OK", "X-A: "+strings.Repeat("y", 70000))},
		{"H1-RS-050", resp("200 OK", ": x")},
		{"H1-RS control in reason", resp("200 O\x01K")},
		{"H1-RS empty line first", "\r\n" + resp("200 OK")},
		{"H1-RS Connection names length", resp("200 OK", "Connection: content-length", "Content-Length: 5")},
		{"H1-RS two codings", resp("200 OK", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked")},
	} {
		t.Run(tc.id, func(t *testing.T) {
			if _, _, _, err := readResponseFrom(whole([]byte(tc.head)), "GET"); statusOf(err) <= 0 {
				t.Errorf("taken (%v), want a refusal", err)
			}
			checkSplits(t, []byte(tc.head), func(p [][]byte) string { return responseVerdict(p, "GET") })
		})
	}
}

// TestResponseForwarded: heads that are relayed, and what they say about their bodies and connections.
func TestResponseForwarded(t *testing.T) {
	for _, tc := range []struct {
		id, method, head string
		notes            string // length, or "none"; "keep" when the connection may serve again; "CL" when the length is relayed
		fields           string // relayed, by name
	}{
		{"plain", "GET", resp("200 OK", "Content-Length: 2", "X-A: b"), "2 keep", "Content-Length X-A"},
		{"H1-RS-001", "HEAD", resp("200 OK", "Content-Length: 12"), "none keep CL", "Content-Length"},
		{"H1-RS-001 chunked", "HEAD", resp("200 OK", "Transfer-Encoding: chunked"), "none keep", "Transfer-Encoding"},
		{"H1-RS-001 nothing said", "HEAD", resp("200 OK"), "none keep", ""},
		{"H1-RS-005", "GET", resp("204 No Content", "Transfer-Encoding: chunked"), "none", "Transfer-Encoding"},
		{"H1-RS-006", "GET", resp("204 No Content", "Content-Length: 0"), "none keep", "Content-Length"},
		{"H1-RS-007", "GET", resp("304 Not Modified", "Content-Length: 50"), "none keep CL", "Content-Length"},
		{"H1-RS-008", "GET", resp("205 Reset Content", "Content-Length: 2"), "2 keep", "Content-Length"},
		{"H1-RS-009", "GET", resp("200 OK"), "-1", ""},
		{"H1-RS-034", "GET", resp("700 X", "Content-Length: 0"), "0 keep", "Content-Length"},
		{"H1-RS-035", "GET", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "0 keep", "Content-Length"},
		{"H1-RS-036", "GET", "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", "0 keep", "Content-Length"},
		{"H1-RS-045", "GET", resp("200 OK", "Connection: X-Hop", "X-Hop: 1", "Content-Length: 0"), "0 keep", "Content-Length"},
		{"H1-RS-046", "GET", resp("200 OK", "Keep-Alive: timeout=1", "Proxy-Connection: close", "Content-Length: 0"), "0 keep", "Content-Length"},
		{"H1-RS-047", "GET", resp("200 OK", "Connection: close", "Content-Length: 2"), "2", "Content-Length"},
		{"H1-RS 1.0", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n", "2", "Content-Length"},
		{"H1-RS 1.0 keep-alive", "GET", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n", "2 keep", "Content-Length"},
		{"H1-RS chunked", "GET", resp("200 OK", "Transfer-Encoding: chunked", "Trailer: X-Sum"), "-1 keep", "Transfer-Encoding Trailer"},
		{"H1-1X-001", "GET", resp("103 Early Hints", "Link: </a>; rel=preload"), "none keep", "Link"},
		{"H1-1X-005", "GET", resp("100 Continue", "Content-Length: 5"), "none keep", "Content-Length"},
		{"H1-1X-009", "GET", resp("103 E", "Transfer-Encoding: chunked"), "none", "Transfer-Encoding"},
		{"WS-004", "GET", resp("200 OK", "Connection: upgrade", "Upgrade: websocket", "Content-Length: 0"), "0 keep", "Content-Length"},
		{"WS-001", "GET", resp("101 Switching Protocols", "Connection: upgrade", "Upgrade: websocket"), "none keep", "Upgrade"},
		{"H1-RS 426", "GET", resp("426 Upgrade Required", "Upgrade: foo/1", "Content-Length: 0"), "0 keep", "Upgrade Content-Length"},
	} {
		t.Run(tc.id, func(t *testing.T) {
			r, f, used, err := readResponseFrom(whole([]byte(tc.head)), tc.method)
			if err != nil {
				t.Fatal(err)
			}
			if used != len(tc.head) {
				t.Errorf("took %d of %d bytes", used, len(tc.head))
			}
			got := fmt.Sprint(r.Length)
			if r.NoBody {
				got = "none"
			}
			if f.persistent() {
				got += " keep"
			}
			if r.KeepLength {
				got += " CL"
			}
			if got != tc.notes {
				t.Errorf("notes %q, want %q", got, tc.notes)
			}
			var names []string
			for _, fd := range r.Fields {
				if !fd.Drop {
					names = append(names, fd.Name)
				}
			}
			if got := strings.Join(names, " "); got != tc.fields {
				t.Errorf("fields %q, want %q", got, tc.fields)
			}
			checkSplits(t, []byte(tc.head), func(p [][]byte) string { return responseVerdict(p, tc.method) })
		})
	}
}

func TestSwitchedTo(t *testing.T) {
	for _, tc := range []struct {
		id, offered, answer string
		want                bool
	}{
		{"WS-001", "websocket", "Upgrade: WebSocket", true},
		{"WS-001 one of two", "foo/2, websocket", "Upgrade: websocket", true},
		{"WS-007 none", "websocket", "X: y", false},
		{"WS-007 empty", "websocket", "Upgrade:", false},
		{"WS-007 another", "websocket", "Upgrade: foo", false},
		{"WS-007 one too many", "websocket", "Upgrade: websocket, foo", false},
	} {
		t.Run(tc.id, func(t *testing.T) {
			r, _, _, err := readResponseFrom(whole([]byte(resp("101 Switching Protocols", "Connection: upgrade", tc.answer))), "GET")
			if err != nil {
				t.Fatal(err)
			}
			if got := switchedTo(tc.offered, r.Fields); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
