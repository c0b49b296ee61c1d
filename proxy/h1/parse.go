// Package h1 is the HTTP/1 engine: a strict codec (RFC 9112), the server side of a downstream connection and the client
// side of an upstream one. It owns framing, and with it the decision whether a connection may serve again. What to do
// with a request is not its matter: it offers each one to the pipeline as a stream. Tests: tables of heads and bodies,
// fuzz tests of every parser against each other in one piece and in many, scripts over in-memory connections, allocation
// tests, and the wire cases of e2e/conformance.
package h1

import (
	"bytes"

	"github.com/sidecar-mesh/sidecar/proxy/grammar"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

func bad(text string) error { return &pipeline.ProtocolError{Status: 400, Text: text} }

func refusal(status int, text string) error {
	return &pipeline.ProtocolError{Status: status, Text: text}
}

// What can be wrong with a head. They are values so that a flood of bad heads makes no garbage.
var (
	errLeadingLines = bad("too many empty lines before the request line")
	errRequestLine  = bad("malformed request line")
	errBareCR       = bad("a carriage return without a line feed")
	errBareLF       = bad("a line feed without a carriage return")
	errMethod       = bad("malformed method")
	errMethodLong   = refusal(501, "method too long")
	errTarget       = bad("malformed request target")
	errTargetLong   = refusal(414, "request line too long")
	errVersion      = refusal(505, "HTTP version not supported")
	errNoVersion    = bad("no HTTP version")
	errVersionForm  = bad("malformed HTTP version")
	errFieldLine    = bad("malformed field line")
	errFieldName    = bad("malformed field name")
	errFieldValue   = bad("control character in a field value")
	errFold         = bad("obsolete line folding")
	errNameLong     = refusal(431, "field name too long")
	errHeadLong     = refusal(431, "head larger than limits.header_bytes")
	errHeadCount    = refusal(431, "more fields than limits.header_count")
	errHostMissing  = bad("no Host field")
	errHostTwice    = bad("more than one Host field")
	errHost         = bad("malformed Host")
	errLength       = bad("malformed Content-Length")
	errLengthTwice  = bad("more than one Content-Length field")
	errBoth         = bad("both Content-Length and Transfer-Encoding")
	errCoding       = refusal(501, "transfer coding not supported")
	errCodingForm   = bad("malformed Transfer-Encoding")
	errCoding10     = bad("Transfer-Encoding in HTTP/1.0")
	errConnection   = bad("Connection names a field that frames or routes the message")
	errExpect       = refusal(417, "unknown expectation")
	errConnectBody  = bad("CONNECT with a body")
	errUpgradeBody  = bad("upgrade with a body")
	errTrace        = refusal(405, "TRACE is not served")
	errPreface      = refusal(505, "HTTP/2 is not served on this port")
	errStatusLine   = bad("malformed status line")
	errStatus       = bad("malformed status code")
)

const (
	maxLeadingLines = 8 // CRLFs before a request line (RFC 9112 2.2)
	maxRequestLine  = 16 << 10
	maxMethod       = 32
	maxName         = 1 << 10
)

// headLimits bounds one head.
type headLimits struct {
	bytes int // of the whole head
	count int // of its fields
}

var crlfcrlf = []byte("\r\n\r\n")

// headEnd looks for the end of a head in b, of which the first seen bytes were looked at before. It returns the length
// of the head, blank line included, or 0 while it is incomplete; and an error as soon as the head cannot become good.
func headEnd(b []byte, seen, limit int) (int, error) {
	from := max(0, seen-3)
	if i := bytes.Index(b[from:], crlfcrlf); i >= 0 {
		if n := from + i + 4; n <= limit {
			return n, nil
		}
		return 0, errHeadLong
	}
	return 0, hopeless(b, max(0, seen-1), limit)
}

// hopeless finds what no further byte can mend in an incomplete head, so that its sender is told at once.
func hopeless(b []byte, from, limit int) error {
	for i := from; i < len(b); i++ {
		switch b[i] {
		case '\n':
			if i == 0 || b[i-1] != '\r' {
				return errBareLF
			}
		case '\r':
			if i+1 < len(b) && b[i+1] != '\n' {
				return errBareCR
			}
		}
	}
	if n := maxRequestLine + len("\r\n"); len(b) >= n && bytes.IndexByte(b[:n], '\n') < 0 {
		return errTargetLong
	}
	if len(b) >= limit {
		return errHeadLong
	}
	return nil
}

// parseFields parses the field lines of a head into fields. b begins behind the first line and ends with the blank line.
func parseFields(fields []pipeline.Field, b []byte, count int) ([]pipeline.Field, error) {
	for {
		if len(b) == 2 { // the blank line
			return fields, nil
		}
		line, rest, err := cutLine(b)
		if err != nil {
			return fields, err
		}
		b = rest
		if len(fields) == count {
			return fields, errHeadCount
		}
		i := 0
		for i < len(line) && grammar.Is(line[i], grammar.Token) {
			i++
		}
		if i == len(line) || line[i] != ':' || i == 0 {
			return fields, fieldLineError(line, i)
		}
		if i > maxName {
			return fields, errNameLong
		}
		value := grammar.TrimOWS(line[i+1:])
		if !grammar.ValidValue(value) {
			return fields, errFieldValue
		}
		name := str(line[:i])
		fields = append(fields, pipeline.Field{Name: name, Value: str(value), ID: pipeline.Classify(name)})
	}
}

// cutLine cuts off the first line, without its CRLF.
func cutLine(b []byte) (line, rest []byte, err error) {
	i := bytes.IndexByte(b, '\n')
	if i < 1 || b[i-1] != '\r' {
		return nil, nil, errBareLF
	}
	return b[:i-1], b[i+1:], nil
}

func fieldLineError(line []byte, i int) error {
	switch {
	case i == 0 && len(line) > 0 && (line[0] == ' ' || line[0] == '\t'):
		return errFold
	case i == len(line):
		return errFieldLine
	}
	return errFieldName
}

// parseRequest parses a whole request head into q and f; fields are appended to q.Fields.
func parseRequest(q *pipeline.Request, f *framing, head []byte, lim headLimits) error {
	line, rest, err := cutLine(head)
	if err != nil {
		return err
	}
	if len(line) > maxRequestLine {
		return errTargetLong
	}
	target, err := parseRequestLine(q, f, line)
	if err != nil {
		return err
	}
	if q.Fields, err = parseFields(q.Fields, rest, lim.count); err != nil {
		return err
	}
	return judgeRequest(q, f, target)
}

// parseRequestLine reads "METHOD target HTTP/1.x" (RFC 9112 3), one space between the parts.
func parseRequestLine(q *pipeline.Request, f *framing, line []byte) (target string, err error) {
	sp := bytes.IndexByte(line, ' ')
	if sp <= 0 {
		return "", errRequestLine
	}
	method := str(line[:sp])
	if sp > maxMethod {
		return "", errMethodLong
	}
	if !grammar.All(method, grammar.Token) {
		return "", errMethod
	}
	line = line[sp+1:]
	sp = bytes.LastIndexByte(line, ' ')
	if sp <= 0 {
		return "", errRequestLine
	}
	q.Method, target = method, str(line[:sp])
	if f.minor, err = parseVersion(str(line[sp+1:])); err != nil {
		if method == "PRI" && target == "*" {
			return "", errPreface
		}
		return "", err
	}
	q.Version = pipeline.HTTP11
	if f.minor == 0 {
		q.Version = pipeline.HTTP10
	}
	q.Target = target // for the log, should the rest be refused
	if !grammar.All(target, grammar.Target) {
		return "", errTarget
	}
	return target, nil
}

func parseVersion(v string) (minor byte, err error) {
	if v != "" && (len(v) < 5 || !grammar.EqualFold(v[:5], "http/")) {
		return 0, errNoVersion
	}
	if len(v) != 8 || v[:5] != "HTTP/" || !grammar.Is(v[5], grammar.Digit) || v[6] != '.' || !grammar.Is(v[7], grammar.Digit) {
		return 0, errVersionForm
	}
	if v[5] != '1' {
		return 0, errVersion
	}
	return v[7] - '0', nil
}
