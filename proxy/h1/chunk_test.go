package h1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// readBody reads a chunked body. used is how many bytes it took, up to its end or to the error.
func readBody(list [][]byte, lenient bool) (data []byte, used int, trailers string, err error) {
	rd := newReader(list)
	if err := rd.wait(time.Time{}); err != nil {
		return nil, 0, "", err
	}
	var b body
	b.start(rd, bodyChunked, 0, lenient)
	for {
		p, err := b.Next(time.Time{})
		data = append(data, p...)
		if err != nil {
			for _, f := range b.Trailers() {
				trailers += f.Name + "=" + f.Value + ";"
			}
			used = int(rd.n) - rd.buffered()
			rd.release()
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return data, used, trailers, err
		}
	}
}

// bodyVerdict sums up what came of a body, as far as it must not depend on the pieces it came in.
func bodyVerdict(list [][]byte, lenient bool) string {
	data, used, trailers, err := readBody(list, lenient)
	if err != nil {
		return fmt.Sprintf("status %d behind %q", statusOf(err), data)
	}
	return fmt.Sprintf("%q trailers %q used %d", data, trailers, used)
}

func TestChunks(t *testing.T) {
	const bad, cut = -400, -1
	for _, tc := range []struct {
		id, in   string
		data     string
		rest     int // bytes left over, or bad, or cut
		trailers string
	}{
		{"H1-CK-001", "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", "hello world", 0, ""},
		{"H1-CK-002", "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789", 0, ""},
		{"leading zeros", "005\r\nhello\r\n000\r\n\r\n", "hello", 0, ""},
		{"empty", "0\r\n\r\n", "", 0, ""},
		{"a request behind it", "0\r\n\r\nGET", "", 3, ""},
		{"H1-ER-008", "1\r\nx\r\n0\r\nX-Sum: a\r\n\r\nGET / HTTP/1.1\r\n\r\n", "x", 18, "X-Sum=a;"},
		{"H1-CK-004", strings.Repeat("0", 2000) + "5\r\nhello\r\n0\r\n\r\n", "", bad, ""},
		{"H1-CK-007", "0x5\r\nhello\r\n0\r\n\r\n", "", bad, ""},
		{"H1-CK-009", "-5\r\nhello\r\n0\r\n\r\n", "", bad, ""},
		{"H1-CK-010", "0_5\r\nhello\r\n0\r\n\r\n", "", bad, ""},
		{"H1-CK-012", "5 \r\nhello\r\n0\r\n\r\n", "", bad, ""},
		{"leading space", " 5\r\nhello\r\n0\r\n\r\n", "", bad, ""},
		{"H1-CK-014", "5\nhello\r\n0\r\n\r\n", "", bad, ""},
		{"H1-CK-015", "5\r\nhello\n0\r\n\r\n", "hello", bad, ""},
		{"bare CR after size", "5\rhello\r\n0\r\n\r\n", "", bad, ""},
		{"H1-CK-019", "5;a=b\r\nhello\r\n0;z\r\n\r\n", "hello", 0, ""},
		{"quoted extension", "5;a=\"b;c\"\r\nhello\r\n0\r\n\r\n", "hello", 0, ""},
		{"H1-CK-022", "2;\nxx\r\n0\r\n\r\n", "", bad, ""},
		{"CR in extension", "2;a\rb\r\nxx\r\n0\r\n\r\n", "", bad, ""},
		{"H1-CK-023", "5;a\x00b\r\nhello\r\n0\r\n\r\n", "", bad, ""},
		{"H1-CK-024", "5;" + strings.Repeat("e", 20000) + "\r\nhello\r\n0\r\n\r\n", "", bad, ""},
		{"H1-CK-026", "5\r\nhello\r\n", "hello", cut, ""},
		{"cut in the data", "5\r\nhel", "hel", cut, ""},
		{"cut in the trailer", "0\r\nX-Sum: a\r\n", "", cut, ""},
		{"H1-CK-027", "5\r\nhello\r\n\r\n0\r\n\r\n", "hello", bad, ""},
		{"H1-CK-028", "Z\r\nhello\r\n0\r\n\r\n", "", bad, ""},
		{"H1-CK-029", "0\r\n" + req("GET /smug"), "", bad, ""},
		{"H1-CK-031", strings.Repeat("1;"+strings.Repeat("x", 200)+"\r\na\r\n", 400) + "0\r\n\r\n", strings.Repeat("a", 87), bad, ""},
		{"tiny chunks alone", strings.Repeat("1\r\na\r\n", 4000) + "0\r\n\r\n", strings.Repeat("a", 4000), 0, ""},
		{"data longer than its size", "3\r\nhello\r\n0\r\n\r\n", "hel", bad, ""},
		{"size of 16 digits", "1000000000000000\r\n", "", bad, ""},
		{"H1-TR-001", "5\r\nhello\r\n0\r\nX-Sum: abc\r\nX-B:  c \r\n\r\n", "hello", 0, "X-Sum=abc;X-B=c;"},
		{"H1-TR-009", "0\r\nX-Sum: a\r\n b\r\n\r\n", "", bad, ""},
		{"H1-TR-010", "0\r\nX-Sum: a\x00b\r\n\r\n", "", bad, ""},
		{"H1-TR-011", "0\r\nX-Sum: a\nX-B: c\r\n\r\n", "", bad, ""},
		{"H1-TR-012", "0\r\n" + strings.Repeat("X-0: y\r\n", 300) + "\r\n", "", bad, ""},
		{"H1-TR just so many", "0\r\n" + strings.Repeat("X: y\r\n", 32) + "\r\n", "", 0, strings.Repeat("X=y;", 32)},
		{"H1-TR-013", "0\r\nX-Big: " + strings.Repeat("y", 70000) + "\r\n\r\n", "", bad, ""},
	} {
		t.Run(tc.id, func(t *testing.T) {
			data, used, trailers, err := readBody(whole([]byte(tc.in)), false)
			if string(data) != tc.data {
				t.Errorf("data %q, want %q", data, tc.data)
			}
			switch tc.rest {
			case bad:
				if statusOf(err) < 400 {
					t.Errorf("error %v, want a refusal", err)
				}
			case cut:
				if !errors.Is(err, errTruncated) {
					t.Errorf("error %v, want %v", err, errTruncated)
				}
			default:
				if err != nil || len(tc.in)-used != tc.rest || trailers != tc.trailers {
					t.Errorf("%d left over, trailers %q, %v; want %d, %q", len(tc.in)-used, trailers, err, tc.rest, tc.trailers)
				}
			}
			checkSplits(t, []byte(tc.in), func(list [][]byte) string { return bodyVerdict(list, false) })
		})
	}
}

// TestChunksOfUpstreams: what is passed over in responses, and only there.
func TestChunksOfUpstreams(t *testing.T) {
	for _, in := range []string{"5 \r\nhello\r\n0\r\n\r\n", "5 \t \r\nhello\r\n0 \r\n\r\n", "5 ;a\r\nhello\r\n0\r\n\r\n"} {
		if data, _, _, err := readBody(whole([]byte(in)), true); err != nil || string(data) != "hello" {
			t.Errorf("%q: %q, %v", in, data, err)
		}
	}
	for _, in := range []string{"5 5\r\nhello\r\n0\r\n\r\n", " 5\r\nhello\r\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n"} {
		if data, _, _, err := readBody(whole([]byte(in)), true); statusOf(err) != 400 {
			t.Errorf("%q: %q, %v, want a refusal", in, data, err)
		}
	}
}

// A second decoder, written from RFC 9112 7.1 alone: by lines and expressions rather than by states.
var (
	sizeLine  = regexp.MustCompile(`^([0-9A-Fa-f]{1,15})(;[\t\x20-\x7e\x80-\xff]*)?$`)
	fieldLine = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\t\x20-\x7e\u0080-\u00ff]*$")
)

type verdict int

const (
	good verdict = iota
	wrong
	unfinished
	unsure // so near to a limit that the two may differ
)

func decodeStrictly(b []byte) (data []byte, used int, v verdict) {
	waste := 0
	for at := 0; ; {
		line, n, v := cutStrictly(b[at:])
		if v == good && len(line) > 4000 || v == unfinished && len(b)-at > 4000 {
			return data, 0, unsure
		}
		if v != good {
			return data, 0, v
		}
		m := sizeLine.FindSubmatch(latin1(line))
		if m == nil {
			return data, 0, wrong
		}
		size, err := strconv.ParseInt(string(m[1]), 16, 64)
		if err != nil {
			return data, 0, wrong
		}
		if waste = max(0, waste+n-16-int(size)); waste > 12<<10 {
			return data, 0, unsure
		}
		at += n
		if size == 0 {
			n, v := trailersStrictly(b[at:])
			return data, at + n, v
		}
		piece := b[at:min(len(b), at+int(min(size, 1<<40)))]
		data = append(data, piece...)
		at += len(piece)
		if int64(len(piece)) < size || len(b)-at < 2 {
			if at < len(b) && b[at] != '\r' && int64(len(piece)) == size {
				return data, 0, wrong
			}
			return data, 0, unfinished
		}
		if b[at] != '\r' || b[at+1] != '\n' {
			return data, 0, wrong
		}
		at += 2
	}
}

// latin1 lets expressions see bytes as characters.
func latin1(b []byte) []byte {
	var out []byte
	for _, c := range b {
		out = append(out, string(rune(c))...)
	}
	return out
}

// cutStrictly cuts off a line that ends with CRLF and has neither byte inside.
func cutStrictly(b []byte) (line []byte, n int, v verdict) {
	i := bytes.IndexAny(b, "\r\n")
	switch {
	case i < 0 || i == len(b)-1 && b[i] == '\r':
		return nil, 0, unfinished
	case b[i] == '\n' || b[i+1] != '\n':
		return nil, 0, wrong
	}
	return b[:i], i + 2, good
}

func trailersStrictly(b []byte) (used int, v verdict) {
	for count := 0; ; count++ {
		line, n, v := cutStrictly(b[used:])
		if v == unfinished && len(b) > 1000 || len(line) > 1000 || used > 8000 || count > 32 {
			return 0, unsure
		}
		if v != good {
			return 0, v
		}
		used += n
		if len(line) == 0 {
			return used, good
		}
		if !fieldLine.Match(latin1(line)) {
			// A whole section is judged at its end; until then it may be unfinished.
			if v := restStrictly(b[used:]); v != good {
				return 0, v
			}
			return 0, wrong
		}
	}
}

// restStrictly looks whether a trailer section ends at all.
func restStrictly(b []byte) verdict {
	for {
		line, n, v := cutStrictly(b)
		if v != good {
			return v
		}
		if b = b[n:]; len(line) == 0 {
			return good
		}
	}
}

func FuzzChunks(f *testing.F) {
	for _, s := range []string{
		"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX-Sum: a\r\n\r\nrest", "0\r\n\r\n", "1\r\na\r\n\r\n", "5 \r\n", "0\r\n\nX: y\r\n\r\n",
		"0\r\nX: y\r\n z\r\n\r\n", "fffffffffffffff\r\n", "0;\r\n\r\n",
	} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		if len(b) == 0 || len(b) > 1<<16 {
			return
		}
		data, used, _, err := readBody(whole(b), false)
		if len(data) > len(b) || used > len(b) {
			t.Fatalf("%d bytes of data, %d used, out of %d", len(data), used, len(b))
		}
		wantData, wantUsed, v := decodeStrictly(b)
		switch {
		case v == unsure:
		case v == good && (err != nil || !bytes.Equal(data, wantData) || used != wantUsed):
			t.Fatalf("%q, %d used, %v; want %q, %d", data, used, err, wantData, wantUsed)
		case v == wrong && statusOf(err) < 400:
			t.Fatalf("%q, %v; want a refusal", data, err)
		case v == unfinished && err == nil:
			t.Fatalf("%q is whole, want unfinished", data)
		}
		want := bodyVerdict(whole(b), false)
		if got := bodyVerdict(oneByOne(b), false); got != want {
			t.Fatalf("one by one: %s\nwhole: %s", got, want)
		}
		if got := bodyVerdict(splitAt(b, cut%len(b)), false); got != want {
			t.Fatalf("split: %s\nwhole: %s", got, want)
		}
	})
}
