package h1

import (
	"strconv"

	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// outFraming is how a message that we send marks its end.
type outFraming uint8

const (
	outNone    outFraming = iota // no body
	outLength                    // Content-Length
	outChunked                   // Transfer-Encoding: chunked
	outToClose                   // the end of the connection
	outKeep                      // no body, yet a Content-Length about one (HEAD, 304)
)

// appendFramed adds fields that are sent on. Host and what frames the message stand where they stood, and are added
// behind the others where they are missing.
func appendFramed(b []byte, fields []pipeline.Field, out outFraming, length int64) []byte {
	framed := out == outNone || out == outToClose || out == outKeep
	for i := range fields {
		f := &fields[i]
		if f.Drop {
			continue
		}
		switch f.ID {
		case pipeline.FieldContentLength:
			if out != outLength && out != outKeep {
				continue
			}
			framed = true
		case pipeline.FieldTransferEncoding:
			if out != outChunked {
				continue
			}
			framed = true
		}
		b = appendField(b, f.Name, f.Value)
	}
	if framed {
		return b
	}
	if out == outChunked {
		return append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, length, 10)
	return append(b, "\r\n"...)
}

// appendRequest adds a request head in origin form (or authority form for CONNECT).
func appendRequest(b []byte, q *pipeline.Request) []byte {
	b = append(b, q.Method...)
	b = append(b, ' ')
	if q.Method == "CONNECT" {
		b = append(b, q.Authority...)
	} else {
		b = append(b, q.Path...)
		if q.HasQuery {
			b = append(b, '?')
			b = append(b, q.Query...)
		}
	}
	b = append(b, " HTTP/1.1\r\n"...)
	if !hasHost(q.Fields) {
		b = appendField(b, "Host", q.Authority)
	}
	out := outNone
	switch {
	case q.HasBody && q.Length == pipeline.LengthUnknown:
		out = outChunked
	case q.HasBody:
		out = outLength
	}
	b = appendFramed(b, q.Fields, out, q.Length)
	if q.Expect {
		b = append(b, "Expect: 100-continue\r\n"...)
	}
	switch {
	case q.Upgrade != "":
		b = append(b, "Connection: Upgrade\r\n"...)
		b = appendField(b, "Upgrade", q.Upgrade)
	case q.TrailersWanted:
		b = append(b, "Te: trailers\r\nConnection: Te\r\n"...)
	}
	return append(b, "\r\n"...)
}

func hasHost(fields []pipeline.Field) bool {
	for i := range fields {
		if fields[i].ID == pipeline.FieldHost && !fields[i].Drop {
			return true
		}
	}
	return false
}

// appendStatus adds a status line.
func appendStatus(b []byte, status int, reason string) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	if reason == "" {
		reason = phrase(status)
	}
	b = append(b, reason...)
	return append(b, "\r\n"...)
}

// phrase is the reason phrase of the statuses that we answer with ourselves.
func phrase(status int) string {
	switch status {
	case 100:
		return "Continue"
	case 200:
		return "OK"
	case 204:
		return "No Content"
	case 301:
		return "Moved Permanently"
	case 302:
		return "Found"
	case 303:
		return "See Other"
	case 307:
		return "Temporary Redirect"
	case 308:
		return "Permanent Redirect"
	case 400:
		return "Bad Request"
	case 403:
		return "Forbidden"
	case 404:
		return "Not Found"
	case 405:
		return "Method Not Allowed"
	case 408:
		return "Request Timeout"
	case 410:
		return "Gone"
	case 413:
		return "Content Too Large"
	case 414:
		return "URI Too Long"
	case 417:
		return "Expectation Failed"
	case 429:
		return "Too Many Requests"
	case 431:
		return "Request Header Fields Too Large"
	case 501:
		return "Not Implemented"
	case 502:
		return "Bad Gateway"
	case 503:
		return "Service Unavailable"
	case 504:
		return "Gateway Timeout"
	case 505:
		return "HTTP Version Not Supported"
	}
	return ""
}
