package h1

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// inPieces cuts b into pieces of n bytes.
func inPieces(b []byte, n int) (list [][]byte) {
	for len(b) > n {
		list, b = append(list, b[:n]), b[n:]
	}
	return append(list, b)
}

// TestReaderSequence (H1-CN-005, H1-ER-008): messages behind one another come out the same whatever the pieces: large and
// small heads, bodies of each kind, empty lines in between.
func TestReaderSequence(t *testing.T) {
	var in, want strings.Builder
	add := func(head, body, data string) {
		in.WriteString(head + body)
		fmt.Fprintf(&want, "%s %d\n", strings.Fields(head)[1], len(data))
	}
	big := strings.Repeat("0123456789abcdef", 5000)
	add(req("GET /a"), "", "")
	add(req("POST /b", "Content-Length: 5"), "hello", "hello")
	add(req("GET /c", "X: "+strings.Repeat("y", 20000)), "", "")
	add(req("POST /d", "Transfer-Encoding: chunked"), "5\r\nhello\r\n0\r\nX-Sum: a\r\n\r\n", "hello")
	add(req("POST /e", fmt.Sprint("Content-Length: ", len(big))), big, big)
	add("\r\n\r\n"+req("GET /f"), "", "")
	add(req("POST /g", "Transfer-Encoding: chunked"), fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(big), big), big)
	add(req("POST /h", "Content-Length: 0"), "", "")
	add(req("GET /i", "X: "+strings.Repeat("y", 9000)), "", "")
	add(req("GET /j"), "", "")

	all := []byte(in.String())
	for _, size := range []int{1, 2, 7, 100, 4096, 8192, 10000, 1 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			rd := newReader(inPieces(all, size))
			var got strings.Builder
			for {
				if err := rd.wait(time.Time{}); err != nil {
					break
				}
				line, data, err := readMessage(rd)
				if err != nil {
					break
				}
				fmt.Fprintf(&got, "%s %d\n", line, len(data))
				rd.next()
			}
			if got.String() != want.String() {
				t.Errorf("got\n%swant\n%s", got.String(), want.String())
			}
			rd.release()
		})
	}
}

// readMessage reads a request with its body.
func readMessage(rd *reader) (target, data string, err error) {
	head, err := rd.readHead(testLimits, true, time.Time{})
	if err != nil {
		return "", "", err
	}
	q, f := new(pipeline.Request), new(framing)
	if err := parseRequest(q, f, head, testLimits); err != nil {
		return "", "", err
	}
	var b body
	switch {
	case f.chunked:
		b.start(rd, bodyChunked, 0, false)
	case f.hasLength:
		b.start(rd, bodyLength, f.length, false)
	default:
		b.start(rd, bodyNone, 0, false)
	}
	var all strings.Builder
	for {
		p, err := b.Next(time.Time{})
		if errors.Is(err, io.EOF) {
			return strings.Clone(q.Target), all.String(), nil
		}
		if err != nil {
			return "", "", err
		}
		all.Write(p)
	}
}

// TestBodyToClose: a body that ends with its connection, and one that does not reach its length.
func TestBodyToClose(t *testing.T) {
	for _, tc := range []struct {
		id   string
		kind bodyKind
		in   string
		want string
		err  error
	}{
		{"H1-RS-009", bodyToClose, "hello", "hello", nil},
		{"H1-RS-011", bodyLength, "hello", "hello", errTruncated},
		{"H1-RS-012", bodyLength, "hello12345XXXX", "hello12345", nil},
	} {
		t.Run(tc.id, func(t *testing.T) {
			for _, list := range [][][]byte{whole([]byte(tc.in)), oneByOne([]byte(tc.in))} {
				rd := newReader(list)
				if err := rd.wait(time.Time{}); err != nil {
					t.Fatal(err)
				}
				var b body
				b.start(rd, tc.kind, 10, true)
				got := ""
				var err error
				for err == nil {
					var p []byte
					p, err = b.Next(time.Time{})
					got += string(p)
				}
				if errors.Is(err, io.EOF) {
					err = nil
				}
				if got != tc.want || !errors.Is(err, tc.err) {
					t.Errorf("%q, %v; want %q, %v", got, err, tc.want, tc.err)
				}
				rd.release()
			}
		})
	}
}
