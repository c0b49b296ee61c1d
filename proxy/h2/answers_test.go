package h2_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// replying runs an origin of HTTP/2 that calls reply for each request that is complete.
func replying(t *testing.T, reply func(p *peer, id uint32)) string {
	return serve2(t, nil, func(p *peer) {
		for {
			e, err := p.next()
			if err != nil {
				return
			}
			if e.end {
				reply(p, e.id)
			}
		}
	})
}

// told sends a request over HTTP/2 and returns what came: the events of its stream until the end of that.
func told(c *peer, id uint32, fields ...string) string {
	c.headers(id, true, fields...)
	var s []string
	for {
		e, err := c.next()
		if err != nil {
			return strings.Join(append(s, err.Error()), ", ")
		}
		if e.id != id {
			continue
		}
		what := strings.Replace(e.String(), fmt.Sprint("#", id), "", 1)
		reason := e.get("x-sidecar-reason")
		if reason != "" {
			what += " " + reason
		}
		s = append(s, what)
		if e.end || e.kind == http2.FrameRSTStream || reason != "" { // what follows that is for people
			return strings.Join(s, ", ")
		}
	}
}

// told1 does the same over HTTP/1.
func told1(t *testing.T, r *rig, method string) string {
	nc := r.dial1()
	_, _ = io.WriteString(nc, method+" / HTTP/1.1\r\nHost: svc\r\n\r\n")
	in := bufio.NewReader(nc)
	for {
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return err.Error()
		}
		if resp.StatusCode < 200 {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		s := resp.Status[:3]
		if reason := resp.Header.Get("X-Sidecar-Reason"); reason != "" {
			return s + " " + reason
		}
		if len(body) > 0 {
			s += " " + string(body)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			s += " cut"
		} else if err != nil {
			s += " " + err.Error()
		}
		return s
	}
}

// TestAnswers is what becomes of answers, good and bad, on the way to clients of both versions (H2-CL-001 … 012, and how
// the codes of resets are told on).
func TestAnswers(t *testing.T) {
	head := func(fields ...string) func(*peer, uint32) {
		return func(p *peer, id uint32) { p.headers(id, true, fields...) }
	}
	resets := func(code http2.ErrCode) func(*peer, uint32) {
		return func(p *peer, id uint32) { p.reset(id, code) }
	}
	midway := func(end func(p *peer, id uint32)) func(*peer, uint32) {
		return func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200")
			p.data(id, false, []byte("half"))
			p.moment()
			end(p, id)
		}
	}
	for _, tc := range []struct {
		name, method string
		reply        func(*peer, uint32)
		two, one     string
	}{
		{"empty", "GET", head(":status", "200"), "HEADERS 200 ES", "200"},
		{"interim, body, trailers", "GET", func(p *peer, id uint32) { // H2-CL-005
			p.headers(id, false, ":status", "103", "link", "</a>")
			p.headers(id, false, ":status", "200")
			p.data(id, false, []byte("body"))
			p.headers(id, true, "x-end", "1")
		}, "HEADERS 103, HEADERS 200, DATA 4, HEADERS x-end=1 ES", "200 body"},
		{"trailers without a body", "GET", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200")
			p.headers(id, true, "x-end", "1")
		}, "HEADERS 200, HEADERS x-end=1 ES", "200"},
		{"filtered trailers", "GET", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200")
			p.headers(id, true, "content-length", "1", "set-cookie", "a", "x-end", "1")
		}, "HEADERS 200, HEADERS x-end=1 ES", "200"},
		{"no status", "GET", head("a", "b"), "HEADERS 502 upstream_protocol", "502 upstream_protocol"},
		{"status and path", "GET", head(":status", "200", ":path", "/"), "HEADERS 502 upstream_protocol", "502 upstream_protocol"},
		{"status abc", "GET", head(":status", "abc"), "HEADERS 502 upstream_protocol", "502 upstream_protocol"},
		{"status 99", "GET", head(":status", "99"), "HEADERS 502 upstream_protocol", "502 upstream_protocol"},
		{"101", "GET", head(":status", "101"), "HEADERS 502 upstream_protocol", "502 upstream_protocol"},              // H2-CL-002
		{"103 with the end", "GET", head(":status", "103"), "HEADERS 502 upstream_protocol", "502 upstream_protocol"}, // H2-CL-006
		{"connection", "GET", head(":status", "200", "connection", "close"), "HEADERS 502 upstream_protocol", "502 upstream_protocol"},
		{"DATA before a head", "GET", func(p *peer, id uint32) { p.data(id, true, []byte("x")) }, "HEADERS 502 upstream_protocol", "502 upstream_protocol"},
		{"short body", "GET", func(p *peer, id uint32) { // H2-CL-007
			p.headers(id, false, ":status", "200", "content-length", "10")
			p.data(id, false, []byte("half"))
			p.moment()
			p.data(id, true, nil)
		}, "HEADERS 200, DATA 4, RST INTERNAL_ERROR", "200 half cut"},
		{"long body", "GET", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200", "content-length", "4")
			p.data(id, false, []byte("half"))
			p.moment()
			p.data(id, true, []byte("more"))
		}, "HEADERS 200, DATA 4, RST INTERNAL_ERROR", "200 half"},
		{"trailers that do not end", "GET", midway(func(p *peer, id uint32) { p.headers(id, false, "x-end", "1") }), // H2-CL-010
			"HEADERS 200, DATA 4, RST INTERNAL_ERROR", "200 half cut"},
		{"HEAD", "HEAD", head(":status", "200", "content-length", "10"), "HEADERS 200 ES", "200"},
		{"HEAD with DATA", "HEAD", func(p *peer, id uint32) { // H2-CL-011
			p.headers(id, false, ":status", "200", "content-length", "4")
			p.data(id, true, []byte("body"))
		}, "HEADERS 200, RST INTERNAL_ERROR", "200"},
		{"204 with DATA", "GET", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "204")
			p.data(id, true, []byte("body"))
		}, "HEADERS 204, RST INTERNAL_ERROR", "204"},
		{"many interims", "GET", func(p *peer, id uint32) {
			for range 20 {
				p.headers(id, false, ":status", "103")
			}
		}, strings.Repeat("HEADERS 103, ", 16) + "HEADERS 502 upstream_protocol", "502 upstream_protocol"},
		{"even stream", "GET", func(p *peer, _ uint32) { p.headers(2, true, ":status", "200") }, "HEADERS 502 upstream_reset", "502 upstream_reset"}, // H2-CL-012
		{"push enabled", "GET", func(p *peer, _ uint32) { p.settings(http2.Setting{ID: http2.SettingEnablePush, Val: 1}) }, // H2-CL-004
			"HEADERS 502 upstream_reset", "502 upstream_reset"},
		{"push", "GET", func(p *peer, id uint32) {
			_ = p.out.WritePushPromise(http2.PushPromiseParam{StreamID: id, PromiseID: 2, BlockFragment: rq, EndHeaders: true})
		}, "HEADERS 502 upstream_reset", "502 upstream_reset"},
		{"CANCEL", "GET", resets(http2.ErrCodeCancel), "HEADERS 502 upstream_reset", "502 upstream_reset"},
		{"INTERNAL_ERROR", "GET", resets(http2.ErrCodeInternal), "HEADERS 502 upstream_reset", "502 upstream_reset"},
		{"NO_ERROR", "GET", resets(http2.ErrCodeNo), "HEADERS 502 upstream_reset", "502 upstream_reset"},
		{"CANCEL midway", "GET", midway(resets(http2.ErrCodeCancel)), "HEADERS 200, DATA 4, RST INTERNAL_ERROR", "200 half cut"},
		{"NO_ERROR midway", "GET", midway(resets(http2.ErrCodeNo)), "HEADERS 200, DATA 4, RST INTERNAL_ERROR", "200 half cut"},
		{"end midway", "GET", midway(func(p *peer, _ uint32) { _ = p.nc.Close() }), "HEADERS 200, DATA 4, RST INTERNAL_ERROR", "200 half cut"},
		{"NO_ERROR behind the whole", "GET", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200")
			p.data(id, true, []byte("body"))
			p.reset(id, http2.ErrCodeNo)
		}, "HEADERS 200, DATA 4, DATA 0 ES", "200 body"},
		{"large head", "GET", head(":status", "200", "x-a", strings.Repeat("a", 70_000)), "HEADERS 502 upstream_protocol", "502 upstream_protocol"},
		{
			"large trailers", "GET", midway(func(p *peer, id uint32) { p.headers(id, true, "x-a", strings.Repeat("a", 70_000)) }),
			"HEADERS 200, DATA 4, RST INTERNAL_ERROR", "200 half cut",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, setup{config: plain2, origins: []string{replying(t, tc.reply)}})
			fields := with(get[2:], ":method", tc.method)
			got := told(r.dial2(), 1, fields...)
			if got = strings.ReplaceAll(strings.ReplaceAll(got, "DATA 4 ES", "DATA 4, DATA 0 ES"), ", DATA 0, ", ", "); got != tc.two {
				t.Errorf("over HTTP/2: %s, want %s", got, tc.two)
			}
			if got := told1(t, r, tc.method); got != tc.one {
				t.Errorf("over HTTP/1: %s, want %s", got, tc.one)
			}
			r.settled()
		})
	}
}
