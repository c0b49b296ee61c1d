package h2

import (
	"strings"

	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// entry is a decoded field. What a head has to know of it is found out once, however often it comes again.
type entry struct {
	pipeline.Field
	plain bool // valid, and nothing more to a head than a field to be sent on
}

func newEntry(name, value string) entry {
	e := entry{Field: pipeline.Field{Name: name, Value: value}}
	if strings.HasPrefix(name, ":") {
		return e
	}
	e.ID = pipeline.Classify(name)
	switch e.ID {
	case pipeline.FieldConnection, pipeline.FieldKeepAlive, pipeline.FieldProxyConnection, pipeline.FieldTransferEncoding,
		pipeline.FieldUpgrade, pipeline.FieldTE, pipeline.FieldContentLength, pipeline.FieldExpect, pipeline.FieldHTTP2Settings,
		pipeline.FieldProxyAuthorization, pipeline.FieldProxy, pipeline.FieldOffline:
		return e
	}
	if e.plain = name != "cookie" && validName(name) && validValue(value); e.plain {
		e.Sum = sum(name, value)
	}
	return e
}

// size is what the field counts in tables and lists (RFC 7541 4.1, RFC 9113 6.5.2).
func (e *entry) size() int { return len(e.Name) + len(e.Value) + 32 }

// table is the dynamic table of a decoder (RFC 7541 2.3.2), as a ring.
type table struct {
	ring  []entry // its length is a power of two
	first int     // where the newest is
	count int
	size  int
	limit int
}

// at returns what an index means (RFC 7541 2.3.3); nil: nothing. It holds until something is added.
func (t *table) at(i int) *entry {
	if i--; i < len(static) {
		if i < 0 {
			return nil
		}
		return &static[i]
	}
	if i -= len(static); i < t.count {
		return &t.ring[(t.first-i)&(len(t.ring)-1)]
	}
	return nil
}

// add makes e the newest entry (RFC 7541 4.4): what is larger than the table empties it.
func (t *table) add(e *entry) {
	n := e.size()
	t.shrink(t.limit - n)
	if n > t.limit {
		return
	}
	if t.count == len(t.ring) {
		t.grow()
	}
	t.first = (t.first + 1) & (len(t.ring) - 1)
	t.ring[t.first] = *e
	t.count++
	t.size += n
}

func (t *table) grow() {
	ring := make([]entry, max(8, 2*len(t.ring)))
	for i := range t.count {
		ring[t.count-1-i] = t.ring[(t.first-i)&(len(t.ring)-1)]
	}
	t.ring, t.first = ring, (t.count-1)&(len(ring)-1)
}

// resize obeys a size update (RFC 7541 4.3).
func (t *table) resize(limit int) {
	t.limit = limit
	t.shrink(limit)
}

// shrink drops the oldest entries until the others have no more than so many octets.
func (t *table) shrink(octets int) {
	for t.count > 0 && t.size > octets {
		oldest := &t.ring[(t.first-t.count+1)&(len(t.ring)-1)]
		t.size -= oldest.size()
		*oldest = entry{}
		t.count--
	}
}

// static is the static table (RFC 7541 appendix A).
var static = staticTable()

func staticTable() (t [61]entry) {
	for i, line := range strings.Split(staticText, "\n") {
		name, value, _ := strings.Cut(line, "|")
		t[i] = newEntry(name, value)
	}
	return t
}

// Indexes of the static table.
const (
	staticHTTP = 6 // :scheme
	static200  = 8 // :status, and the others behind it
)

// staticStatus are the statuses of the static table.
var staticStatus = [...]int{200, 204, 206, 304, 400, 404, 500}

const staticText = `:authority
:method|GET
:method|POST
:path|/
:path|/index.html
:scheme|http
:scheme|https
:status|200
:status|204
:status|206
:status|304
:status|400
:status|404
:status|500
accept-charset
accept-encoding|gzip, deflate
accept-language
accept-ranges
accept
access-control-allow-origin
age
allow
authorization
cache-control
content-disposition
content-encoding
content-language
content-length
content-location
content-range
content-type
cookie
date
etag
expect
expires
from
host
if-match
if-modified-since
if-none-match
if-range
if-unmodified-since
last-modified
link
location
max-forwards
proxy-authenticate
proxy-authorization
range
referer
refresh
retry-after
server
set-cookie
strict-transport-security
transfer-encoding
user-agent
vary
via
www-authenticate`
