// Package sniff tells a protocol by the first bytes that a client sends. It is pure and keeps nothing: the caller reads,
// asks, and hands all bytes on. It imports nothing of the project. Tests: tables of first bytes in one piece and split at
// every point, and a fuzz test that more bytes never change a verdict.
package sniff

// Protocol is a verdict.
type Protocol uint8

// The verdicts.
const (
	More  Protocol = iota // too few bytes to tell
	HTTP1                 // a method, a target and a version of HTTP/1
	HTTP2                 // the client preface (RFC 9113 3.4)
	TLS                   // a ClientHello
	Other                 // none of these
)

// String returns the name of p.
func (p Protocol) String() string { return [...]string{"more", "http1", "http2", "tls", "other"}[p] }

const (
	preface   = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	maxMethod = 20      // longest method that is still taken for one
	enough    = 8 << 10 // a first line longer than this is told by the form of its target
)

// Detect looks at the first bytes of a connection. Protocols that look like HTTP until their first line ends (redis,
// memcached, FTP) are told apart by the version at that end.
func Detect(b []byte) Protocol {
	if len(b) == 0 {
		return More
	}
	if b[0] == 0x16 {
		return detectTLS(b)
	}
	if n := min(len(b), len(preface)); string(b[:n]) == preface[:n] && n > 1 {
		if n == len(preface) {
			return HTTP2
		}
		return More
	}
	return detectHTTP1(b)
}

func detectTLS(b []byte) Protocol {
	// Record type handshake, version 3.x, length; then the message type ClientHello.
	switch {
	case len(b) > 1 && b[1] != 3, len(b) > 2 && b[2] > 4, len(b) > 5 && b[5] != 1:
		return Other
	case len(b) < 6:
		return More
	}
	return TLS
}

func detectHTTP1(b []byte) Protocol {
	i := 0
	for i < len(b) && i <= maxMethod && 'A' <= b[i] && b[i] <= 'Z' {
		i++
	}
	switch {
	case i == len(b) && i <= maxMethod:
		return More
	case i < 3 || i > maxMethod || b[i] != ' ':
		return Other
	}
	// A known method and an absolute path are proof enough: a request line may be long and come in pieces.
	if i+1 < len(b) && b[i+1] == '/' && known(string(b[:i])) {
		return HTTP1
	}
	// A first line that does not end is told by the form of its target.
	line, most, long := b[i+1:], enough, HTTP1
	if len(line) > 0 && line[0] != '/' && line[0] != '*' && line[0] != 'h' {
		most, long = 512, Other
	}
	for j, c := range line[:min(len(line), most)] {
		switch {
		case c == '\n':
			return version(line[:j])
		case c == 0, c < 0x20 && c != '\r' && c != '\t':
			return Other
		}
	}
	if len(line) >= most {
		return long
	}
	return More
}

// version looks at the end of a first line without its LF.
func version(line []byte) Protocol {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	if n := len(line); n > 9 && string(line[n-9:n-3]) == " HTTP/" && line[n-2] == '.' {
		return HTTP1
	}
	return Other
}

func known(method string) bool {
	switch method {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT":
		return true
	}
	return false
}
