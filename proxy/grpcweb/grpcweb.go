// Package grpcweb is the difference between gRPC-Web and gRPC as pure functions: content types, bodies in base64, the frame
// that carries trailers, and which origins a browser may call from. It keeps no more of a stream than three characters.
// Tests: tables, a fuzz test of the codec against itself, and real clients in e2e/interop.
//
// The protocol is PROTOCOL-WEB.md of grpc/grpc.
package grpcweb

import (
	"encoding/binary"
	"strings"
)

const (
	grpcType = "application/grpc"
	webType  = "application/grpc-web"
	textType = "application/grpc-web-text"
)

// Type is a content type of gRPC-Web.
type Type struct {
	Text bool   // the body is in base64
	Rest string // what stands behind it: "+proto", parameters, or nothing
}

// Parse reads a content type; ok is false when it is not one of gRPC-Web.
func Parse(contentType string) (t Type, ok bool) {
	rest, ok := cutFold(contentType, webType)
	if !ok {
		return Type{}, false
	}
	if after, is := cutFold(rest, "-text"); is {
		t.Text, rest = true, after
		if after, is = cutFold(rest, "-base64"); is { // the only text coding, by its name
			rest = after
		}
	}
	if rest != "" && rest[0] != '+' && rest[0] != ';' && rest[0] != ' ' {
		return Type{}, false
	}
	t.Rest = rest
	return t, true
}

// GRPC returns the content type of the same call in gRPC.
func (t Type) GRPC() string { return grpcType + t.Rest }

// AnswerAsText reports whether the answer to a request is wanted in base64: what its Accept field asks for, else as the
// request came.
func (t Type) AnswerAsText(accept string) bool {
	for more := true; more; {
		var item string
		item, accept, more = strings.Cut(accept, ",")
		if a, ok := Parse(strings.TrimLeft(item, " \t")); ok {
			return a.Text
		}
	}
	return t.Text
}

// AnswerType returns the content type of an answer whose content type in gRPC is given. A server that does not say what its
// messages are written in writes them as the request's were.
func (t Type) AnswerType(text bool, answered string) string {
	base, rest := webType, t.Rest
	if text {
		base = textType
	}
	if r, ok := cutFold(answered, grpcType); ok && r != "" {
		rest = r
	}
	return base + rest
}

func cutFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

// frameHead is the length of what stands before each message: a flag and four bytes of length.
const frameHead = 5

// trailersFlag marks the frame that is no message but the trailers, uncompressed.
const trailersFlag = 0x80

// BeginTrailers appends the head of the frame of trailers to b, for AppendTrailer and EndTrailers to go on with.
func BeginTrailers(b []byte) []byte { return append(b, trailersFlag, 0, 0, 0, 0) }

// AppendTrailer appends one field. Names are written in lower case, as the protocol wants it.
func AppendTrailer(b []byte, name, value string) []byte {
	for i := range len(name) {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		b = append(b, c)
	}
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// EndTrailers settles the length of the frame whose head is at the given place of b.
func EndTrailers(b []byte, at int) []byte {
	binary.BigEndian.PutUint32(b[at+1:], uint32(len(b)-at-frameHead))
	return b
}
