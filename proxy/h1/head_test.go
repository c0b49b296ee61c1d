package h1

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// TestRequestRefused: heads that must not be taken, with the status that says so.
func TestRequestRefused(t *testing.T) {
	const te, cl = "Transfer-Encoding: ", "Content-Length: "
	for _, tc := range []struct {
		id     string
		status int
		head   string
	}{
		{"H1-FR-001", 400, req("POST /", cl+"43", te+"chunked")},
		{"H1-FR-003", 400, req("POST /", te+"chunked", cl+"43")},
		{"H1-FR-005", 400, req("POST /", cl+"5", cl+"5")},
		{"H1-FR-006", 400, req("POST /", cl+"5", cl+"6")},
		{"H1-FR-007 equal list", 400, req("POST /", cl+"5, 5")},
		{"H1-FR-008", 400, req("POST /", cl+"5, 6")},
		{"H1-FR-009", 400, req("POST /", cl+"+5")},
		{"H1-FR-010", 400, req("POST /", cl+"-1")},
		{"H1-FR-011", 400, req("POST /", cl+"0x5")},
		{"H1-FR-012", 400, req("POST /", cl+"5_0")},
		{"H1-FR-014", 400, req("POST /", cl+"1e1")},
		{"H1-FR-017", 400, req("POST /", cl+"5 6")},
		{"H1-FR-018", 400, req("POST /", cl+"\x0b5")},
		{"H1-FR-022", 400, req("POST /", cl+"9223372036854775808")},
		{"H1-FR-022 2^64+5", 400, req("POST /", cl+"18446744073709551621")},
		{"H1-FR-023", 400, req("POST /", cl+"5\x0c")},
		{"H1-FR-026", 400, req("POST /", "Content-Length:", cl+"38")},
		{"H1-FR length alone and empty", 400, req("POST /", "Content-Length:")},

		{"H1-TE-001", 501, req("POST /", te+"xchunked")},
		{"H1-TE-002", 400, req("POST /", te+"chunked, identity")},
		{"H1-TE-003", 501, req("POST /", te+"identity, chunked")},
		{"H1-TE-005", 501, req("POST /", te+"gzip, chunked")},
		{"H1-TE-007", 400, req("POST /", te+"chunked", te+"chunked")},
		{"H1-TE-008", 400, req("POST /", te+"chunked", te+"identity")},
		{"H1-TE-009", 400, req("POST /", cl+"5", te+",chunked")},
		{"H1-TE-012", 400, req("POST /", te+"chunked;q=1")},
		{"H1-TE-013", 400, req("POST /", te+`"chunked"`)},
		{"H1-TE-015", 400, req("POST /", te+"\x0bchunked")},
		{"H1-TE-016", 400, req("POST /", te+"chunked\x0c")},
		{"H1-TE-018", 400, req("POST /", "Transfer-Encoding : chunked")},
		{"H1-TE-020", 400, req("POST /", cl+"5", "X-A: b", " "+te+"chunked")},
		{"H1-TE-021", 400, req("POST /", cl+"5", "Transfer-Encoding:", " chunked")},
		{"H1-TE-023", 400, req("POST /", te+"chunked\x00")},
		{"H1-TE-024", 400, req("POST /", "Transfer\x00-Encoding: chunked")},
		{"H1-TE-026", 400, req("POST /", cl+"5", "X-A: b\r"+te+"chunked")},
		{"H1-TE-027", 400, req("POST /", cl+"5", "X-A: b\n"+te+"chunked")},
		{"H1-TE-028", 400, req("POST /", te+"\xa0chunked")},
		{"H1-TE-029", 400, req("POST /", cl+"5", "Transfer-", "Encoding: chunked")},
		{"H1-TE-030", 400, req("POST /", "Transfer-Encoding chunked")},
		{"H1-TE chunked in 1.0", 400, "POST / HTTP/1.0\r\n" + host + te + "chunked\r\n\r\n"},
		{"H1-TE empty", 400, req("POST /", "Transfer-Encoding:")},

		{"H1-RL-002", 400, strings.Repeat("\r\n", 2000) + req("GET /")},
		{"H1-RL-003", 400, " " + req("GET /")},
		{"H1-RL-004", 400, req("GET  /")},
		{"H1-RL-006", 400, "GET / HTTP/1.1 \r\n" + host + "\r\n"},
		{"H1-RL-008", 505, "GET / HTTP/2.0\r\n" + host + "\r\n"},
		{"H1-RL-009 0.9", 400, "GET /\r\n" + host + "\r\n"},
		{"H1-RL-010", 400, "GET / http/1.1\r\n" + host + "\r\n"},
		{"H1-RL-011", 400, "GET / HTTP/1.10\r\n" + host + "\r\n"},
		{"H1-RL-012", 400, "GET / HTTP/01.1\r\n" + host + "\r\n"},
		{"H1-RL-014", 400, "GET HTTP/1.1\r\n" + host + "\r\n"},
		{"H1-RL-015", 400, "GET / HTTP/1.1 HTTP/1.1\r\n" + host + "\r\n"},
		{"H1-RL-018", 400, req("GE(T /")},
		{"H1-RL-019", 400, req("GET /a\x00b")},
		{"H1-RL-020", 400, req("GET /\xc3\xa9")},
		{"H1-RL-021", 400, req("GET /a#frag")},
		{"H1-RL tab", 400, req("GET\t/")},
		{"H1-RL DEL in target", 400, req("GET /a\x7f")},
		{"H1-RL-022", 414, req("GET /" + strings.Repeat("a", 70000))},
		{"H1-RL-024", 505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		{"H1-RL-025", 400, "GET / HTTP/1.1\nHost: svc.test\n\n"},
		{"H1-RL-026", 400, "GET / HTTP/1.1\rHost: svc.test\r\r"},
		{"H1-RL-028 asterisk of GET", 400, req("GET *")},
		{"H1-RL-029", 400, req("GET a")},
		{"H1-RL-030", 501, req(strings.Repeat("G", 5000) + " /")},
		{"H1-RL-032", 405, req("TRACE /")},

		{"H1-HO-001", 400, "GET / HTTP/1.1\r\n\r\n"},
		{"H1-HO-001 empty field", 0, "GET / HTTP/1.1\r\nHost:\r\n\r\n"},
		{"H1-HO-002", 400, req("GET /", "Host: evil.test")},
		{"H1-HO-003", 400, req("GET /", "Host: svc.test")},
		{"H1-HO-005", 400, "GET / HTTP/1.1\r\nHost: svc.test, evil.test\r\n\r\n"},
		{"H1-HO-007", 400, "GET / HTTP/1.1\r\nHost: svc.test/evil\r\n\r\n"},
		{"H1-HO-009", 400, "GET / HTTP/1.1\r\nHost: svc.test:+80\r\n\r\n"},
		{"H1-HO space inside", 400, "GET / HTTP/1.1\r\nHost: svc test\r\n\r\n"},
		{"H1-HO user", 400, "GET / HTTP/1.1\r\nHost: u@svc.test\r\n\r\n"},
		{"H1-HO two in 1.0", 400, "GET / HTTP/1.0\r\n" + host + host + "\r\n"},
		{"H1-HO-021", 400, req("CONNECT svc.test")},
		{"H1-HO-022", 400, req("CONNECT /path")},
		{"CT-002 length", 400, req("CONNECT svc.test:443", cl+"5")},
		{"CT-002 chunked", 400, req("CONNECT svc.test:443", te+"chunked")},
		{"H1-HO-024", 400, "GET / HTTP/1.1\r\nHost: svc.test\x00.evil\r\n\r\n"},
		{"H1-HO-027", 400, req("GET /", "Host : evil.test")},
		{"H1-HO-028", 400, "GET / HTTP/1.1\r\nX: 1\r\n Host: evil.test\r\n" + host + "\r\n"},
		{"H1-HO-030", 400, req("GET http://svc.test@evil.test/")},
		{"H1-HO-031", 400, req("GET http://svc.test#@evil.test/")},
		{"H1-HO-032", 400, req(`GET http://svc.test\.evil.test/`)},
		{"H1-HO other scheme", 400, req("GET ftp://svc.test/")},
		{"H1-HO scheme alone", 400, req("GET http:///x")},

		{"H1-HD-001", 400, req("GET /", "X-A : b")},
		{"H1-HD-004", 400, req("GET /", "X(A: b")},
		{"H1-HD-005", 400, req("GET /", "X\x80A: b")},
		{"H1-HD-006", 400, req("GET /", "X-A: b\rc")},
		{"H1-HD-007", 400, "GET / HTTP/1.1\r\n" + host + "X-A: b\nX-B: c\r\n\r\n"},
		{"H1-HD-008", 400, req("GET /", "X-A: b\x00c")},
		{"H1-HD-010", 400, req("GET /", "X-A: b\x7fc")},
		{"H1-HD-010 in a long value", 400, req("GET /", "X-A: 0123456789abcdef\x7f")},
		{"H1-HD-015", 431, req("GET /", strings.Fields(strings.Repeat("X-A:y ", 101))...)},
		{"H1-HD-016", 431, req("GET /", "X-A: "+strings.Repeat("y", 66000))},
		{"H1-HD-018", 431, req("GET /", strings.Repeat("X", 9000)+": y")},
		{"H1-HD-019", 400, "GET / HTTP/1.1\r\n" + host + " \r\n\r\n"},
		{"H1-HD-025", 400, req("GET /", ":path: /evil")},
		{"H1-HD-026", 400, req("GET /", "Content-Length : 5", cl+"0")},
		{"H1-HD-027", 400, "GET / HTTP/1.1\r\n X-A: b\r\n" + host + "\r\n"},
		{"H1-HD-028", 400, "GET / HTTP/1.1\r\n Host: evil.test\r\n" + host + "\r\n"},

		{"H1-CN-009", 400, req("POST /", "Connection: Content-Length", cl+"5")},
		{"H1-CN-011", 400, req("GET /", "Connection: Host")},
		{"H1-CN not a token", 400, req("GET /", "Connection: x/y")},
		{"H1-EX-002", 417, req("POST /", "Expect: 200-ok", cl+"5")},
		{"H1-EX-003", 417, req("POST /", "Expect: y 100-continue", cl+"38")},
		{"WS-005", 400, req("GET /ws", "Connection: Upgrade", "Upgrade: websocket", cl+"38")},
		{"WS-006", 400, req("GET /ws", "Connection: Upgrade", "Upgrade: websocket", te+"chunked")},
	} {
		t.Run(tc.id, func(t *testing.T) {
			if _, _, _, err := readRequestFrom(whole([]byte(tc.head))); statusOf(err) != tc.status {
				t.Errorf("status %d (%v), want %d", statusOf(err), err, tc.status)
			}
			checkSplits(t, []byte(tc.head), requestVerdict)
		})
	}
}

// notes are the parts of a request that its re-serialised head does not show.
func notes(q *pipeline.Request, f *framing) string {
	var n []string
	add := func(is bool, what string) {
		if is {
			n = append(n, what)
		}
	}
	add(q.Version == pipeline.HTTP10, "1.0")
	add(!f.persistent(), "close")
	add(q.Authority != "svc.test", "authority "+q.Authority)
	add(q.HasBody, fmt.Sprint("body ", q.Length))
	return strings.Join(n, ", ")
}

// TestRequestForwarded: heads that are taken, what they become on the next hop, and what becomes of that on the one
// after (nothing changes any more).
func TestRequestForwarded(t *testing.T) {
	longTarget := "GET /" + strings.Repeat("a", 7900)
	for _, tc := range []struct {
		id, head string
		notes    string
		out      string // empty: as it came
	}{
		{"plain", req("GET /a?b=c"), "", ""},
		{"empty query", req("GET /a?"), "", ""},
		{"H1-FR-024", req("POST /", "Content-Length: 005"), "body 5", req("POST /", "Content-Length: 5")},
		{"all zeros", req("POST /", "Content-Length: 000"), "body 0", req("POST /", "Content-Length: 0")},
		{"H1-FR-027", req("GET /", "Content-Length: 38"), "body 38", ""},
		{"H1-FR-028", req("OPTIONS /", "Transfer-Encoding: chunked"), "body -1", ""},
		{"H1-FR-031", req("POST /"), "", ""},
		{"H1-TE-014", req("POST /", "Transfer-Encoding: ChUnKeD"), "body -1", req("POST /", "Transfer-Encoding: chunked")},
		{"H1-TE-017", req("POST /", "Transfer-Encoding:\tchunked\t"), "body -1", req("POST /", "Transfer-Encoding: chunked")},
		{"H1-TE-032", req("POST /", "TE: chunked"), "", req("POST /")},
		{"H1-TE-033", req("POST /", "Transfer-Encoding: chunked", "X-B: \xc3\xa9"), "body -1", ""},
		{"H1-RL-001", "\r\n" + req("GET /"), "", req("GET /")},
		{"H1-RL eight empty lines", strings.Repeat("\r\n", 8) + req("GET /"), "", req("GET /")},
		{"H1-RL-017", req("get /"), "", ""},
		{"H1-RL-023", req(longTarget), "", ""},
		{"H1-RL-027", req("OPTIONS *"), "", ""},
		{"H1-RL-033", req("GET /a?q=%0d%0aX:1"), "", ""},
		{"H1-RL-034", req("GET //evil.test/a"), "", ""},
		{"H1-RL-035", req("FOO /"), "", ""},
		{"H1-RL minor version", "GET / HTTP/1.9\r\n" + host + "\r\n", "", req("GET /")},
		{"H1-HO-010", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "authority [::1]:80", ""},
		{"H1-HO-012", "GET / HTTP/1.1\r\nHost: SVC.test.\r\n\r\n", "authority SVC.test.", ""},
		{"H1-HO-014", req("GET http://svc.test"), "", req("GET /")},
		{"H1-HO query behind authority", req("GET http://svc.test?a=b"), "", req("GET /?a=b")},
		{"H1-HO-020", req("CONNECT svc.test:443"), "authority svc.test:443", ""},
		{"H1-HO-029", "GET / HTTP/1.1\r\nHost: svc.test:80\r\n\r\n", "authority svc.test:80", ""},
		{"H1-HD-011", req("GET /", "X-A: caf\xe9"), "", ""},
		{"H1-HD-013", req("GET /", "X-A: \tb\tc "), "", req("GET /", "X-A: b\tc")},
		{"H1-HD-014", req("GET /", "X-A:"), "", req("GET /", "X-A: ")},
		{"H1-HD-015 just so many", req("GET /", strings.Fields(strings.Repeat("X-A:y ", 99))...), "", req("GET /", splitLines(strings.Repeat("X-A: y\n", 99))...)},
		{"H1-HD-021", req("GET /", "Content-Type: a/b", "Content-Type: c/d"), "", ""},
		{"H1-HD-023", req("GET /", "Proxy: http://evil.test"), "", req("GET /")},
		{"H1-HD-024", req("GET /", "X-A: b", "x-a: c"), "", ""},
		{"H1-CN-001", "GET / HTTP/1.0\r\n" + host + "\r\n", "1.0, close", req("GET /")},
		{"H1-CN-002", "GET / HTTP/1.0\r\n" + host + "Connection: keep-alive\r\n\r\n", "1.0", req("GET /")},
		{"H1-CN-003", req("GET /", "Connection: close"), "close", req("GET /")},
		{"H1-CN-004", req("GET /", "Connection: keep-alive, close"), "close", req("GET /")},
		{"H1-CN-006", req("GET /", "Connection: X-Hop", "X-Hop: 1", "X-Keep: 2"), "", req("GET /", "X-Keep: 2")},
		{"H1-CN-006 named before", req("GET /", "X-Hop: 1", "x-hop: 2", "Connection: x-HOP"), "", req("GET /")},
		{"H1-CN-007", req("GET /", "Connection:", "Connection: X-Hop", "X-Hop: 1"), "", req("GET /")},
		{"H1-CN-008", req("GET /", "Connection: Authorization, Cookie", "Authorization: b", "Cookie: c"), "", req("GET /", "Authorization: b", "Cookie: c")},
		{"H1-CN-010", req("POST /", "Connection: Transfer-Encoding", "Transfer-Encoding: chunked"), "body -1", req("POST /", "Transfer-Encoding: chunked")},
		{"H1-CN-012", req("GET /", "Keep-Alive: timeout=5", "Proxy-Connection: keep-alive", "TE: gzip"), "", req("GET /")},
		{"H1-CN-012 trailers", req("GET /", "TE: gzip, trailers"), "", req("GET /", "Te: trailers", "Connection: Te")},
		{"H1-CN-013", req("GET /", "Upgrade: websocket"), "", req("GET /")},
		{"H1-CN-014", req("GET /", "Connection: upgrade, http2-settings", "Upgrade: h2c", "HTTP2-Settings: AAMA"), "", req("GET /")},
		{"H1-CN-015", req("GET /", "Connection: upgrade", "Upgrade: h2c, websocket", "Sec-WebSocket-Version: 13"), "", req("GET /", "Sec-WebSocket-Version: 13", "Connection: Upgrade", "Upgrade: websocket")},
		{"H1-CN-015 two fields", req("GET /", "Connection: upgrade", "Upgrade: h2c", "Upgrade: foo/2, websocket"), "", req("GET /", "Connection: Upgrade", "Upgrade: foo/2, websocket")},
		{"H1-CN-018", req("GET /", "Proxy-Authorization: Basic eDp5"), "", req("GET /")},
		{"H1-EX-001", req("POST /", "Expect: 100-continue", "Content-Length: 5"), "body 5", req("POST /", "Content-Length: 5", "Expect: 100-continue")},
		{"H1-EX-005", req("GET /", "Expect: 100-continue"), "", req("GET /")},
		{"H1-EX-006", req("POST /", "Expect: 100-CONTINUE", "Expect: 100-continue", "Content-Length: 5"), "body 5", req("POST /", "Content-Length: 5", "Expect: 100-continue")},
		{"H1-EX-109", "POST / HTTP/1.0\r\n" + host + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", "1.0, close, body 5", req("POST /", "Content-Length: 5")},
		{"WS-001", req("GET /ws", "Connection: keep-alive, Upgrade", "Upgrade: websocket"), "", req("GET /ws", "Connection: Upgrade", "Upgrade: websocket")},
		{"WS-009", "GET /ws HTTP/1.0\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "1.0, close", req("GET /ws")},
		{"WS-010", req("POST /ws", "Connection: Upgrade", "Upgrade: websocket"), "", req("POST /ws")},
	} {
		t.Run(tc.id, func(t *testing.T) {
			q, f, used, err := readRequestFrom(whole([]byte(tc.head)))
			if err != nil {
				t.Fatal(err)
			}
			if used != len(tc.head) {
				t.Errorf("took %d of %d bytes", used, len(tc.head))
			}
			if got := notes(q, f); got != tc.notes {
				t.Errorf("notes %q, want %q", got, tc.notes)
			}
			want := tc.out
			if want == "" {
				want = tc.head
			}
			out := string(appendRequest(nil, q))
			if out != want {
				t.Errorf("sent on as\n%q, want\n%q", out, want)
			}
			again, _, _, err := readRequestFrom(whole([]byte(out)))
			if err != nil {
				t.Fatal("the next hop: ", err)
			}
			if second := string(appendRequest(nil, again)); second != out {
				t.Errorf("the next hop sends on\n%q, want\n%q", second, out)
			}
			checkSplits(t, []byte(tc.head), requestVerdict)
		})
	}
}

func splitLines(s string) []string { return strings.Split(strings.TrimSuffix(s, "\n"), "\n") }

// TestRequestLimits: just below a limit and just above it, whatever the pieces.
func TestRequestLimits(t *testing.T) {
	line := func(n int) string { return req("GET /" + strings.Repeat("a", n-len("GET / HTTP/1.1"))) }
	head := func(n int) string { return req("GET /", "X: "+strings.Repeat("a", n-len(req("GET /", "X: ")))) }
	for _, tc := range []struct {
		name   string
		status int
		head   string
	}{
		{"H1-RL line", 0, line(maxRequestLine)},
		{"H1-RL line too long", 414, line(maxRequestLine + 1)},
		{"H1-HD head", 0, head(testLimits.bytes)},
		{"H1-HD head too long", 431, head(testLimits.bytes + 1)},
		{"H1-RL method", 0, req(strings.Repeat("M", maxMethod) + " /")},
		{"H1-RL method too long", 501, req(strings.Repeat("M", maxMethod+1) + " /")},
		{"H1-HD name", 0, req("GET /", strings.Repeat("n", maxName)+": v")},
		{"H1-HD name too long", 431, req("GET /", strings.Repeat("n", maxName+1)+": v")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := []byte(tc.head)
			for _, cut := range []int{0, 1, 8191, 8192, 16383, 16384, 16385, 16386, 16387, len(b) - 2, len(b) - 1} {
				if _, _, _, err := readRequestFrom(splitAt(b, cut)); statusOf(err) != tc.status {
					t.Errorf("split at %d: status %d (%v), want %d", cut, statusOf(err), err, tc.status)
				}
			}
		})
	}
}
