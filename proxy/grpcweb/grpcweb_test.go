package grpcweb

import (
	"bytes"
	"encoding/base64"
	"errors"
	"testing"
)

func TestTypes(t *testing.T) {
	for _, tc := range []struct {
		in, accept, grpc, answered, want string
		ok                               bool
	}{
		{"application/grpc-web", "", "application/grpc", "application/grpc", "application/grpc-web", true},
		{"application/grpc-web+proto", "", "application/grpc+proto", "application/grpc", "application/grpc-web+proto", true},
		{"Application/GRPC-Web+json", "*/*", "application/grpc+json", "application/grpc+json", "application/grpc-web+json", true},
		{"application/grpc-web;charset=utf-8", "", "application/grpc;charset=utf-8", "application/grpc+proto", "application/grpc-web+proto", true},
		{"application/grpc-web-text", "", "application/grpc", "application/grpc", "application/grpc-web-text", true},
		{"application/grpc-web-text+proto", "application/grpc-web-text", "application/grpc+proto", "application/grpc", "application/grpc-web-text+proto", true},
		{"application/grpc-web-text-base64", "", "application/grpc", "application/grpc+proto", "application/grpc-web-text+proto", true},
		{"application/grpc-web+proto", "text/html, application/grpc-web-text;q=0.9", "application/grpc+proto", "application/grpc", "application/grpc-web-text+proto", true},
		{"application/grpc-web-text", "application/grpc-web", "application/grpc", "application/grpc", "application/grpc-web", true},
		{in: "application/grpc"},
		{in: "application/grpc+proto"},
		{in: "application/grpc-webfoo"},
		{in: "application/grpc-web-textual"},
		{in: "application/grpc-we"},
		{in: ""},
	} {
		typ, ok := Parse(tc.in)
		if ok != tc.ok {
			t.Errorf("%q: %v", tc.in, ok)
		}
		if !ok {
			continue
		}
		if got := typ.GRPC(); got != tc.grpc {
			t.Errorf("%q is %q in gRPC", tc.in, got)
		}
		if got := typ.AnswerType(typ.AnswerAsText(tc.accept), tc.answered); got != tc.want {
			t.Errorf("%q, accepting %q, answered with %q: %q", tc.in, tc.accept, tc.answered, got)
		}
	}
}

// TestDecode cuts each body at every place.
func TestDecode(t *testing.T) {
	for _, tc := range []struct {
		in, want string
		err      error
	}{
		{"", "", nil},
		{"AAAA", "\x00\x00\x00", nil},
		{"YWJj", "abc", nil},
		{"YWI=", "ab", nil},
		{"YQ==", "a", nil},
		{"YQ==YWI=YWJjYQ==", "aababca", nil},
		{"+/+/", "\xfb\xff\xbf", nil},
		{"YWJ", "", ErrTruncated},
		{"YWJjYQ=", "abc", ErrTruncated},
		{"YQ", "", ErrTruncated},
		{"Y", "", ErrTruncated},
		{"=QQQ", "", ErrBase64},
		{"Y===", "", ErrBase64},
		{"YQ=Q", "", ErrBase64},
		{"YWJj\n", "abc", ErrBase64},
		{"YW Jj", "", ErrBase64},
		{"-_-_", "", ErrBase64},
		{"====", "", ErrBase64},
		{"YWJjé", "abc", ErrBase64},
	} {
		for cut := range len(tc.in) + 1 {
			var d Decoder
			got, err := d.Decode(nil, []byte(tc.in[:cut]))
			if err == nil {
				got, err = d.Decode(got, []byte(tc.in[cut:]))
			}
			if err == nil {
				err = d.End()
			}
			if string(got) != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%q cut at %d: %q, %v", tc.in, cut, got, err)
			}
		}
	}
}

func TestTrailers(t *testing.T) {
	b := BeginTrailers([]byte("before"))
	b = AppendTrailer(b, "Grpc-Status", "5")
	b = AppendTrailer(b, "grpc-message", "no%20such: x")
	b = EndTrailers(b, len("before"))
	if want := "before\x80\x00\x00\x00\x2cgrpc-status: 5\r\ngrpc-message: no%20such: x\r\n"; string(b) != want {
		t.Errorf("%q, want %q", b, want)
	}
}

func TestOrigins(t *testing.T) {
	for _, tc := range []struct {
		pattern, origin string
		want            bool
	}{
		{"*", "https://any.test", true},
		{"https://shop.test", "https://shop.test", true},
		{"https://shop.test", "http://shop.test", false},
		{"https://shop.test", "https://shop.test:8443", false},
		{"https://shop.test:8443", "https://shop.test:8443", true},
		{"https://*.shop.test", "https://a.shop.test", true},
		{"https://*.shop.test", "https://a.b.shop.test", true},
		{"https://*.shop.test", "https://shop.test", false},
		{"https://*.shop.test", "https://.shop.test", false},
		{"https://*.shop.test", "https://evilshop.test", false},
		{"https://*.shop.test", "http://a.shop.test", false},
		{"https://*.shop.test", "https://a.shop.test.evil", false},
		{"https://shop.test", "null", false},
	} {
		if got := Allows([]string{"https://other.test", tc.pattern}, tc.origin); got != tc.want {
			t.Errorf("%s for %s: %v", tc.pattern, tc.origin, got)
		}
	}
}

// FuzzBase64 writes bytes in pieces, padding in between, and reads them back in other pieces; and whatever we accept, so
// does the standard library, group by group.
func FuzzBase64(f *testing.F) {
	f.Add([]byte("any carnal pleasure"), uint8(5), uint8(3))
	f.Add([]byte("YQ==YWI="), uint8(1), uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, cut, pad uint8) {
		step := int(cut)%7 + 1
		var e Encoder
		var text []byte
		for i, n := 0, 0; i < len(data); i, n = i+step, n+1 {
			text = e.Encode(text, data[i:min(i+step, len(data))])
			if pad > 0 && n%int(pad) == 0 {
				text = e.Pad(text)
			}
		}
		text = e.Pad(text)
		if len(text) > 4*len(data) || pad == 0 && string(text) != base64.StdEncoding.EncodeToString(data) {
			t.Fatalf("%q became %q", data, text)
		}
		var d Decoder
		var back []byte
		var err error
		for len(text) > 0 && err == nil {
			n := min(step+1, len(text))
			back, err = d.Decode(back, text[:n])
			text = text[n:]
		}
		if err != nil || d.End() != nil || !bytes.Equal(back, data) {
			t.Fatalf("%q came back as %q, %v", data, back, err)
		}

		d = Decoder{}
		got, err := d.Decode(nil, data)
		if err != nil || d.End() != nil {
			return
		}
		var want []byte
		for i := 0; i < len(data); i += 4 {
			group, err := base64.StdEncoding.DecodeString(string(data[i : i+4]))
			if err != nil {
				t.Fatalf("%q was accepted: %v", data[i:i+4], err)
			}
			want = append(want, group...)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%q was read as %q, not %q", data, got, want)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	text := []byte(base64.StdEncoding.EncodeToString(make([]byte, 12<<10)))
	out := make([]byte, 0, len(text))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		var d Decoder
		out, _ = d.Decode(out[:0], text)
	}
}

func BenchmarkEncode(b *testing.B) {
	data := make([]byte, 12<<10)
	out := make([]byte, 0, 20<<10)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		var e Encoder
		out = e.Encode(out[:0], data)
	}
}
