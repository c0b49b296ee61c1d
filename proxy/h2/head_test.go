package h2

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

var testLimits = &Limits{HeaderBytes: 60 << 10, HeaderCount: 100}

// list makes fields of names and values in turn.
func list(s ...string) (fields []entry) {
	for i := 0; i < len(s); i += 2 {
		fields = append(fields, newEntry(s[i], s[i+1]))
	}
	return fields
}

// request reads fields as those of a request.
func request(fields []entry, end bool) (*pipeline.Request, string) {
	h, q := newHead(), new(pipeline.Request)
	defer h.release()
	h.end = end
	for i := range fields {
		h.add(&fields[i], testLimits)
	}
	if h.tooMuch {
		return nil, "too much"
	}
	return q, h.request(q)
}

func response(fields []entry, end bool, method string) (*pipeline.Response, string) {
	h, r := newHead(), new(pipeline.Response)
	defer h.release()
	h.end = end
	for i := range fields {
		h.add(&fields[i], testLimits)
	}
	return r, h.response(r, method)
}

// sent is what is sent on of a message: its fields but for those that are dropped.
func sent(fields []pipeline.Field) (s []string) {
	for _, f := range fields {
		if !f.Drop {
			s = append(s, f.Name, f.Value)
		}
	}
	return s
}

func TestRequestHeads(t *testing.T) {
	base := []string{":method", "GET", ":scheme", "http", ":path", "/", ":authority", "svc.test"}
	without := func(name string) []string {
		i := slices.Index(base, name)
		return slices.Concat(base[:i], base[i+2:])
	}
	set := func(name, value string) []string { return append(without(name), name, value) }
	and := func(more ...string) []string { return slices.Concat(base, more) }
	const accepted = ""
	for _, tc := range []struct {
		name, problem string
		fields        []string
	}{
		{"plain", accepted, base},
		{"upper case name", "malformed field name", and("X-A", "b")},                                     // H2-HM-001
		{"connection", "connection field connection", and("connection", "close")},                        // H2-HM-002
		{"transfer-encoding", "connection field transfer-encoding", and("transfer-encoding", "chunked")}, // DG-001
		{"te gzip", "te other than trailers", and("te", "gzip")},
		{"te trailers", accepted, and("te", "trailers")},
		{"te list", "te other than trailers", and("te", "trailers, gzip")},
		{"two lengths", "malformed content-length", and("content-length", "5", "content-length", "6")},
		{"the same length twice", accepted, and("content-length", "0", "content-length", "0")},
		{"signed length", "malformed content-length", and("content-length", "+5")},
		{"length list", "malformed content-length", and("content-length", "5, 5")},
		{"empty length", "malformed content-length", and("content-length", "")},
		{"huge length", "malformed content-length", and("content-length", "99999999999999999999")},
		{"CRLF in a value", "malformed value of field x-a", and("x-a", "b\r\ntransfer-encoding: chunked")},
		{"colon in a name", "malformed field name", and("x-a: b\r\nfoo", "c")},
		{"NUL in a value", "malformed value of field x-a", and("x-a", "b\x00c")},
		{"leading space", "malformed value of field x-a", and("x-a", " b")},
		{"trailing tab", "malformed value of field x-a", and("x-a", "b\t")},
		{"inner space", accepted, and("x-a", "b c\td")},
		{"octets above ASCII", accepted, and("x-a", "\xff\x80")},
		{"empty name", "malformed field name", and("", "b")},
		{"name with a space", "malformed field name", and("content-length ", "5")},
		{"name with a tab", "malformed field name", and("x\ty", "5")},
		{"method with a space", "malformed :method", set(":method", "GET /x HTTP/1.1")},
		{"empty method", "malformed :method", set(":method", "")},
		{"lower-case method", accepted, set(":method", "get")},
		{"scheme with junk", "malformed :scheme", set(":scheme", "http://x/?a")},
		{"userinfo", "malformed :authority", set(":authority", "u@svc.test")},
		{"slash in authority", "malformed :authority", set(":authority", "svc.test/x")},
		{"space in authority", "malformed :authority", set(":authority", "svc.test x")},
		{"empty authority", "malformed :authority", set(":authority", "")},
		{"no authority", "malformed :authority", without(":authority")},
		{"large port", "malformed :authority", set(":authority", "svc.test:65536")},
		{"different host", "host differs from :authority", and("host", "evil.test")},
		{"same host", accepted, and("host", "SVC.test")},
		{"two hosts", "host differs from :authority", append(without(":authority"), "host", "svc.test", "host", "evil.test")},
		{"host alone", accepted, append(without(":authority"), "host", "svc.test")},
		{"no method", "malformed :method", without(":method")},
		{"no scheme", "malformed :scheme", without(":scheme")},
		{"no path", "malformed :path", without(":path")},
		{"empty path", "malformed :path", set(":path", "")},
		{"relative path", "malformed :path", set(":path", "x")},
		{"absolute target", "malformed :path", set(":path", "http://evil/")},
		{"path with a space", "malformed :path", set(":path", "/a b")},
		{"path with a fragment", "malformed :path", set(":path", "/a#b")},
		{"path above ASCII", "malformed :path", set(":path", "/\xc3")},
		{"asterisk with GET", "malformed :path", set(":path", "*")},
		{"asterisk with OPTIONS", accepted, []string{":method", "OPTIONS", ":scheme", "http", ":path", "*", ":authority", "svc.test"}},
		{"pseudo behind a field", "pseudo-field behind a field", append([]string{"x-a", "b"}, base...)},
		{"pseudo twice", "pseudo-field given twice", and(":path", "/")},
		{"unknown pseudo", "unknown pseudo-field", and(":foo", "b")},
		{"status", ":status in a request", and(":status", "200")},
		{"protocol on a GET", "malformed :protocol", and(":protocol", "websocket")},
		{"CONNECT", accepted, []string{":method", "CONNECT", ":authority", "svc.test:443"}},
		{"CONNECT with a path", "CONNECT with other pseudo-fields than :method and :authority", set(":method", "CONNECT")},
		{"extended CONNECT", accepted, append(set(":method", "CONNECT"), ":protocol", "websocket")},
		{"extended CONNECT without a path", "malformed :path", []string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "a"}},
		{"extended CONNECT without a scheme", "malformed :scheme", []string{":method", "CONNECT", ":protocol", "websocket", ":path", "/", ":authority", "a"}},
		{"protocol with CRLF", "malformed :protocol", append(set(":method", "CONNECT"), ":protocol", "websocket\r\nx: y")},
		{"upgrade", "connection field upgrade", and("upgrade", "h2c")},
		{"proxy-connection", "connection field proxy-connection", and("proxy-connection", "keep-alive")},
		{"keep-alive", "connection field keep-alive", and("keep-alive", "1")},
		{"101 fields", accepted, and(slices.Repeat([]string{"a", "b"}, 96)...)},
		{"1200 crumbs", "too much", and(slices.Repeat([]string{"cookie", "a=1"}, 1200)...)}, // H2-HM-039
		{"200 empty names", "too much", and(slices.Repeat([]string{"", ""}, 200)...)},       // H2-DS-012
		{"a large field", "too much", and("a", strings.Repeat("b", 60<<10))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, problem := request(list(tc.fields...), true); problem != tc.problem {
				t.Errorf("%q, want %q", problem, tc.problem)
			}
		})
	}
}

func TestRequestHeadsMean(t *testing.T) {
	q, problem := request(list(":method", "POST", ":scheme", "https", ":path", "/a?b?c", ":authority", "svc.test:8080", "cookie", "a=1",
		"x-a", "", "host", "svc.test:8080", "cookie", "b=2", "te", "trailers", "expect", "100-continue", "content-length", "5",
		"http2-settings", "x", "cookie", "c=3"), false)
	if problem != "" {
		t.Fatal(problem)
	}
	want := []string{"cookie", "a=1; b=2; c=3", "x-a", "", "content-length", "5"}
	if got := sent(q.Fields); !slices.Equal(got, want) {
		t.Errorf("fields %q", got)
	}
	if q.Method != "POST" || q.Path != "/a" || q.Query != "b?c" || !q.HasQuery || q.Authority != "svc.test:8080" || !q.TrailersWanted ||
		!q.Expect || q.Length != 5 || !q.HasBody || q.Scheme != "http" {
		t.Errorf("%+v", q)
	}
	for _, tc := range []struct {
		method  string
		end     bool
		hasBody bool
		length  int64
	}{
		{"GET", true, false, 0}, {"POST", true, true, 0}, {"GET", false, true, pipeline.LengthUnknown}, {"DELETE", true, false, 0},
	} {
		q, problem := request(list(":method", tc.method, ":scheme", "http", ":path", "/", ":authority", "a"), tc.end)
		if problem != "" || q.HasBody != tc.hasBody || q.Length != tc.length {
			t.Errorf("%+v: body %v of %d, %s", tc, q.HasBody, q.Length, problem)
		}
	}
}

func TestResponseHeads(t *testing.T) {
	for _, tc := range []struct {
		name, problem, method string
		end                   bool
		fields                []string
		length                int64
		noBody, keep          bool
	}{
		{"plain", "", "GET", false, []string{":status", "200", "content-length", "5"}, 5, false, false},
		{"unknown length", "", "GET", false, []string{":status", "200"}, -1, false, false},
		{"at its end", "", "GET", true, []string{":status", "200"}, 0, false, false},
		{"short", "body shorter than content-length", "GET", true, []string{":status", "200", "content-length", "5"}, 0, false, false},
		{"HEAD", "", "HEAD", true, []string{":status", "200", "content-length", "5"}, 5, true, true},
		{"304", "", "GET", true, []string{":status", "304", "content-length", "5"}, 5, true, true},
		{"204", "", "GET", true, []string{":status", "204", "content-length", "0"}, 0, true, false},
		{"103", "", "GET", false, []string{":status", "103", "link", "x"}, -1, true, false},
		{"103 at its end", "interim response that ends the stream", "GET", true, []string{":status", "103"}, 0, false, false},
		{"101", "malformed :status", "GET", false, []string{":status", "101"}, 0, false, false},
		{"no status", "malformed :status", "GET", true, []string{"a", "b"}, 0, false, false},
		{"status and path", "malformed :status", "GET", true, []string{":status", "200", ":path", "/"}, 0, false, false},
		{"abc", "malformed :status", "GET", true, []string{":status", "abc"}, 0, false, false},
		{"99", "malformed :status", "GET", true, []string{":status", "99"}, 0, false, false},
		{"099", "malformed :status", "GET", true, []string{":status", "099"}, 0, false, false},
		{"2000", "malformed :status", "GET", true, []string{":status", "2000"}, 0, false, false},
		{"20x", "malformed :status", "GET", true, []string{":status", "20x"}, 0, false, false},
		{"connection", "connection field connection", "GET", true, []string{":status", "200", "connection", "x"}, 0, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, problem := response(list(tc.fields...), tc.end, tc.method)
			if problem != tc.problem {
				t.Fatalf("%q, want %q", problem, tc.problem)
			}
			if problem == "" && (r.Length != tc.length || r.NoBody != tc.noBody || r.KeepLength != tc.keep) {
				t.Errorf("%+v", r)
			}
		})
	}
}

var (
	okName  = regexp.MustCompile("^[!#$%&'*+\\-.^_`|~0-9a-z]+$")
	okValue = regexp.MustCompile("^([\\x21-\\x7e\\x80-\\xff]([\\x20-\\x7e\\x80-\\xff\t]*[\\x21-\\x7e\\x80-\\xff])?)?$")
	okHost  = regexp.MustCompile(`^([-0-9A-Za-z._~!$&'()*+;=%]+|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?$`)
)

// latin makes runes of octets, for the expressions above.
func latin(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

func checkSent(t *testing.T, fields []pipeline.Field) {
	t.Helper()
	lengths := 0
	for _, f := range fields {
		if !okName.MatchString(f.Name) || !okValue.MatchString(latin(f.Value)) {
			t.Fatalf("field %q: %q", f.Name, f.Value)
		}
		if f.Drop {
			continue
		}
		switch f.Name {
		case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te", "http2-settings":
			t.Fatalf("field %q is sent on", f.Name)
		case "content-length":
			if lengths++; lengths > 1 || strings.Trim(f.Value, "0123456789") != "" || f.Value == "" {
				t.Fatalf("content-length %q", f.Value)
			}
		}
	}
}

// FuzzHead reads fields of any kind as all three kinds of heads: what RFC 9113 8.2 and 8.3 forbid never passes.
func FuzzHead(f *testing.F) {
	for _, s := range []string{
		":method\x01GET\x02:scheme\x01http\x02:path\x01/\x02:authority\x01a\x02cookie\x01a=1\x02cookie\x01b=2",
		":method\x01POST\x02:scheme\x01https\x02:path\x01/a?b\x02host\x01a:1\x02content-length\x015\x02te\x01trailers",
		":method\x01CONNECT\x02:authority\x01a:443", ":status\x01200\x02content-length\x013\x02x\x01 y",
		":method\x01CONNECT\x02:protocol\x01websocket\x02:scheme\x01http\x02:path\x01/\x02:authority\x01[::1]:1",
		":status\x01103\x02link\x01\xff", "x\x01y\x02:a\x01b", ":method\x01GET\x02:scheme\x01http\x02:path\x01/\x02:authority\x01a\x02cookie\x01\x02cookie\x01", ":method\x01OPTIONS\x02:scheme\x01http\x02:path\x01*\x02:authority\x01a",
	} {
		f.Add(s, true, false)
		f.Add(s, false, true)
	}
	f.Fuzz(func(t *testing.T, s string, end, isHead bool) {
		var fields []entry
		for _, one := range strings.Split(s, "\x02") {
			name, value, _ := strings.Cut(one, "\x01")
			fields = append(fields, newEntry(name, value))
		}
		if q, problem := request(fields, end); problem == "" {
			checkSent(t, q.Fields)
			if !okName.MatchString(strings.ToLower(q.Method)) || !okHost.MatchString(q.Authority) ||
				q.Method != "CONNECT" && !strings.HasPrefix(q.Target, "/") && q.Target != "*" ||
				strings.ContainsFunc(q.Target, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }) {
				t.Fatalf("%+v", q)
			}
			for _, f := range q.Fields {
				if f.ID == pipeline.FieldHost && !f.Drop && !strings.EqualFold(f.Value, q.Authority) {
					t.Fatalf("host %q, authority %q", f.Value, q.Authority)
				}
			}
			seen := map[string]bool{}
			for _, f := range fields {
				if strings.HasPrefix(f.Name, ":") && seen[f.Name] {
					t.Fatalf("%s twice", f.Name)
				}
				seen[f.Name] = true
			}
		}
		method := "GET"
		if isHead {
			method = "HEAD"
		}
		if r, problem := response(fields, end, method); problem == "" {
			checkSent(t, r.Fields)
			if r.Status < 100 || r.Status > 999 || r.Status == 101 {
				t.Fatalf("%+v", r)
			}
		}
		h := newHead()
		defer h.release()
		h.end = end
		for i := range fields {
			h.add(&fields[i], testLimits)
		}
		if h.trailers() == "" {
			checkSent(t, h.fields)
			if !end || strings.HasPrefix(s, ":") || strings.Contains(s, "\x02:") {
				t.Fatalf("trailers %q", s)
			}
		}
	})
}

// TestPlainFields: what a table calls plain means no more to a head than a field that it sends on, and nothing is wrong with it.
func TestPlainFields(t *testing.T) {
	names := []string{"x", "X", "", "a b", "x-request-id", "grpc-status", "cookie", "te", "expect", "content-length", "proxy", "proxy-authorization", "http2-settings", "x-sidecar-offline", "x-sidecar-reason", "x_request_id"}
	for i := range static {
		names = append(names, static[i].Name)
	}
	names = append(names, "connection", "keep-alive", "proxy-connection", "upgrade", "trailer", "forwarded", "traceparent")
	for _, name := range names {
		for _, value := range []string{"", "1", "trailers", "100-continue", " x", "a\x00b"} {
			e := newEntry(name, value)
			if !e.plain {
				continue
			}
			h, want := &head{length: -1}, &head{length: -1, fields: []pipeline.Field{e.Field}}
			h.special(e.Field)
			if !reflect.DeepEqual(h, want) {
				t.Errorf("%s: %q is plain and makes %+v", name, value, h)
			}
		}
	}
}
