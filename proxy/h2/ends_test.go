package h2_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestClientLeaves: a client that gives a stream or its connection up has the work for it ended, by CANCEL or by the end
// of the connection, at whatever point it leaves.
func TestClientLeaves(t *testing.T) {
	leave := map[string]func(c *peer){
		"CANCEL":   func(c *peer) { c.reset(1, http2.ErrCodeCancel) },
		"NO_ERROR": func(c *peer) { c.reset(1, http2.ErrCodeNo) },
		"INTERNAL": func(c *peer) { c.reset(1, http2.ErrCodeInternal) },
		"FIN":      func(c *peer) { _ = c.nc.Close() },
		"RST":      func(c *peer) { _ = c.nc.(*net.TCPConn).SetLinger(0); _ = c.nc.Close() },
	}
	for name, leave := range leave {
		for _, when := range []string{"uploading", "waiting", "reading"} {
			t.Run(name+" "+when, func(t *testing.T) {
				arrived, ended := make(chan struct{}, 1), make(chan string, 1)
				origin := serve2(t, nil, func(p *peer) {
					var s []string
					for {
						e, err := p.next()
						if err != nil {
							return
						}
						if e.kind == http2.FrameGoAway {
							continue
						}
						s = append(s, strings.Replace(e.String(), "#1", "", 1))
						if when == "uploading" && e.kind == http2.FrameData || e.end {
							if when == "reading" {
								p.headers(1, false, ":status", "200")
								p.data(1, false, []byte("some"))
							}
							arrived <- struct{}{}
						}
						if e.kind == http2.FrameRSTStream {
							ended <- strings.Join(s, ", ")
							return
						}
					}
				})
				r := newRig(t, setup{config: plain2, origins: []string{origin}})
				c := r.dial2()
				want := "HEADERS GET /, RST CANCEL"
				if when == "uploading" {
					want = "HEADERS POST /, DATA 4, RST CANCEL"
					c.headers(1, false, post...)
					c.data(1, false, []byte("some"))
				} else {
					want = "HEADERS GET / ES, RST CANCEL"
					c.headers(1, true, get...)
				}
				<-arrived
				if when == "reading" {
					c.want("HEADERS#1 200")
				}
				leave(c)
				select {
				case got := <-ended:
					if got != want {
						t.Errorf("%s, want %s", got, want)
					}
				case <-time.After(patience):
					t.Error("the origin is not told")
				}
				r.settled()
				if when != "reading" && !strings.Contains(name, "F") && name != "RST" { // no reset answers a reset
					c.ping()
					if e, err := c.frame(); err == nil && e.kind == http2.FrameRSTStream {
						t.Errorf("%v in answer to a reset", e)
					}
				}
			})
		}
	}
}

// TestEarlyAnswers (H2-CL-009, GR-008): an origin that answers before it has read everything, and then wants no more, has
// succeeded; the client is told to stop sending without an error.
func TestEarlyAnswers(t *testing.T) {
	for _, reset := range []bool{true, false} {
		t.Run(fmt.Sprint(reset), func(t *testing.T) {
			origin := serve2(t, nil, func(p *peer) {
				for {
					e, err := p.next()
					if err != nil {
						return
					}
					if e.kind == http2.FrameData && len(e.data) > 0 {
						p.headers(e.id, false, ":status", "200")
						p.data(e.id, true, []byte("early"))
						if reset {
							p.reset(e.id, http2.ErrCodeNo)
						}
					}
				}
			})
			r := newRig(t, setup{config: plain2, origins: []string{origin}})
			c := r.dial2()
			c.headers(1, false, post...)
			c.data(1, false, []byte("x"))
			head, body, _, err := c.answer(1)
			if err != nil || head.get(":status") != "200" || string(body) != "early" {
				t.Fatalf("%v %q %v", head, body, err)
			}
			if !reset { // the origin still reads, so the client may go on
				c.data(1, true, []byte("y"))
				r.settled()
				return
			}
			c.want("RST#1 NO_ERROR")
			c.data(1, true, make([]byte, 100)) // had been on its way
			c.headers(3, true, get...)
			r.settled2()
		})
	}
}

// settled2 is settled, but for streams that nobody answers.
func (r *rig) settled2() { r.server.Abort(); r.settled() }

// exchange1 is a request as an origin of HTTP/1 saw it.
type exchange1 struct {
	start    string
	fields   map[string]string
	body     string
	trailers http.Header
	broken   bool
}

// origin1 answers over HTTP/1 with a text, and tells what came.
func origin1(t *testing.T, answer string) (string, chan exchange1) {
	got := make(chan exchange1, 10)
	return serveConns(t, func(nc net.Conn) {
		in := bufio.NewReader(nc)
		for {
			var x exchange1
			if x.start, x.fields = strictHead(t, in); x.start == "" {
				return
			}
			text := x.start + "\r\n"
			for n, v := range x.fields {
				text += n + ": " + v + "\r\n"
			}
			q, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(text+"\r\n"), in)))
			if err != nil {
				t.Error(err)
				return
			}
			body, err := io.ReadAll(q.Body)
			x.body, x.trailers, x.broken = string(body), q.Trailer, err != nil
			got <- x
			if err != nil {
				return
			}
			if _, err := io.WriteString(nc, answer); err != nil || strings.Contains(answer, "close") {
				return
			}
		}
	}), got
}

const simple1 = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// TestDown (DG-002 … DG-017): requests of HTTP/2 as HTTP/1 has them.
func TestDown(t *testing.T) {
	for _, tc := range []struct {
		name   string
		fields []string
		body   []string // DATA frames; "!" ends with trailers, "#" with a reset
		check  func(x exchange1) bool
		answer string
	}{
		{"chunked", post, []string{"hel", "lo"}, func(x exchange1) bool { // DG-004
			return x.fields["transfer-encoding"] == "chunked" && x.fields["content-length"] == "" && x.body == "hello"
		}, "200"},
		{"empty POST", post, nil, func(x exchange1) bool { return x.fields["content-length"] == "0" }, "200"}, // DG-005
		{"empty GET", get, nil, func(x exchange1) bool { // DG-006
			return x.fields["content-length"]+x.fields["transfer-encoding"] == ""
		}, "200"},
		{"length", with(post, "content-length", "5"), []string{"hello"}, func(x exchange1) bool { // DG-007
			return x.fields["content-length"] == "5" && x.fields["transfer-encoding"] == "" && x.body == "hello"
		}, "200"},
		{"GET with a body", get, []string{"abc"}, func(x exchange1) bool { return x.fields["transfer-encoding"] == "chunked" && x.body == "abc" }, "200"},
		{"cookies", with(get, "cookie", "a=1", "cookie", "b=2"), nil, func(x exchange1) bool { return x.fields["cookie"] == "a=1; b=2" }, "200"},
		{"te", with(get, "te", "trailers"), nil, func(x exchange1) bool { // DG-009
			return strings.EqualFold(x.fields["te"], "trailers") && strings.EqualFold(x.fields["connection"], "te")
		}, "200"},
		{"trailers", post, []string{"x", "!"}, func(x exchange1) bool { return x.trailers.Get("X-End") == "1" && x.body == "x" }, "200"},
		{"trailers behind a length", with(post, "content-length", "1"), []string{"x", "!"}, func(x exchange1) bool { // DG-010
			return len(x.trailers) == 0 && x.body == "x"
		}, "200"},
		{"asterisk", []string{":method", "OPTIONS", ":scheme", "http", ":path", "*", ":authority", "svc"}, nil, func(x exchange1) bool {
			return x.start == "OPTIONS * HTTP/1.1"
		}, "200"},
		{"scheme", []string{":method", "GET", ":scheme", "https", ":path", "/", ":authority", "svc"}, nil, func(x exchange1) bool { // DG-016
			return x.fields["x-forwarded-proto"] == "http"
		}, "200"},
		{"lower-case method", []string{":method", "get", ":scheme", "http", ":path", "/", ":authority", "svc"}, nil, func(x exchange1) bool {
			return x.start == "get / HTTP/1.1"
		}, "200"},
		{"less than its length", with(post, "content-length", "10"), []string{"hello"}, func(x exchange1) bool { return x.broken }, "PROTOCOL_ERROR"}, // DG-002
		{"more than its length", with(post, "content-length", "4"), []string{"hello"}, func(x exchange1) bool { return x.broken || x.body == "" }, "PROTOCOL_ERROR"},
		{"reset", post, []string{"hello", "#"}, func(x exchange1) bool { return x.broken }, ""}, // DG-017
	} {
		t.Run(tc.name, func(t *testing.T) {
			origin, got := origin1(t, simple1)
			r := newRig(t, setup{config: plain1, origins: []string{origin}})
			c := r.dial2()
			c.headers(1, tc.body == nil, tc.fields...)
			for i, b := range tc.body {
				switch b {
				case "!":
					c.headers(1, true, "x-end", "1", "content-length", "7", "host", "evil")
				case "#":
					c.moment()
					c.reset(1, http2.ErrCodeCancel)
				default:
					c.data(1, i == len(tc.body)-1, []byte(b))
				}
			}
			if tc.answer != "" {
				head, _, _, err := c.answer(1)
				if head.get(":status") != tc.answer && (err == nil || !strings.Contains(err.Error(), tc.answer)) {
					t.Errorf("%v %v", head, err)
				}
			}
			select {
			case x := <-got:
				if !tc.check(x) {
					t.Errorf("%+v", x)
				}
			case <-time.After(100 * time.Millisecond):
				if tc.answer == "200" {
					t.Error("nothing came")
				}
			}
			r.settled()
		})
	}
}

// TestDownAnswers (DG-018 … DG-023): answers of HTTP/1 as HTTP/2 has them.
func TestDownAnswers(t *testing.T) {
	for _, tc := range []struct{ name, method, answer, want string }{
		{
			"hop-by-hop fields", "GET", "HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 1\r\nX-Other: a\r\nContent-Length: 0\r\n\r\n",
			"HEADERS 200 ES [x-other: a content-length: 0]",
		},
		{"101", "GET", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", "HEADERS 502 upstream_protocol"},
		{"204", "GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "HEADERS 204 ES []"},
		{"304", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "HEADERS 304 ES [content-length: 5]"},
		{"HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEADERS 200 ES [content-length: 5]"},
		{
			"chunked with trailers", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-End: 1\r\nHost: a\r\n\r\n",
			"HEADERS 200 [], DATA 2, HEADERS x-end=1 ES",
		},
		{"to the close", "GET", "HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nuntil", "HEADERS 200 [], DATA 5, DATA 0 ES"},
		{"short", "GET", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\nhalf", "HEADERS 200 [content-length: 9], DATA 4, RST INTERNAL_ERROR"},
		{"cut in a chunk", "GET", "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf", "HEADERS 200 [], DATA 4, RST INTERNAL_ERROR"},
		{"early hints", "GET", "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + simple1, "HEADERS 103 [link: a], HEADERS 200 [content-length: 2], DATA 2, DATA 0 ES"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			origin, _ := origin1(t, tc.answer)
			r := newRig(t, setup{config: plain1, origins: []string{origin}})
			c := r.dial2()
			c.headers(1, true, with(get[2:], ":method", tc.method)...)
			var s []string
			for {
				e, err := c.next()
				if err != nil {
					t.Fatal(err, s)
				}
				what := strings.Replace(e.String(), "#1", "", 1)
				if reason := e.get("x-sidecar-reason"); reason != "" {
					s = append(s, what+" "+reason)
					break
				}
				if e.has(":status") {
					var fields []string
					for _, f := range e.fields[1:] {
						fields = append(fields, f.Name+": "+f.Value)
					}
					what += fmt.Sprint(" ", fields)
				}
				s = append(s, what)
				if e.end || e.kind == http2.FrameRSTStream {
					break
				}
			}
			got := strings.Join(s, ", ")
			for n := 2; n < 6; n += 3 { // where the end stands is no matter
				got = strings.ReplaceAll(got, fmt.Sprintf("DATA %d ES", n), fmt.Sprintf("DATA %d, DATA 0 ES", n))
			}
			if got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			r.settled()
		})
	}
}

// TestUp (UG-001 … UG-010): requests of HTTP/1 as HTTP/2 has them.
func TestUp(t *testing.T) {
	large := strings.Repeat("v", 8<<10)
	for _, tc := range []struct{ name, request, want string }{
		{"absolute target", "GET http://svc/x HTTP/1.1\r\nHost: other\r\n\r\n", "GET svc /x [] ES"},
		{"cookies", "GET / HTTP/1.1\r\nHost: svc\r\nCookie: a=1; b=2\r\n\r\n", "GET svc / [cookie: a=1; b=2] ES"},
		{
			"hop-by-hop", "GET / HTTP/1.1\r\nHost: svc\r\nConnection: X-Hop, keep-alive, TE\r\nKeep-Alive: 1\r\nX-Hop: 1\r\nTE: trailers, gzip\r\nX-Own: A\r\n\r\n",
			"GET svc / [x-own: A te: trailers] ES",
		},
		{
			"trailers", "POST /?q HTTP/1.1\r\nHost: svc\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-End: 1\r\nContent-Length: 3\r\n\r\n",
			"POST svc /?q [], ok, x-end=1 ES",
		},
		{"length", "POST / HTTP/1.1\r\nHost: svc\r\nContent-Length: 2\r\n\r\nok", "POST svc / [content-length: 2], ok ES"},
		{"asterisk", "OPTIONS * HTTP/1.1\r\nHost: svc\r\n\r\n", "OPTIONS svc * [] ES"},
		{"expect", "POST / HTTP/1.1\r\nHost: svc\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok", "POST svc / [content-length: 2 expect: 100-continue], ok ES"},
		{
			"large fields", "GET / HTTP/1.1\r\nHost: svc\r\nA: " + large + "\r\nB: " + large + "\r\nC: " + large + "\r\n\r\n",
			"GET svc / [a: " + large + " b: " + large + " c: " + large + "] ES",
		},
		{"cut", "POST / HTTP/1.1\r\nHost: svc\r\nContent-Length: 5\r\n\r\nhel", "POST svc / [content-length: 5], hel, CANCEL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := make(chan string, 1)
			origin := serve2(t, nil, func(p *peer) {
				s, body := "", ""
				for {
					e, err := p.next()
					if err != nil {
						return
					}
					switch {
					case e.kind == http2.FrameHeaders && s == "":
						var fields []string
						for _, f := range e.fields {
							if f.Name[0] != ':' && !strings.HasPrefix(f.Name, "x-forwarded") && f.Name != "x-request-id" {
								fields = append(fields, f.Name+": "+f.Value)
							}
						}
						s = fmt.Sprint(e.get(":method"), " ", e.get(":authority"), " ", e.get(":path"), " ", fields)
					case e.kind == http2.FrameData:
						body += string(e.data)
					case e.kind == http2.FrameHeaders:
						body += ", " + e.fields[0].Name + "=" + e.fields[0].Value
						if len(e.fields) > 1 {
							body += " and more"
						}
					case e.kind == http2.FrameRSTStream:
						body += ", " + e.code.String()
					}
					if e.end || e.kind == http2.FrameRSTStream {
						if body != "" {
							s += ", " + body
						}
						if e.end {
							s += " ES"
						}
						got <- s
						ok200(p, e.id)
					}
				}
			})
			r := newRig(t, setup{config: plain2, origins: []string{origin}})
			nc := r.dial1()
			_, _ = io.WriteString(nc, tc.request)
			if tc.name == "cut" {
				<-time.After(100 * time.Millisecond)
				_ = nc.(*net.TCPConn).CloseWrite()
			}
			select {
			case s := <-got:
				if s != tc.want {
					t.Errorf("%s, want %s", s, tc.want)
				}
			case <-time.After(patience):
				t.Error("nothing came")
			}
			r.settled()
		})
	}
}
