package telemetry

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sidecar-mesh/sidecar/resilience"
)

func logged(o *Outcome, text bool) string { return string(appendLine(nil, o, text)) }

func goldenOutcomes() []Outcome {
	usual := sampleOutcome(nil)
	hostile := Outcome{
		Direction: Inbound, Protocol: "HTTP/1.1", Service: "shop", Method: "G\"E\\T", Host: "a b=c\x7f\x1b[31m",
		Path: "/\r\n{\"x\":1}\u2028\u0085\u202e\xff\xfeé\U0001F600\t", Status: 400, Reason: resilience.BadRequest,
		Detail: "header line 3: bare CR", Start: day(), Total: 999,
	}
	long := Outcome{Path: "/" + strings.Repeat("é", 2000), Status: 200, Start: day(), Total: time.Hour}
	gone := Outcome{
		Protocol: "HTTP/1.1", Service: "catalog", Reason: resilience.CallerGone, Detail: "reset by peer", Start: day(),
		Total: 1500 * time.Microsecond,
	}
	tcp := Outcome{
		Protocol: "tcp", Service: "db", Start: day(), Total: 90 * time.Second, BytesIn: 1, BytesOut: 1 << 40,
		Endpoint: "[2001:db8::1]:5432", Ongoing: true,
	}
	ws := Outcome{
		Protocol: "HTTP/1.1", Service: "chat", Status: 101, Upgraded: true, Start: day().Add(time.Duration(900) * time.Millisecond),
		FirstByte: time.Millisecond, Total: time.Minute, Replays: 1, Attempts: 2, Backups: 1, BackupWon: true,
	}
	return []Outcome{usual, hostile, long, gone, tcp, ws, {}}
}

func TestLines(t *testing.T) {
	for name, text := range map[string]bool{"testdata/lines.json": false, "testdata/lines.txt": true} {
		var b strings.Builder
		for _, o := range goldenOutcomes() {
			b.WriteString(logged(&o, text))
		}
		golden(t, name, b.String())
	}
}

// shown is what a reader of the JSON form gets back of a field.
func shown(s string, limit int) string {
	if len(s) > limit {
		s = cut(s, limit) + "…"
	}
	return string([]rune(s)) // each byte that is not UTF-8 becomes U+FFFD
}

func checkLine(t *testing.T, o *Outcome) {
	t.Helper()
	raw := logged(o, false)
	if strings.Count(raw, "\n") != 1 || !strings.HasSuffix(raw, "}\n") {
		t.Fatalf("not one line: %q", raw)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(raw), &got); err != nil {
		t.Fatalf("%v in %q", err, raw)
	}
	for name, f := range map[string]struct {
		value string
		limit int
	}{
		"service": {o.Service, capName}, "host": {o.Host, capName}, "path": {o.Path, capPath}, "method": {o.Method, capShort},
		"detail": {o.Detail, capLong}, "request_id": {o.RequestID, capName}, "caller": {o.Caller, capName},
	} {
		want := shown(f.value, f.limit)
		if v, ok := got[name]; ok != (want != "") || ok && v != want {
			t.Errorf("%s: %q became %q", name, want, v)
		}
	}
	if v, ok := got["bytes_in"]; ok && v != float64(o.BytesIn) {
		t.Errorf("bytes_in: %d became %v", o.BytesIn, v)
	}
	at, err := time.Parse("2006-01-02T15:04:05.000Z", got["time"].(string))
	if want := o.Start.Add(o.Total).UTC().Truncate(time.Millisecond); err != nil || want.Year() > 0 && !at.Equal(want) {
		t.Errorf("time: %v became %v, %v", want, got["time"], err)
	}
	text := logged(o, true)
	for i := range len(text) - 1 {
		if c := text[i]; c < 0x20 || c == 0x7f {
			t.Fatalf("byte %#x in the text form %q", c, text)
		}
	}
	for _, form := range []string{raw, text} {
		if !utf8.ValidString(form) {
			t.Fatalf("not UTF-8: %q", form)
		}
		for _, r := range form {
			if r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x202e {
				t.Fatalf("%U in %q", r, form)
			}
		}
	}
}

func TestLinesRoundTrip(t *testing.T) {
	for _, o := range goldenOutcomes() {
		checkLine(t, &o)
	}
	for c := range 256 {
		for _, n := range []int{0, 1, 7, 8, 9, 20} {
			s := strings.Repeat("a", n) + string([]byte{byte(c)}) + strings.Repeat("b", n)
			checkLine(t, &Outcome{Service: s, Host: s, Path: s, Method: s, Detail: s, RequestID: s, Caller: s, Start: day()})
		}
	}
	for n := capPath - 6; n < capPath+6; n++ {
		for _, unit := range []string{"x", "é", "日", "\U0001F600", "\x80", "\n"} {
			checkLine(t, &Outcome{Path: strings.Repeat("a", n%5) + strings.Repeat(unit, n/len(unit)), Start: day()})
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("catalog", "a\"b", "/p?q=\x00\x1b\xff", "GET", "x", int64(1_234_567), int64(1<<40))
	f.Add("", "\u2028", strings.Repeat("é", 1500), "\\", "\xed\xa0\x80", int64(-5), int64(-1))
	f.Fuzz(func(t *testing.T, service, host, path, method, detail string, took, at int64) {
		checkLine(t, &Outcome{
			Service: service, Host: host, Path: path, Method: method, Detail: detail, RequestID: host, Caller: path,
			Total: time.Duration(took), Start: time.Unix(at%(1<<36), 0), BytesIn: at % (1 << 50), Status: int(took),
			Reason: resilience.Reason(at),
		})
	})
}

func BenchmarkLine(b *testing.B) {
	o := sampleOutcome(nil)
	buf := make([]byte, 0, 2048)
	b.ReportAllocs()
	for b.Loop() {
		buf = appendLine(buf[:0], &o, false)
	}
	b.SetBytes(int64(len(buf)))
}
