package h1

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sidecar-mesh/sidecar/proxy/grammar"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// checkFields holds what was parsed to what may be sent on without harm.
func checkFields(t *testing.T, fields []pipeline.Field, taken []byte) {
	t.Helper()
	for _, f := range fields {
		if f.Name == "" || !grammar.All(f.Name, grammar.Token) || strings.ContainsAny(f.Value, "\x00\r\n\x7f") ||
			strings.TrimSpace(f.Value) != f.Value && strings.Trim(f.Value, " \t") != f.Value {
			t.Fatalf("field %q: %q", f.Name, f.Value)
		}
		if !bytes.Contains(taken, []byte(f.Name)) {
			t.Fatalf("field %q is not what came", f.Name)
		}
	}
}

// coarse forgets which of several faults was found: that may depend on the pieces.
func coarse(verdict string) string {
	if strings.HasPrefix(verdict, "status ") && verdict != "status -1" {
		return "refused"
	}
	return verdict
}

func FuzzRequestHead(f *testing.F) {
	for _, s := range []string{
		req("GET /a?b=c", "X-A: b", "Connection: X-A, close"), req("POST /", "Content-Length: 005", "Expect: 100-continue"),
		req("POST http://svc.test/x?y", "Transfer-Encoding: chunked", "TE: trailers"), req("CONNECT svc.test:443"),
		req("GET /", "Connection: upgrade", "Upgrade: h2c, websocket"), "GET / HTTP/1.0\r\n\r\n", "PRI * HTTP/2.0\r\n\r\n",
		"\r\n\r\n" + req("OPTIONS *"), req("GET /", "X: a\r\n b"), "GET / HTTP/1.1\nHost: a\n\n", req("GET /", "Connection:", "TE:"),
	} {
		f.Add([]byte(s), 7)
	}
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		if len(b) == 0 || len(b) > 1<<17 {
			return
		}
		want := coarse(requestVerdict(whole(bytes.Clone(b))))
		if got := coarse(requestVerdict(oneByOne(bytes.Clone(b)))); got != want {
			t.Fatalf("one by one: %s\nwhole: %s", got, want)
		}
		if got := coarse(requestVerdict(splitAt(bytes.Clone(b), cut%len(b)))); got != want {
			t.Fatalf("split: %s\nwhole: %s", got, want)
		}
		q, _, used, err := readRequestFrom(whole(bytes.Clone(b)))
		if err != nil {
			return
		}
		checkFields(t, q.Fields, b[:used])
		if q.HasBody && q.Length < pipeline.LengthUnknown || !q.HasBody && q.Length != 0 {
			t.Fatalf("body %v of length %d", q.HasBody, q.Length)
		}
		if q.Authority == "" {
			q.Authority = "svc.test" // as the pipeline does
			for i := range q.Fields {
				if q.Fields[i].ID == pipeline.FieldHost {
					q.Fields[i].Value = q.Authority
				}
			}
		}
		for i := range q.Fields {
			if q.Fields[i].ID == pipeline.FieldHost && !q.Fields[i].Drop {
				q.Fields[i].Value = q.Authority // likewise
			}
		}
		out := appendRequest(nil, q)
		again, f2, n, err := readRequestFrom(whole(bytes.Clone(out)))
		if err != nil || n != len(out) {
			t.Fatalf("the next hop: %v, %d of %d bytes of %q", err, n, len(out), out)
		}
		if again.Method != q.Method || again.Path != q.Path || again.Query != q.Query || again.HasQuery != q.HasQuery ||
			again.Authority != q.Authority || again.HasBody != q.HasBody || again.Length != q.Length ||
			again.Upgrade != q.Upgrade || again.Expect != q.Expect || again.TrailersWanted != q.TrailersWanted || !f2.persistent() {
			t.Fatalf("sent on as %q\n%+v\nbecame\n%+v", out, *q, *again)
		}
		if second := appendRequest(nil, again); !bytes.Equal(second, out) {
			t.Fatalf("sent on as\n%q, by the next hop as\n%q", out, second)
		}
	})
}

func FuzzResponseHead(f *testing.F) {
	for _, s := range []string{
		resp("200 OK", "Content-Length: 2", "Connection: X-Hop", "X-Hop: 1"), resp("204 No Content", "Transfer-Encoding: chunked"),
		resp("101 Switching Protocols", "Connection: upgrade", "Upgrade: websocket"), "HTTP/1.0 200\r\n\r\n", resp("304 Not Modified", "Content-Length: 5"),
		resp("200 OK", "Transfer-Encoding: chunked", "Trailer: X"), resp("200 caf\xe9"), "ICY 200 OK\r\n\r\n",
	} {
		f.Add([]byte(s), 5, false)
	}
	f.Fuzz(func(t *testing.T, b []byte, cut int, head bool) {
		if len(b) == 0 || len(b) > 1<<17 {
			return
		}
		method := "GET"
		if head {
			method = "HEAD"
		}
		want := coarse(responseVerdict(whole(bytes.Clone(b)), method))
		if got := coarse(responseVerdict(oneByOne(bytes.Clone(b)), method)); got != want {
			t.Fatalf("one by one: %s\nwhole: %s", got, want)
		}
		if got := coarse(responseVerdict(splitAt(bytes.Clone(b), cut%len(b)), method)); got != want {
			t.Fatalf("split: %s\nwhole: %s", got, want)
		}
		r, _, used, err := readResponseFrom(whole(bytes.Clone(b)), method)
		if err != nil {
			return
		}
		checkFields(t, r.Fields, b[:used])
		if r.Status < 100 || r.Status > 999 || r.Length < pipeline.LengthUnknown || r.NoBody && r.Length != 0 {
			t.Fatalf("%+v", *r)
		}
		c := &conn{f: framing{minor: 1}}
		framing := c.frame(r)
		out := appendStatus(nil, r.Status, r.Reason)
		out = append(appendFramed(out, r.Fields, framing, r.Length), "\r\n"...)
		again, f2, n, err := readResponseFrom(whole(bytes.Clone(out)), method)
		if err != nil || n != len(out) {
			t.Fatalf("the next hop: %v, %d of %d bytes of %q", err, n, len(out), out)
		}
		if again.Status != r.Status || again.NoBody != r.NoBody || again.Length != r.Length || again.KeepLength != r.KeepLength ||
			again.Status != 101 && !f2.persistent() {
			t.Fatalf("sent on as %q\n%+v\nbecame\n%+v", out, *r, *again)
		}
		second := appendStatus(nil, again.Status, again.Reason)
		second = append(appendFramed(second, again.Fields, c.frame(again), again.Length), "\r\n"...)
		if !bytes.Equal(second, out) {
			t.Fatalf("sent on as\n%q, by the next hop as\n%q", out, second)
		}
	})
}
