package telemetry

import (
	"encoding/binary"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/sidecar-mesh/sidecar/resilience"
)

// Bytes of a field that a line shows; the rest becomes "…".
const (
	capPath  = 2048
	capLong  = 512
	capName  = 255
	capShort = 64
)

// line builds one log line. Both forms have the same fields in the same order.
type line struct {
	b    []byte
	text bool
}

// appendLine appends the line of o, newline included, to b. Empty fields are left out.
func appendLine(b []byte, o *Outcome, text bool) []byte {
	l := line{b: b, text: text}
	if text {
		l.b = appendTime(append(l.b, "time="...), o.Start.Add(o.Total))
	} else {
		l.b = append(appendTime(append(l.b, `{"time":"`...), o.Start.Add(o.Total)), '"')
	}
	l.word(`,"direction":"`, o.Direction.String())
	l.str(`,"protocol":"`, o.Protocol, capShort)
	l.str(`,"service":"`, o.Service, capName)
	l.str(`,"route":"`, o.Route, capName)
	l.str(`,"caller":"`, o.Caller, capName)
	l.str(`,"method":"`, o.Method, capShort)
	l.str(`,"host":"`, o.Host, capName)
	l.str(`,"path":"`, o.Path, capPath)
	l.num(`,"status":`, int64(logStatus(o)))
	l.word(`,"reason":"`, reasonName(o.Reason))
	l.str(`,"detail":"`, o.Detail, capLong)
	l.num(`,"attempts":`, int64(o.Attempts))
	l.num(`,"retries":`, int64(o.Retries))
	l.num(`,"replays":`, int64(o.Replays))
	l.num(`,"backups":`, int64(o.Backups))
	l.yes(`,"backup_won":`, o.BackupWon)
	l.str(`,"endpoint":"`, o.Endpoint, capName)
	l.ms(`,"queue_ms":`, o.Queue)
	l.ms(`,"connect_ms":`, o.Connect)
	l.ms(`,"first_byte_ms":`, o.FirstByte)
	l.ms(`,"total_ms":`, o.Total)
	l.num(`,"bytes_in":`, o.BytesIn)
	l.num(`,"bytes_out":`, o.BytesOut)
	l.str(`,"request_id":"`, o.RequestID, capName)
	l.str(`,"trace_id":"`, o.TraceID, capShort)
	l.word(`,"fallback":"`, o.Fallback)
	l.yes(`,"upgraded":`, o.Upgraded)
	l.word(`,"grpc_status":"`, o.GRPC.String())
	l.num(`,"messages_in":`, o.MessagesIn)
	l.num(`,"messages_out":`, o.MessagesOut)
	l.yes(`,"ongoing":`, o.Ongoing)
	if !text {
		l.b = append(l.b, '}')
	}
	return append(l.b, '\n')
}

// logStatus is 499 for a caller who left before there was an answer.
func logStatus(o *Outcome) int {
	if o.Status == 0 && o.Reason == resilience.CallerGone && o.Protocol != "tcp" {
		return 499
	}
	return o.Status
}

func reasonName(r resilience.Reason) string {
	if r >= resilience.Reasons {
		return "unknown"
	}
	return r.String()
}

// key starts a field; key is a comma and the name as JSON has it.
func (l *line) key(key string) {
	if !l.text {
		l.b = append(l.b, key...)
		return
	}
	l.b = append(l.b, ' ')
	l.b = append(append(l.b, key[2:len(key)-2]...), '=')
}

// str appends a text; key ends with the opening quote.
func (l *line) str(key, value string, limit int) {
	switch {
	case value == "":
	case l.text:
		l.key(key[:len(key)-1])
		l.b = appendText(l.b, value, limit)
	default:
		l.b = append(l.b, key...)
		l.b = appendJSON(l.b, value, limit)
	}
}

// word appends a text of ours, which needs no escape.
func (l *line) word(key, value string) {
	switch {
	case value == "":
	case l.text:
		l.key(key[:len(key)-1])
		l.b = append(l.b, value...)
	default:
		l.b = append(l.b, key...)
		l.b = append(append(l.b, value...), '"')
	}
}

func (l *line) num(key string, v int64) {
	if v != 0 {
		l.key(key)
		l.b = strconv.AppendInt(l.b, v, 10)
	}
}

func (l *line) yes(key string, v bool) {
	if v {
		l.key(key)
		l.b = append(l.b, "true"...)
	}
}

// ms appends milliseconds with three decimals.
func (l *line) ms(key string, d time.Duration) {
	if d <= 0 {
		return
	}
	l.key(key)
	us := int64(d) / 1000
	l.b = strconv.AppendInt(l.b, us/1000, 10)
	us %= 1000
	l.b = append(l.b, '.', byte('0'+us/100), byte('0'+us/10%10), byte('0'+us%10))
}

// appendTime appends t in UTC as RFC 3339 with milliseconds.
func appendTime(b []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	hour, minute, sec := t.Clock()
	ms := t.Nanosecond() / 1e6
	if year < 0 || year > 9999 {
		year = 0
	}
	b = append(b, byte('0'+year/1000), byte('0'+year/100%10), byte('0'+year/10%10), byte('0'+year%10), '-')
	b = append(two(b, int(month)), '-')
	b = append(two(b, day), 'T')
	b = append(two(b, hour), ':')
	b = append(two(b, minute), ':')
	b = append(two(b, sec), '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10))
	return append(b, 'Z')
}

func two(b []byte, v int) []byte { return append(b, byte('0'+v/10), byte('0'+v%10)) }

// plain says that c needs no escape in JSON. Everything beyond ASCII is looked at more closely.
func plain(c byte) bool { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\' }

const ones = 0x0101010101010101 // one in each byte of a word

// below sets the top bit of each byte of w that is less than n, for bytes and n below 0x80.
func below(w uint64, n byte) uint64 { return (w - ones*uint64(n)) &^ w }

// holds sets the top bit of some byte of w if any is c, for bytes and c below 0x80.
func holds(w uint64, c byte) uint64 { return below(w^ones*uint64(c), 1) }

// allPlain reports whether no byte of b needs an escape, or in text, quotes.
func allPlain(b []byte, text bool) bool {
	for ; len(b) >= 8; b = b[8:] {
		w := binary.LittleEndian.Uint64(b)
		bad := w | below(w, 0x20) | holds(w, 0x7f) | holds(w, '"') | holds(w, '\\')
		if text {
			bad |= holds(w, ' ') | holds(w, '=')
		}
		if bad&(ones<<7) != 0 {
			return false
		}
	}
	for _, c := range b {
		if !plain(c) || text && (c == ' ' || c == '=') {
			return false
		}
	}
	return true
}

// appendJSON appends the rest of a JSON string after its opening quote. Control characters, DEL, the C1 range, line
// separators and text direction marks are escaped, what is not UTF-8 becomes U+FFFD, and what exceeds limit bytes "…".
func appendJSON(b []byte, s string, limit int) []byte {
	if len(s) > limit {
		return append(appendEscaped(b, cut(s, limit)), `…"`...)
	}
	from := len(b)
	b = append(b, s...)
	if !allPlain(b[from:], false) {
		b = appendEscaped(b[:from], s)
	}
	return append(b, '"')
}

// appendText appends s as it is where nothing calls for quotes, else as JSON.
func appendText(b []byte, s string, limit int) []byte {
	from := len(b)
	if len(s) <= limit {
		b = append(b, s...)
		if allPlain(b[from:], true) {
			return b
		}
	}
	return appendJSON(append(b[:from], '"'), s, limit)
}

// cut returns at most limit (4 or more) bytes of s and does not end inside a character.
func cut(s string, limit int) string {
	for n := limit; n > limit-utf8.UTFMax; n-- {
		if utf8.RuneStart(s[n]) {
			return s[:n]
		}
	}
	return s[:limit]
}

func appendEscaped(b []byte, s string) []byte {
	for {
		i := 0
		for i < len(s) && plain(s[i]) {
			i++
		}
		b = append(b, s[:i]...)
		if i == len(s) {
			return b
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		b = appendRune(b, r, s[i:i+n])
		s = s[i+n:]
	}
}

func appendRune(b []byte, r rune, raw string) []byte {
	const hex = "0123456789abcdef"
	switch {
	case r == '"' || r == '\\':
		return append(b, '\\', byte(r))
	case r == '\n':
		return append(b, '\\', 'n')
	case r == '\r':
		return append(b, '\\', 'r')
	case r == '\t':
		return append(b, '\\', 't')
	case r == utf8.RuneError && len(raw) == 1:
		return append(b, "\uFFFD"...)
	case r < 0x20, r >= 0x7f && r < 0xa0, r == 0x2028, r == 0x2029, r >= 0x202a && r <= 0x202e,
		r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f, r == 0xfeff:
		return append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
	}
	return append(b, raw...)
}
