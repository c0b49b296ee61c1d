package h1

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

var testLimits = headLimits{bytes: 60 << 10, count: 100}

// pieces is a connection that delivers given pieces, one each read, and then ends. Nothing else of it is used.
type pieces struct {
	net.Conn
	left [][]byte
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.left[0])
	if p.left[0] = p.left[0][n:]; len(p.left[0]) == 0 {
		p.left = p.left[1:]
	}
	return n, nil
}

func (p *pieces) SetReadDeadline(time.Time) error { return nil }
func (p *pieces) Close() error                    { return nil }

func whole(b []byte) [][]byte { return [][]byte{b} }

func oneByOne(b []byte) [][]byte {
	list := make([][]byte, len(b))
	for i := range b {
		list[i] = b[i : i+1]
	}
	return list
}

func splitAt(b []byte, i int) [][]byte {
	if i <= 0 || i >= len(b) {
		return whole(b)
	}
	return [][]byte{b[:i], b[i:]}
}

func newReader(list [][]byte) *reader { return &reader{c: netio.New(&pieces{left: list})} }

// readRequestFrom reads a head as a server does. used is how many bytes it took.
func readRequestFrom(list [][]byte) (q *pipeline.Request, f *framing, used int, err error) {
	rd := newReader(list)
	if err := rd.wait(time.Time{}); err != nil {
		return nil, nil, 0, err
	}
	head, err := rd.readHead(testLimits, true, time.Time{})
	if err != nil {
		return nil, nil, 0, err
	}
	q, f = new(pipeline.Request), new(framing)
	err = parseRequest(q, f, head, testLimits)
	return q, f, int(rd.n) - rd.buffered(), err
}

func readResponseFrom(list [][]byte, method string) (r *pipeline.Response, f *framing, used int, err error) {
	rd := newReader(list)
	if err := rd.wait(time.Time{}); err != nil {
		return nil, nil, 0, err
	}
	head, err := rd.readHead(testLimits, false, time.Time{})
	if err != nil {
		return nil, nil, 0, err
	}
	r, f = new(pipeline.Response), new(framing)
	err = parseResponse(r, f, head, testLimits, method)
	return r, f, int(rd.n) - rd.buffered(), err
}

// statusOf is what a peer is told: 0 when all is well, -1 when it is not the peer's protocol that failed.
func statusOf(err error) int {
	var pe *pipeline.ProtocolError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &pe):
		return pe.Status
	}
	return -1
}

func requestVerdict(list [][]byte) string {
	q, f, used, err := readRequestFrom(list)
	if err != nil {
		return fmt.Sprint("status ", statusOf(err))
	}
	return fmt.Sprintf("%d %+v %+v", used, *q, *f)
}

func responseVerdict(list [][]byte, method string) string {
	r, f, used, err := readResponseFrom(list, method)
	if err != nil {
		return fmt.Sprint("status ", statusOf(err))
	}
	return fmt.Sprintf("%d %+v %+v", used, *r, *f)
}

// checkSplits holds a verdict to be the same however the bytes come.
func checkSplits(t *testing.T, b []byte, verdict func([][]byte) string) {
	t.Helper()
	want := verdict(whole(b))
	if got := verdict(oneByOne(b)); got != want {
		t.Errorf("one by one: %s\nwhole: %s", got, want)
	}
	step := max(1, len(b)/200)
	for i := 1; i < len(b); i += step {
		if got := verdict(splitAt(b, i)); got != want {
			t.Errorf("split at %d: %s\nwhole: %s", i, got, want)
		}
	}
}

const host = "Host: svc.test\r\n"

// req is a request head: its first line without the version, and the fields behind Host.
func req(line string, fields ...string) string {
	return line + " HTTP/1.1\r\n" + host + lines(fields) + "\r\n"
}

// resp is a response head.
func resp(status string, fields ...string) string {
	return "HTTP/1.1 " + status + "\r\n" + lines(fields) + "\r\n"
}

func lines(fields []string) string {
	var b strings.Builder
	for _, f := range fields {
		b.WriteString(f + "\r\n")
	}
	return b.String()
}
