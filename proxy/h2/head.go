package h2

import (
	"strings"
	"sync"

	"github.com/sidecar-mesh/sidecar/proxy/grammar"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// head is a decoded header block, checked field by field while it is decoded (RFC 9113 8.2, 8.3): nothing malformed gets
// any further, so that no translation can turn it into something else.
type head struct {
	fields                                            []pipeline.Field
	method, scheme, authority, path, protocol, status string
	seen                                              pseudo
	regular                                           bool // a field that is no pseudo-field was seen
	size                                              int  // as SETTINGS_MAX_HEADER_LIST_SIZE counts
	count                                             int
	tooMuch                                           bool
	bad                                               string // what is malformed; empty: nothing
	length                                            int64  // content-length; -1: none
	te                                                bool   // te: trailers
	expect                                            bool   // 100-continue
	cookies                                           int
	offline                                           string // value of pipeline.OfflineName
	end                                               bool   // END_STREAM came with it
}

// pseudo is a set of pseudo-fields.
type pseudo uint8

const (
	pMethod pseudo = 1 << iota
	pScheme
	pAuthority
	pPath
	pProtocol
	pStatus
)

var heads = sync.Pool{New: func() any { return &head{fields: make([]pipeline.Field, 0, 32)} }}

func newHead() *head {
	h := heads.Get().(*head)
	h.length = -1
	return h
}

func (h *head) release() {
	clear(h.fields)
	*h = head{fields: h.fields[:0]}
	heads.Put(h)
}

// add takes the next field of the block. Above the limits fields are counted and forgotten.
func (h *head) add(e *entry, lim *Limits) {
	h.count++
	h.size += e.size()
	if h.size > lim.HeaderBytes || h.count > lim.HeaderCount+pseudoFields {
		h.tooMuch = true
		if e.ID == pipeline.FieldContentType && len(e.Value) < mediaType {
			h.fields = append(h.fields, e.Field)
		}
		return
	}
	switch {
	case h.bad != "":
	case e.plain:
		h.regular = true
		h.fields = append(h.fields, e.Field)
	case strings.HasPrefix(e.Name, ":"):
		h.pseudo(e)
	default:
		h.regular = true
		h.special(e.Field)
	}
}

// special takes a field that is malformed, or means something to us.
func (h *head) special(f pipeline.Field) {
	if !validName(f.Name) {
		h.bad = "malformed field name"
		return
	}
	if !validValue(f.Value) {
		h.bad = "malformed value of field " + f.Name
		return
	}
	switch f.ID {
	case pipeline.FieldConnection, pipeline.FieldKeepAlive, pipeline.FieldProxyConnection, pipeline.FieldTransferEncoding,
		pipeline.FieldUpgrade:
		h.bad = "connection field " + f.Name
		return
	case pipeline.FieldTE:
		if f.Value != "trailers" {
			h.bad = "te other than trailers"
			return
		}
		h.te, f.Drop = true, true
	case pipeline.FieldContentLength:
		n, ok := grammar.ParseLength(f.Value)
		if !ok || h.length >= 0 && h.length != n {
			h.bad = "malformed content-length"
			return
		}
		f.Drop = h.length >= 0
		h.length = n
	case pipeline.FieldExpect:
		h.expect = strings.EqualFold(f.Value, "100-continue")
		f.Drop = h.expect
	case pipeline.FieldHTTP2Settings, pipeline.FieldProxyAuthorization, pipeline.FieldProxy:
		f.Drop = true
	case pipeline.FieldOffline:
		h.offline, f.Drop = f.Value, true
	}
	if f.Name == "cookie" {
		h.cookies++
	}
	h.fields = append(h.fields, f)
}

// mediaType bounds the content type that is kept of a head above the limits: the refusal depends on it.
const mediaType = 100

// refused fills q with what a refusal needs to know of a head above the limits.
func (h *head) refused(q *pipeline.Request) {
	q.Version, q.Method, q.Scheme, q.Authority, q.Target = pipeline.HTTP2, h.method, "http", h.authority, h.path
	for i := range h.fields {
		if f := h.fields[i]; f.ID == pipeline.FieldContentType {
			q.Fields = append(q.Fields[:0], f)
		}
	}
}

// joinCookies makes one field of the crumbs that HTTP/2 allows (RFC 9113 8.2.3): others expect one.
func joinCookies(fields []pipeline.Field) {
	var b strings.Builder
	first := -1
	for i := range fields {
		f := &fields[i]
		if f.Name != "cookie" {
			continue
		}
		if first < 0 {
			first = i
		} else {
			f.Drop = true
		}
		fields[first].Secret = fields[first].Secret || f.Secret
		if b.Len() > 0 && f.Value != "" { // a value may not end in whitespace
			b.WriteString("; ")
		}
		b.WriteString(f.Value)
	}
	fields[first].Value = b.String()
}

// pseudoFields is how many pseudo-fields a head may have beside its fields.
const pseudoFields = 5

func (h *head) pseudo(f *entry) {
	var p pseudo
	var to *string
	switch f.Name {
	case ":method":
		p, to = pMethod, &h.method
	case ":scheme":
		p, to = pScheme, &h.scheme
	case ":authority":
		p, to = pAuthority, &h.authority
	case ":path":
		p, to = pPath, &h.path
	case ":protocol":
		p, to = pProtocol, &h.protocol
	case ":status":
		p, to = pStatus, &h.status
	}
	switch {
	case p == 0:
		h.bad = "unknown pseudo-field"
	case h.regular:
		h.bad = "pseudo-field behind a field"
	case h.seen&p != 0:
		h.bad = "pseudo-field given twice"
	default:
		h.seen |= p
		*to = f.Value
	}
}

// request checks what a request's head must have and fills q.
func (h *head) request(q *pipeline.Request) string {
	connect := h.method == "CONNECT" && h.seen&pProtocol == 0
	switch {
	case h.bad != "":
		return h.bad
	case h.seen&pStatus != 0:
		return ":status in a request"
	case h.seen&pMethod == 0 || !validToken(h.method):
		return "malformed :method"
	case connect && h.seen != pMethod|pAuthority:
		return "CONNECT with other pseudo-fields than :method and :authority"
	case h.seen&pProtocol != 0 && (h.method != "CONNECT" || h.seen&pAuthority == 0 || !validToken(h.protocol)):
		return "malformed :protocol"
	case !connect && (h.scheme != "http" && h.scheme != "https"):
		return "malformed :scheme"
	case !connect && !validPath(h.path, h.method):
		return "malformed :path"
	}
	host, problem := h.host()
	if problem != "" {
		return problem
	}
	q.Version, q.Method, q.Scheme, q.Authority = pipeline.HTTP2, h.method, "http", host
	q.Target, q.Path = h.path, h.path
	if i := strings.IndexByte(h.path, '?'); i >= 0 {
		q.Path, q.Query, q.HasQuery = h.path[:i], h.path[i+1:], true
	}
	if connect {
		q.Target, q.Path = host, ""
	}
	if h.seen&pProtocol != 0 { // RFC 8441: what HTTP/1 asks for by GET and Upgrade
		q.Method, q.Upgrade = "GET", h.protocol
	}
	if h.cookies > 1 {
		joinCookies(h.fields)
	}
	q.Fields, h.fields = h.fields, q.Fields[:0]
	q.TrailersWanted = h.te
	q.HasBody, q.Length = !h.end && h.method != "CONNECT", h.length
	if h.end { // a method that usually has a body says that it has none (RFC 9110 8.6)
		q.HasBody, q.Length = q.Method == "POST" || q.Method == "PUT" || q.Method == "PATCH", 0
	}
	q.Expect = h.expect && q.Length != 0
	return ""
}

// host settles :authority and Host: one of them, or both alike (RFC 9113 8.3.1).
func (h *head) host() (string, string) {
	host, given := h.authority, h.seen&pAuthority != 0
	for i := range h.fields {
		f := &h.fields[i]
		if f.ID != pipeline.FieldHost {
			continue
		}
		if given && !strings.EqualFold(host, f.Value) {
			return "", "host differs from :authority"
		}
		if given {
			f.Drop = true
		}
		host, given = f.Value, true
	}
	if !given || host == "" || !grammar.ValidAuthority(host) {
		return "", "malformed :authority"
	}
	return host, ""
}

// response checks what a response's head must have and fills r.
func (h *head) response(r *pipeline.Response, method string) string {
	if h.bad != "" {
		return h.bad
	}
	if h.seen != pStatus || len(h.status) != 3 || h.status[0] < '1' || h.status == "101" {
		return "malformed :status"
	}
	r.Status = 0
	for _, c := range []byte(h.status) {
		if c < '0' || c > '9' {
			return "malformed :status"
		}
		r.Status = r.Status*10 + int(c-'0')
	}
	if r.Status < 200 && h.end {
		return "interim response that ends the stream"
	}
	r.Reason = ""
	r.Fields, h.fields = h.fields, r.Fields[:0]
	bodiless := r.Status < 200 || r.Status == 204 || r.Status == 304
	r.NoBody = bodiless || method == "HEAD" || h.end
	r.KeepLength = h.length >= 0 && (method == "HEAD" || r.Status == 304)
	r.Length, r.Offline = h.length, 0
	if h.offline != "" {
		r.Offline = pipeline.OfflineTime(h.offline)
	}
	if h.end && !bodiless && method != "HEAD" {
		r.NoBody, r.Length = false, 0
		if h.length > 0 {
			return "body shorter than content-length"
		}
	}
	return ""
}

// trailers checks a block behind a body.
func (h *head) trailers() string {
	switch {
	case h.bad != "":
		return h.bad
	case h.seen != 0:
		return "pseudo-field in trailers"
	case !h.end:
		return "trailers that do not end the stream"
	}
	return ""
}
