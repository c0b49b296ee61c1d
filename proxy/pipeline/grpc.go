package pipeline

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/resilience"
)

// call is what an exchange knows of a gRPC call; the zero call is none.
type call struct {
	is      bool
	status  resilience.GRPC // as far as it came
	pending bool            // the head was good, the status is to come behind the body
	in, out messages
}

// isGRPC reports whether a content type is application/grpc, with a "+proto" or parameters or without (not grpc-web).
func isGRPC(contentType string) bool {
	const grpc = "application/grpc"
	return hasPrefixFold(contentType, grpc) &&
		(len(contentType) == len(grpc) || contentType[len(grpc)] == '+' || contentType[len(grpc)] == ';')
}

// parseGRPCTimeout reads the value of a grpc-timeout field: at most eight digits and a unit.
func parseGRPCTimeout(s string) (time.Duration, bool) {
	if len(s) < 2 || len(s) > 9 {
		return 0, false
	}
	var unit time.Duration
	switch s[len(s)-1] {
	case 'H':
		unit = time.Hour
	case 'M':
		unit = time.Minute
	case 'S':
		unit = time.Second
	case 'm':
		unit = time.Millisecond
	case 'u':
		unit = time.Microsecond
	case 'n':
		unit = time.Nanosecond
	default:
		return 0, false
	}
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 32)
	if err != nil || s[0] == '+' {
		return 0, false
	}
	const most = 10 * 365 * 24 * time.Hour
	if n > uint64(most/unit) {
		return most, true
	}
	return time.Duration(n) * unit, true
}

// formatGRPCTimeout writes what is left so that it never grows.
func formatGRPCTimeout(d time.Duration) string {
	switch {
	case d <= 0:
		return "1n"
	case d < time.Microsecond:
		return strconv.FormatInt(int64(d), 10) + "n"
	case d < 100*time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + "u"
	case d < 99_999_999*time.Millisecond:
		return strconv.FormatInt(d.Milliseconds(), 10) + "m"
	}
	return strconv.FormatInt(int64(d/time.Second), 10) + "S"
}

// lower takes a deadline of the caller; deadlines only ever come nearer.
func (x *Exchange) lower(t time.Time) {
	if x.deadline.IsZero() || t.Before(x.deadline) {
		x.deadline = t
	}
}

// previousAttempts tells the endpoint how often the call was tried before, attempts that are still on their way included (gRPC
// A6). A replay is none: nobody saw the one before it.
func (x *Exchange) previousAttempts() {
	before := x.out.Attempts - 1 - x.out.Replays
	if !x.call.is || before <= 0 {
		return
	}
	n := strconv.Itoa(before)
	for i := range x.Req.Fields {
		if f := &x.Req.Fields[i]; f.ID == FieldGRPCPrevious {
			f.Value, f.Drop = n, false
			return
		}
	}
	x.Req.Fields = append(x.Req.Fields, Field{Name: "grpc-previous-rpc-attempts", Value: n, ID: FieldGRPCPrevious})
}

// holdHead is how long a good head is held back to see whether the call fails at once: servers may send a failure as a
// head and, right behind it, trailers.
const holdHead = 10 * time.Millisecond

// look finds out the status of a gRPC answer whose head has come, as far as that can be told now, and what it says about
// retries.
func (x *Exchange) look(o *resilience.Outcome) {
	if x.resp.Status != 200 {
		return
	}
	body := x.up.Body()
	if x.awaitsStatus() && !body.Buffered() {
		x.peek(body, time.Now().Add(holdHead))
	} else if body.Whole() {
		x.peek(body, time.Time{})
	}
	if !x.ahead.done {
		x.call.pending = true
		return
	}
	x.readStatus()
	o.GRPC = x.call.status
	o.Pushback = pushback(x.resp.Fields)
	if p := pushback(body.Trailers()); p != 0 {
		o.Pushback = p
	}
}

// awaitsStatus reports whether something may be done about a status that comes right behind its head: a retry, or an answer in
// its place.
func (x *Exchange) awaitsStatus() bool {
	if x.rt.Plan.On.GRPC != 0 && x.rt.Plan.Retries > 0 || x.rt.Fallback != nil && x.rt.Fallback.When.GRPC() {
		return true
	}
	for _, w := range x.rt.StandIns {
		if w.State.State() != resilience.SwitchOff && w.When.GRPC() {
			return true
		}
	}
	return false
}

// ahead is a piece of the response body that was read before the head was sent on.
type ahead struct {
	piece []byte
	done  bool // the body has ended, with nothing in it
}

// peek reads the first piece of the body, or learns that there is none.
func (x *Exchange) peek(body Body, until time.Time) {
	p, err := body.Next(until)
	switch {
	case err == nil:
		x.ahead.piece = p
	case errors.Is(err, io.EOF):
		x.ahead.done = true
	}
	// Anything else comes up again when the body is relayed.
}

// readStatus takes the status out of what stands behind the body, or else of the head (Trailers-Only).
func (x *Exchange) readStatus() {
	x.call.pending = false
	for _, fields := range [...][]Field{x.up.Body().Trailers(), x.resp.Fields} {
		for i := range fields {
			if fields[i].ID == FieldGRPCStatus {
				x.call.status = resilience.ParseGRPC(fields[i].Value)
				return
			}
		}
	}
	x.call.status = resilience.GRPCInvalid
}

// settle judges a gRPC call whose status came behind its body.
func (x *Exchange) settle() {
	if !x.call.pending {
		return
	}
	x.readStatus()
	x.ended.GRPC = x.call.status
	x.Clock = time.Now()
	x.report(x.ended)
}

// grpcStatus is the status of an answer of ours that would have an HTTP status: what is too large exhausts a resource, where
// other bad requests are malformed.
func grpcStatus(reason resilience.Reason, status int) int {
	if status == 413 || status == 431 {
		return resilience.RateLimited.GRPCStatus()
	}
	return reason.GRPCStatus()
}

// grpcAnswer makes x.resp the answer of our own to a gRPC call: one head with a status (Trailers-Only), never an HTTP
// error.
func (x *Exchange) grpcAnswer(status int, text string) {
	x.call.status = resilience.GRPC(status) + resilience.GRPCOK
	r := &x.resp
	*r = Response{Status: 200, Local: true, Fields: append(r.Fields[:0],
		Field{Name: "content-type", Value: "application/grpc", ID: FieldContentType},
		Field{Name: "grpc-status", Value: strconv.Itoa(status), ID: FieldGRPCStatus},
		Field{Name: "grpc-message", Value: percentEncode(text)})}
	x.out.Status = 200
}

// grpcRespond answers a call as a route says, by the status that clients take its HTTP status for
// (http-grpc-status-mapping.md of grpc/grpc), with its body as the message.
func (x *Exchange) grpcRespond() {
	rs := x.rt.Respond
	status := 2 // UNKNOWN
	switch rs.Status {
	case 400:
		status = 13
	case 401:
		status = 16
	case 403:
		status = 7
	case 404:
		status = 12
	case 429, 502, 503, 504:
		status = 14
	}
	text := strings.TrimRight(rs.Body, "\r\n")
	if text == "" {
		text = strconv.Itoa(rs.Status) + " is the answer of route " + x.rt.Name
	}
	x.grpcAnswer(status, text)
	for _, h := range rs.Headers {
		if id := Classify(h.Name); id != FieldContentType {
			x.resp.Fields = append(x.resp.Fields, Field{Name: h.Name, Value: h.Value, ID: id})
		}
	}
	x.sendLocal(nil)
}

// grpcTrailers ends a call in order that broke off behind its head, unless that was in the middle of a message.
func (x *Exchange) grpcTrailers(reason resilience.Reason, detail string) bool {
	if out := &x.call.out; !x.call.is || out.left > 0 || out.have > 0 {
		return false
	}
	status := reason.GRPCStatus()
	x.call.pending, x.call.status = false, resilience.GRPC(status)+resilience.GRPCOK
	return x.down.End([]Field{
		{Name: "grpc-status", Value: strconv.Itoa(status), ID: FieldGRPCStatus},
		{Name: "grpc-message", Value: percentEncode(reason.String() + ": " + detail)},
	}) == nil
}

// percentEncode writes a message as grpc-message wants it.
func percentEncode(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c <= 0x7e && c != '%' {
			b.WriteByte(c)
			continue
		}
		const hexDigits = "0123456789ABCDEF"
		b.WriteByte('%')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	return b.String()
}

// messages counts gRPC messages in a body as it passes: each begins with a flag and four bytes of length.
type messages struct {
	n    int64
	left uint32 // of the message's bytes
	head [5]byte
	have uint8 // of head
}

func (m *messages) feed(p []byte) {
	for len(p) > 0 {
		if m.left > 0 {
			n := min(uint32(len(p)), m.left)
			m.left -= n
			p = p[n:]
			continue
		}
		n := copy(m.head[m.have:], p)
		p = p[n:]
		if m.have += uint8(n); m.have == 5 {
			m.have = 0
			m.n++
			m.left = uint32(m.head[1])<<24 | uint32(m.head[2])<<16 | uint32(m.head[3])<<8 | uint32(m.head[4])
		}
	}
}

// bodyUntil bounds a wait for the next piece of a response body: by idleness, and for gRPC by the deadline of the call.
func (x *Exchange) bodyUntil(body Body) time.Time {
	t := x.idleUntil(body)
	if x.call.is && !t.IsZero() && !x.deadline.IsZero() && x.deadline.Before(t) {
		return x.deadline
	}
	return t
}

// slack is how much earlier than we an endpoint may find that a deadline is over that it was told of.
const slack = 10 * time.Millisecond

// pastDeadline reports whether a failure is that of the call's deadline: a timeout that is not one of idleness, or an
// endpoint that gave the call up a moment before we would have.
func (x *Exchange) pastDeadline(err error) bool {
	var pe *ProtocolError
	switch left := time.Until(x.deadline); {
	case x.deadline.IsZero() || errors.As(err, &pe):
		return false
	case errors.Is(err, netio.ErrTimeout):
		return left <= 0
	default:
		return x.call.is && left < slack
	}
}
