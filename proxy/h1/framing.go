package h1

import (
	"strings"

	"github.com/sidecar-mesh/sidecar/proxy/grammar"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// framing is what a head says about the end of its message and about its connection (RFC 9112 6, 7, 9).
type framing struct {
	minor      byte // of the version 1.x
	close      bool
	keepAlive  bool // said so explicitly
	upgrade    bool // Connection: upgrade
	te         bool // TE: trailers
	names      bool // Connection names other fields
	chunked    bool
	hasCoding  bool
	hasLength  bool
	length     int64
	lengthTwin bool // more than one Content-Length field
}

// persistent reports whether the connection goes on after this message, as far as its sender is concerned.
func (f *framing) persistent() bool {
	return !f.close && (f.minor >= 1 || f.keepAlive)
}

// field takes note of one field that is about framing or the connection. Those about the connection are dropped; those
// about framing keep their place and spelling for the case that the message is framed the same way on the next hop.
func (f *framing) field(fd *pipeline.Field) error {
	switch fd.ID {
	case pipeline.FieldContentLength:
		if f.hasLength {
			f.lengthTwin = true
			return errLengthTwice
		}
		n, ok := grammar.ParseLength(fd.Value)
		if !ok {
			return errLength
		}
		f.hasLength, f.length = true, n
		for len(fd.Value) > 1 && fd.Value[0] == '0' {
			fd.Value = fd.Value[1:]
		}
	case pipeline.FieldTransferEncoding:
		if f.hasCoding {
			return errCodingForm
		}
		f.hasCoding = true
		err := f.coding(fd.Value)
		fd.Value = "chunked"
		return err
	case pipeline.FieldConnection:
		fd.Drop = true
		return f.connection(fd.Value)
	case pipeline.FieldTE:
		fd.Drop = true
		f.te = f.te || listHas(fd.Value, "trailers")
	case pipeline.FieldTrailer:
		announced(fd)
	case pipeline.FieldKeepAlive, pipeline.FieldProxyConnection, pipeline.FieldProxyAuthenticate:
		fd.Drop = true
	}
	return nil
}

// announced takes the names out of a Trailer field that we will not send on as trailers (RFC 9110 6.6.2).
func announced(fd *pipeline.Field) {
	kept, dropped := "", false
	var item string
	for rest, more := fd.Value, true; more; {
		item, rest, more = grammar.NextItem(rest)
		switch {
		case !pipeline.AllowedTrailer(item):
			dropped = true
		case kept == "":
			kept = item
		default:
			kept += ", " + item
		}
	}
	if dropped {
		fd.Value, fd.Drop = kept, kept == ""
	}
}

// coding accepts "chunked" and nothing else. What might be legal but is not served is told apart from what is malformed.
func (f *framing) coding(value string) error {
	if grammar.EqualFold(value, "chunked") {
		f.chunked = true
		return nil
	}
	last := ""
	for rest, more := value, true; more; {
		last, rest, more = grammar.NextItem(rest)
		if last == "" || !grammar.All(last, grammar.Token) {
			return errCodingForm
		}
		if more && grammar.EqualFold(last, "chunked") {
			return errCodingForm // chunked is not last (RFC 9112 6.3 rule 4)
		}
	}
	return errCoding
}

// connection reads the options of a Connection field (RFC 9110 7.6.1).
func (f *framing) connection(value string) error {
	var item string
	for rest, more := value, true; more; {
		item, rest, more = grammar.NextItem(rest)
		switch {
		case item == "":
		case grammar.EqualFold(item, "close"):
			f.close = true
		case grammar.EqualFold(item, "keep-alive"):
			f.keepAlive = true
		case grammar.EqualFold(item, "upgrade"):
			f.upgrade = true
		case grammar.EqualFold(item, "te"), grammar.EqualFold(item, "http2-settings"):
		case !grammar.All(item, grammar.Token):
			return errConnection
		default:
			switch pipeline.Classify(item) {
			case pipeline.FieldContentLength, pipeline.FieldHost:
				return errConnection
			}
			f.names = true
		}
	}
	return nil
}

// dropNamed drops the fields that Connection fields name. Fields that carry who somebody is stay: a client must not make
// us forget what others rely on.
func dropNamed(fields []pipeline.Field) {
	for i := range fields {
		if fields[i].ID != pipeline.FieldConnection {
			continue
		}
		var item string
		for rest, more := fields[i].Value, true; more; {
			item, rest, more = grammar.NextItem(rest)
			if item == "" || strings.EqualFold(item, "authorization") || strings.EqualFold(item, "cookie") {
				continue
			}
			for j := range fields {
				if len(fields[j].Name) == len(item) && strings.EqualFold(fields[j].Name, item) {
					fields[j].Drop = true
				}
			}
		}
	}
}

// named reports whether a Connection field names a field, given in lower case.
func named(fields []pipeline.Field, name string) bool {
	for i := range fields {
		if fields[i].ID == pipeline.FieldConnection && listHas(fields[i].Value, name) {
			return true
		}
	}
	return false
}

// settle checks what several fields say together.
func (f *framing) settle() error {
	switch {
	case f.hasCoding && f.minor == 0:
		return errCoding10
	case f.hasCoding && f.hasLength:
		return errBoth
	}
	return nil
}

func listHas(list, item string) bool {
	var it string
	for rest, more := list, true; more; {
		it, rest, more = grammar.NextItem(rest)
		if grammar.EqualFold(it, item) {
			return true
		}
	}
	return false
}

// judgeRequest works out framing, target, host and hop-by-hop fields of a parsed request head.
func judgeRequest(q *pipeline.Request, f *framing, target string) error {
	hosts, host, upgrade := 0, "", ""
	expect := false
	for i := range q.Fields {
		fd := &q.Fields[i]
		switch fd.ID {
		case pipeline.FieldOther, pipeline.FieldContentType:
		case pipeline.FieldHost:
			hosts++
			host = fd.Value
		case pipeline.FieldExpect:
			if !expectsContinue(fd.Value) {
				return errExpect
			}
			expect, fd.Drop = true, true
		case pipeline.FieldUpgrade:
			if upgrade == "" {
				upgrade = fd.Value
			} else {
				upgrade += ", " + fd.Value
			}
			fd.Drop = true
		case pipeline.FieldHTTP2Settings, pipeline.FieldProxyAuthorization, pipeline.FieldProxy:
			fd.Drop = true
		default:
			if err := f.field(fd); err != nil {
				return err
			}
		}
	}
	if err := f.settle(); err != nil {
		return err
	}
	if f.names {
		dropNamed(q.Fields)
	}
	q.HasBody, q.Length = f.hasLength || f.chunked, f.length
	if f.chunked {
		q.Length = pipeline.LengthUnknown
	}
	q.Expect = expect && f.minor >= 1 && q.Length != 0
	if f.upgrade && f.minor >= 1 && upgrade != "" {
		if err := setUpgrade(q, upgrade); err != nil {
			return err
		}
	}
	q.TrailersWanted = f.te
	if q.Method == "TRACE" {
		return errTrace
	}
	return setTarget(q, f, target, hosts, host)
}

func expectsContinue(value string) bool {
	var item string
	for rest, more := value, true; more; {
		if item, rest, more = grammar.NextItem(rest); !grammar.EqualFold(item, "100-continue") {
			return false
		}
	}
	return true
}

// setUpgrade keeps of the protocols offered those that a tunnel can carry: never HTTP/2 (RFC 9113 3.1: h2c by upgrade is
// gone, and a way around us) nor TLS inside plain HTTP, which we would not take part in.
func setUpgrade(q *pipeline.Request, offered string) error {
	kept, dropped := "", false
	var item string
	for rest, more := offered, true; more; {
		item, rest, more = grammar.NextItem(rest)
		name, _, _ := strings.Cut(item, "/")
		websocket := grammar.EqualFold(name, "websocket")
		switch {
		case item == "" || grammar.EqualFold(name, "h2c") || grammar.EqualFold(name, "h2") || grammar.EqualFold(name, "tls"),
			websocket && q.Method != "GET":
			dropped = true
			continue
		case websocket && q.HasBody && q.Length != 0:
			return errUpgradeBody
		}
		if kept != "" {
			kept += ", "
		}
		kept += item
	}
	if !dropped {
		kept = offered
	}
	q.Upgrade = kept
	return nil
}

// setTarget reads the request target in its four forms (RFC 9112 3.2) and settles the authority.
func setTarget(q *pipeline.Request, f *framing, target string, hosts int, host string) error {
	switch {
	case hosts > 1:
		return errHostTwice
	case hosts == 0 && f.minor >= 1:
		return errHostMissing
	case !grammar.ValidAuthority(host):
		return errHost
	}
	q.Scheme, q.Authority, q.Target = "http", host, target
	switch {
	case q.Method == "CONNECT":
		if q.HasBody {
			return errConnectBody
		}
		name, port := grammar.SplitPort(target)
		if name == "" || port == "" || !grammar.ValidAuthority(target) {
			return errTarget
		}
		q.Authority = target
		return nil
	case target[0] == '/':
	case target == "*" && q.Method == "OPTIONS":
		q.Path = "*"
		return nil
	default:
		scheme, rest, ok := strings.Cut(target, "://")
		if !ok || !grammar.EqualFold(scheme, "http") && !grammar.EqualFold(scheme, "https") {
			return errTarget
		}
		end := strings.IndexAny(rest, "/?")
		if end < 0 {
			end = len(rest)
		}
		if end == 0 || !grammar.ValidAuthority(rest[:end]) {
			return errTarget
		}
		q.Authority, target = rest[:end], rest[end:]
		if target == "" || target[0] == '?' {
			target = "/" + target
		}
	}
	q.Path = target
	if i := strings.IndexByte(target, '?'); i >= 0 {
		q.Path, q.Query, q.HasQuery = target[:i], target[i+1:], true
	}
	return nil
}
