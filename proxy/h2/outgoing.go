package h2

import (
	"slices"
	"strconv"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// noList is a SETTINGS_MAX_HEADER_LIST_SIZE that needs no counting: heads are bounded when they come in.
const noList = 16 << 20

// pseudoSize is what the pseudo-fields of a head count at most beside their values.
const pseudoSize = 4*32 + len(":method:scheme:path:authority") + len("CONNECT")

// takesLocked reports whether the peer takes a head, or trailers, of these fields, with pseudo-fields whose values have so
// many octets (RFC 9113 6.5.2).
func (s *session) takesLocked(fields []pipeline.Field, pseudo int) bool {
	if s.peer.list >= noList {
		return true
	}
	n := pseudo + pseudoSize
	for i := range fields {
		if f := &fields[i]; !f.Drop {
			n += len(f.Name) + len(f.Value) + 32
		}
	}
	return n <= int(s.peer.list)
}

func (s *session) encodeStatusLocked(status int) {
	if i := slices.Index(staticStatus[:], status); i >= 0 {
		s.enc.static(static200 + byte(i))
		return
	}
	text := "503" // of those the most frequent: it costs no memory
	if status != 503 {
		text = strconv.Itoa(status)
	}
	s.enc.constant(":status", text)
}

func (s *session) encodeLengthLocked(n int64) {
	s.enc.add("content-length", strconv.FormatInt(n, 10))
}

// encodeOfflineLocked adds the mark of a server that is gone at a time, in Unix nanoseconds.
func (s *session) encodeOfflineLocked(gone int64) {
	s.enc.add("x-sidecar-offline", string(pipeline.AppendOfflineValue(nil, time.Unix(0, gone), time.Now())))
}

// encodeFields adds the fields that are sent on to the session's encoder. keepLength says that a content-length among
// them is true.
func (s *session) encodeFieldsLocked(fields []pipeline.Field, keepLength bool) {
	for i := range fields {
		f := &fields[i]
		if f.Drop {
			continue
		}
		switch f.ID {
		case pipeline.FieldHost, pipeline.FieldTransferEncoding, pipeline.FieldConnection, pipeline.FieldUpgrade,
			pipeline.FieldKeepAlive, pipeline.FieldProxyConnection, pipeline.FieldTE:
			continue
		case pipeline.FieldContentLength:
			if !keepLength {
				continue
			}
		}
		switch {
		case f.Secret:
			s.enc.secret(lowerName(f.Name), f.Value)
		case f.ID == pipeline.FieldXRequestID: // comes once
			s.enc.once("x-request-id", f.Value)
		case f.ID == pipeline.FieldXForwardedFor:
			s.enc.usual(usualClient, "x-forwarded-for", f.Value)
		case f.ID == pipeline.FieldXForwardedProto:
			s.enc.usual(usualProto, "x-forwarded-proto", f.Value)
		case f.Sum != 0: // it came over HTTP/2: its name is in lower case
			s.enc.addSum(f.Name, f.Value, f.Sum)
		default:
			s.enc.add(lowerName(f.Name), f.Value)
		}
	}
}
