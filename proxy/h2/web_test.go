package h2_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// webConfig is a service of gRPC whose grpc_web is given.
func webConfig(web string) string {
	return "services: {svc: {protocol: grpc, " + web + "endpoints: [ORIGIN], routes: [{name: m, match: {grpc: t.S/M}}, {respond: {status: 404}}], " +
		"policy: {breaker: none, outlier: none, timeout: 5s}}}\n"
}

// webFrames reads a body of gRPC-Web: messages by their text, trailers by their lines.
func webFrames(body []byte) string {
	var s []string
	for len(body) >= 5 {
		n := int(body[1])<<24 | int(body[2])<<16 | int(body[3])<<8 | int(body[4])
		if len(body) < 5+n {
			break
		}
		text := string(body[5 : 5+n])
		if body[0]&0x80 != 0 {
			text = "[" + strings.ReplaceAll(strings.TrimSuffix(text, "\r\n"), "\r\n", "|") + "]"
		}
		s, body = append(s, text), body[5+n:]
	}
	if len(body) > 0 {
		s = append(s, fmt.Sprintf("and %q", body))
	}
	return strings.Join(s, " ")
}

// unpad reads base64 group by group, wherever it was padded.
func unpad(t *testing.T, text []byte) []byte {
	t.Helper()
	var out []byte
	for i := 0; i+4 <= len(text); i += 4 {
		b, err := base64.StdEncoding.DecodeString(string(text[i : i+4]))
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		out = append(out, b...)
	}
	if len(text)%4 != 0 {
		t.Errorf("%q breaks off", text)
	}
	return out
}

func enclose(text string) []byte { return append([]byte{0, 0, 0, 0, byte(len(text))}, text...) }

// webAnswer is an answer as either version of HTTP brought it.
type webAnswer struct {
	status int
	header http.Header
	body   []byte
	err    error
}

// askWeb sends a request of gRPC-Web over HTTP/1 or HTTP/2, its body in pieces.
func askWeb(r *rig, version int, method string, fields []string, pieces ...string) webAnswer {
	if version == 2 {
		c := r.dial2()
		head := []string{":method", method, ":scheme", "http", ":path", "/t.S/M", ":authority", "svc"}
		c.headers(1, len(pieces) == 0, with(head, fields...)...)
		for i, p := range pieces {
			c.data(1, i == len(pieces)-1, []byte(p))
		}
		e, body, trailers, err := c.answer(1)
		if err == nil && len(trailers.fields) > 0 {
			err = fmt.Errorf("trailers %v", trailers.fields)
		}
		a := webAnswer{header: http.Header{}, body: body, err: err}
		_, _ = fmt.Sscan(e.get(":status"), &a.status)
		for _, f := range e.fields {
			a.header.Add(f.Name, f.Value)
		}
		return a
	}
	c := r.dial1()
	fmt.Fprintf(c, "%s /t.S/M HTTP/1.1\r\nHost: svc\r\n", method)
	for i := 0; i < len(fields); i += 2 {
		fmt.Fprintf(c, "%s: %s\r\n", fields[i], fields[i+1])
	}
	if len(pieces) > 0 {
		fmt.Fprint(c, "Transfer-Encoding: chunked\r\n")
	}
	fmt.Fprint(c, "\r\n")
	for _, p := range pieces {
		fmt.Fprintf(c, "%x\r\n%s\r\n", len(p), p)
	}
	if len(pieces) > 0 {
		fmt.Fprint(c, "0\r\n\r\n")
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		return webAnswer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && len(resp.Trailer) > 0 {
		err = fmt.Errorf("trailers %v", resp.Trailer)
	}
	return webAnswer{resp.StatusCode, resp.Header, body, err}
}

// webOrigin is a server of gRPC that answers what it was asked for, and tells what came.
func webOrigin(t *testing.T, got chan<- string, reply func(p *peer, id uint32)) string {
	return serve2(t, nil, func(p *peer) {
		var body []byte
		for {
			e, err := p.next()
			if err != nil {
				return
			}
			body = append(body, e.data...)
			if e.kind == http2.FrameHeaders {
				body = nil
				select {
				case got <- strings.Join([]string{
					e.get(":path"), e.get("content-type"), "te " + e.get("te"), "length " + e.get("content-length"), e.get("accept") + e.get("x-grpc-web"), e.get("x-meta"),
				}, ", "):
				default:
				}
			}
			if !e.end {
				continue
			}
			select {
			case got <- webFrames(body):
			default:
			}
			reply(p, e.id)
		}
	})
}

// TestWeb: each kind of answer, for both codings, over both versions.
func TestWeb(t *testing.T) {
	const ct = "application/grpc+proto"
	good := func(p *peer, id uint32) {
		p.headers(id, false, ":status", "200", "content-type", ct, "x-head", "1")
		p.data(id, false, enclose("one"))
		p.moment()
		p.data(id, false, enclose("three")[:4])
		p.moment()
		p.data(id, false, enclose("three")[4:])
		p.headers(id, true, "grpc-status", "0", "x-tail-bin", "AAE")
	}
	for _, tc := range []struct {
		name  string
		reply func(p *peer, id uint32)
		want  string
	}{
		{"stream", good, "200, one three [grpc-status: 0|x-tail-bin: AAE]"},
		{"no message", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200", "content-type", ct)
			p.headers(id, true, "grpc-status", "7", "grpc-message", "no%20%E2%9C%93")
		}, "200, [grpc-status: 7|grpc-message: no%20%E2%9C%93]"},
		{"trailers only", func(p *peer, id uint32) {
			p.headers(id, true, ":status", "200", "content-type", ct, "grpc-status", "5", "grpc-message", "no%20such")
		}, "200 status 5 no%20such, "},
		{"no status", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200", "content-type", ct)
			p.data(id, true, enclose("x"))
		}, "200, x"},
		{"with a length", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200", "content-type", ct, "content-length", "8")
			p.data(id, false, enclose("abc"))
			p.headers(id, true, "grpc-status", "0")
		}, "200, abc [grpc-status: 0]"},
		{"cut", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200", "content-type", ct)
			p.data(id, false, enclose("abc"))
			p.moment()
			p.reset(id, http2.ErrCodeInternal)
		}, "200, abc [grpc-status: 14|grpc-message: upstream_reset"},
		{"an answer of HTTP", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "502", "content-type", "text/html")
			p.data(id, true, []byte("<p>"))
		}, "502 text/html, <p>"},
	} {
		for _, version := range []int{1, 2} {
			for _, typ := range []string{"application/grpc-web+proto", "application/grpc-web-text+proto"} {
				t.Run(fmt.Sprint(tc.name, " HTTP/", version, " ", typ), func(t *testing.T) {
					got := make(chan string, 2)
					r := newRig(t, setup{config: webConfig(""), origins: []string{webOrigin(t, got, tc.reply)}})
					text := strings.Contains(typ, "text")
					request := string(enclose("hello"))
					pieces := []string{request[:3], request[3:]}
					if text {
						request = base64.StdEncoding.EncodeToString(enclose("hello"))
						pieces = []string{request[:1], request[1:6], request[6:]}
					}
					a := askWeb(r, version, "POST", []string{"content-type", typ, "x-grpc-web", "1", "accept", typ, "x-meta", "m"}, pieces...)
					if a.err != nil {
						t.Fatal(a.err)
					}
					if head, message := <-got, <-got; head != "/t.S/M, application/grpc+proto, te trailers, length , , m" || message != "hello" {
						t.Errorf("the server got %q and %q", head, message)
					}
					s := fmt.Sprint(a.status)
					switch ct := a.header.Get("content-type"); {
					case ct != typ:
						s += " " + ct
						s += ", " + string(a.body)
					case text:
						a.body = unpad(t, a.body)
						fallthrough
					default:
						if st := a.header.Get("grpc-status"); st != "" {
							s += " status " + st + " " + a.header.Get("grpc-message")
						}
						s += ", " + webFrames(a.body)
					}
					if s != tc.want && !(strings.HasSuffix(tc.want, "upstream_reset") && strings.HasPrefix(s, tc.want)) {
						t.Errorf("%q, want %q", s, tc.want)
					}
					for name := range a.header {
						if strings.HasPrefix(strings.ToLower(name), "access-control-") {
							t.Errorf("%s without the knob", name)
						}
					}
					r.settled()
				})
			}
		}
	}
}

// TestWebRefusals: what is answered here, and what the body of a request may not be.
func TestWebRefusals(t *testing.T) {
	const web, text = "application/grpc-web+proto", "application/grpc-web-text"
	for _, tc := range []struct {
		name, web, method string
		fields            []string
		body              string
		want              string
	}{
		{"malformed base64", "", "POST", []string{"content-type", text}, "AAAA*", "200 13 bad_request: service svc: in the request body: malformed base64"},
		{"truncated base64", "", "POST", []string{"content-type", text}, "AAAAA", "200 13 bad_request: service svc: in the request body: the base64 breaks off in the middle of a group"},
		{"compressed", "", "POST", []string{"content-type", web, "content-encoding", "gzip"}, "x", "200 13 bad_request: service svc: content-encoding of a body of gRPC-Web is not supported"},
		{"deadline", "", "POST", []string{"content-type", web, "grpc-timeout", "50m"}, "\x00\x00\x00\x00\x00", "200 4 timeout: service svc: no response head in time"},
		{"not bridged", "grpc_web: none, ", "POST", []string{"content-type", web}, "\x00\x00\x00\x00\x00", "404  "},
		{"other method", "", "PUT", []string{"content-type", web}, "x", "404  "},
	} {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprint(tc.name, " HTTP/", version), func(t *testing.T) {
				origin := serve2(t, nil, func(p *peer) {
					for {
						if _, err := p.next(); err != nil {
							return
						}
					}
				})
				r := newRig(t, setup{config: webConfig(tc.web), origins: []string{origin}})
				a := askWeb(r, version, tc.method, tc.fields, tc.body)
				got := fmt.Sprint(a.status, " ", a.header.Get("grpc-status"), " ", a.header.Get("grpc-message"))
				if a.err != nil || got != tc.want {
					t.Errorf("%q, %v, want %q", got, a.err, tc.want)
				}
				if ct := a.header.Get("content-type"); a.status == 200 && ct != tc.fields[1] {
					t.Errorf("content-type %q", ct)
				}
				r.settled()
			})
		}
	}
}

// TestWebOrigins: what browsers are told about who may call, in answers to their question and to the calls.
func TestWebOrigins(t *testing.T) {
	origin := replying(t, func(p *peer, id uint32) {
		p.headers(id, false, ":status", "200", "content-type", "application/grpc", "x-own", "1", "access-control-allow-origin", "http://its.own")
		p.headers(id, true, "grpc-status", "0")
	})
	ask := []string{"access-control-request-method", "POST", "access-control-request-headers", "content-type,x-grpc-web"}
	for _, tc := range []struct {
		name, web, origin string
		preflight         bool
		want              string
	}{
		{"any", `grpc_web: {origins: "*"}, `, "https://a.test", true, "204 allow * methods POST headers content-type,x-grpc-web age 600 vary "},
		{"named", `grpc_web: {origins: ["https://a.test", "https://*.b.test"], max_age: 5s}, `, "https://x.b.test", true, "204 allow https://x.b.test methods POST headers content-type,x-grpc-web age 5 vary Origin"},
		{"with credentials", `grpc_web: {origins: "https://a.test", credentials: true}, `, "https://a.test", true, "204 allow https://a.test methods POST headers content-type,x-grpc-web age 600 credentials true vary Origin"},
		{"foreign", `grpc_web: {origins: "https://a.test"}, `, "https://evil.test", true, "403 forbidden allow methods headers age vary"},
		{"without the knob", "", "https://a.test", true, "404 allow methods headers age vary"},
		{"call, any", `grpc_web: {origins: "*"}, `, "https://a.test", false, "200 allow * expose grpc-status,grpc-message,content-type,x-own vary "},
		{"call, named", `grpc_web: {origins: "https://a.test", credentials: true}, `, "https://a.test", false, "200 allow https://a.test expose grpc-status,grpc-message,content-type,x-own credentials true vary Origin"},
		{"call, foreign", `grpc_web: {origins: "https://a.test"}, `, "https://evil.test", false, "200 allow expose vary Origin"},
		{"call, without the knob", "", "https://a.test", false, "200 allow http://its.own expose vary "},
	} {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprint(tc.name, " HTTP/", version), func(t *testing.T) {
				r := newRig(t, setup{config: webConfig(tc.web), origins: []string{origin}})
				var a webAnswer
				if tc.preflight {
					a = askWeb(r, version, "OPTIONS", with(ask, "origin", tc.origin))
				} else {
					a = askWeb(r, version, "POST", []string{"content-type", "application/grpc-web", "origin", tc.origin}, "\x00\x00\x00\x00\x00")
				}
				h := func(name string) string { return strings.TrimSpace(" " + strings.Join(a.header.Values(name), "; ")) }
				s := fmt.Sprint(a.status)
				if reason := h("x-sidecar-reason"); reason != "" {
					s += " " + reason
				}
				s += " allow " + h("access-control-allow-origin")
				if tc.preflight {
					s += " methods " + h("access-control-allow-methods") + " headers " + h("access-control-allow-headers") + " age " + h("access-control-max-age")
				} else {
					s += " expose " + h("access-control-expose-headers")
				}
				if c := h("access-control-allow-credentials"); c != "" {
					s += " credentials " + c
				}
				s = strings.Join(strings.Fields(s+" vary "+h("vary")), " ")
				want := strings.Join(strings.Fields(tc.want), " ")
				if a.err != nil || s != want {
					t.Errorf("%s, %v\nwant %s", s, a.err, want)
				}
				r.settled()
			})
		}
	}
}

// TestWebStreams: a message reaches the client while the call goes on, in base64 with padding in the middle too, and what a
// client sends reaches the server as it comes.
func TestWebStreams(t *testing.T) {
	arrived := make(chan struct{}, 8)
	step := make(chan struct{})
	origin := serve2(t, nil, func(p *peer) {
		for {
			e, err := p.next()
			if err != nil {
				return
			}
			if e.kind == http2.FrameData && len(e.data) > 0 {
				arrived <- struct{}{}
			}
			if e.kind == http2.FrameHeaders {
				go func() {
					p.headers(e.id, false, ":status", "200", "content-type", "application/grpc")
					for range 3 {
						p.data(e.id, false, enclose("ab"))
						<-step
					}
					p.headers(e.id, true, "grpc-status", "0")
				}()
			}
		}
	})
	for _, typ := range []string{"application/grpc-web", "application/grpc-web-text"} {
		t.Run(typ, func(t *testing.T) {
			r := newRig(t, setup{config: webConfig(""), origins: []string{origin}})
			c := r.dial2()
			c.headers(1, false, ":method", "POST", ":scheme", "http", ":path", "/t.S/M", ":authority", "svc", "content-type", typ)
			message := enclose("ab")
			want := string(message)
			if strings.Contains(typ, "text") {
				want = base64.StdEncoding.EncodeToString(message)
			}
			if !strings.HasPrefix(c.want("HEADERS#1 200").get("content-type"), typ) {
				t.Error("content-type")
			}
			for i := range 3 {
				c.data(1, i == 2, []byte(want))
				select {
				case <-arrived:
				case <-time.After(patience):
					t.Fatal("the server does not get what was sent")
				}
				if e := c.want(fmt.Sprintf("DATA#1 %d", len(want))); string(e.data) != want {
					t.Errorf("%q", e.data)
				}
				step <- struct{}{}
			}
			_, rest, _, err := c.answer(1)
			if strings.Contains(typ, "text") {
				rest = unpad(t, rest)
			}
			if got := webFrames(rest); err != nil && err.Error() != "RST#1 NO_ERROR" || got != "[grpc-status: 0]" {
				t.Errorf("%q %v", got, err)
			}
			r.settled()
		})
	}
}

// TestWebHangUp: a browser cancels a call over HTTP/1 by closing its connection, which ends the call at the server.
func TestWebHangUp(t *testing.T) {
	reset := make(chan http2.ErrCode, 1)
	begun := make(chan struct{}, 1)
	origin := serve2(t, nil, func(p *peer) {
		for {
			e, err := p.next()
			if err != nil {
				return
			}
			if e.kind == http2.FrameRSTStream {
				reset <- e.code
			}
			if e.end {
				p.headers(e.id, false, ":status", "200", "content-type", "application/grpc")
				begun <- struct{}{}
			}
		}
	})
	r := newRig(t, setup{config: webConfig(""), origins: []string{origin}})
	c := r.dial1()
	fmt.Fprint(c, "POST /t.S/M HTTP/1.1\r\nHost: svc\r\nContent-Type: application/grpc-web\r\nContent-Length: 5\r\n\r\n\x00\x00\x00\x00\x00")
	<-begun
	if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	select {
	case code := <-reset:
		if code != http2.ErrCodeCancel {
			t.Error(code)
		}
	case <-time.After(patience):
		t.Error("the call goes on")
	}
	r.settled()
}
