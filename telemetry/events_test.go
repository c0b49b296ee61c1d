package telemetry

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestEventsRing(t *testing.T) {
	r := newTest(t, Options{})
	v := r.Events()
	for i := range 10 {
		v.Add(Event{Kind: "k", Detail: fmt.Sprint(i)})
	}
	if got := v.Snapshot(); len(got) != 10 || got[0].Detail != "0" || !got[9].Time.Equal(day()) {
		t.Errorf("%+v", got)
	}
	for i := 10; i < 2345; i++ {
		v.Add(Event{Kind: "k", Detail: fmt.Sprint(i)})
	}
	got := v.Snapshot()
	if len(got) != eventRoom {
		t.Fatalf("%d events", len(got))
	}
	for i, e := range got {
		if want := fmt.Sprint(2345 - eventRoom + i); e.Detail != want {
			t.Fatalf("event %d is %s, want %s", i, e.Detail, want)
		}
	}
	v.Add(Event{Kind: "k", Detail: strings.Repeat("é", 5000) + "\xff"})
	if got := v.Snapshot()[eventRoom-1].Detail; len(got) > eventDetail+3 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestEventsSince(t *testing.T) {
	v := newTest(t, Options{}).Events()
	for i := range eventRoom + 10 {
		v.Add(Event{Kind: "k", Detail: fmt.Sprint(i)})
	}
	for _, row := range []struct {
		since, first uint64
		n            int
	}{
		{0, 11, eventRoom},             // all that is remembered
		{5, 11, eventRoom},             // some are overwritten: a gap
		{eventRoom, eventRoom + 1, 10}, // only what is new
		{eventRoom + 10, 0, 0},
		{1 << 40, 11, eventRoom}, // of another process
	} {
		list, _ := v.Since(row.since)
		if len(list) != row.n || row.n > 0 && list[0].Seq != row.first {
			t.Errorf("since %d: %d events", row.since, len(list))
		}
		for i := range list {
			if list[i].Seq != row.first+uint64(i) {
				t.Fatalf("since %d: event %d has seq %d", row.since, i, list[i].Seq)
			}
		}
	}
	_, more := v.Since(eventRoom + 10)
	_, also := v.Since(0)
	select {
	case <-more:
		t.Error("told of nothing")
	default:
	}
	v.Add(Event{Kind: "k"})
	<-more
	<-also
}

func TestEventsAreLogged(t *testing.T) {
	var out safeBuffer
	h := slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	r := newTest(t, Options{Log: slog.New(h)})
	r.Ejected("catalog", "10.0.0.1:80", "error_ratio")
	r.BreakerChanged("catalog", "items", "open", "half_open", "")
	r.Source("main").Failed("unreachable", "refused")
	r.Source("main").Failed("unreachable", "refused") // the same story
	r.Source("main").Updated()                        // of one service, while another one fails still
	r.Source("main").Well()
	r.Source("main").Well()
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Reload(true, time.Second, "after the end")
	want := `level=WARN msg=ejected service=catalog endpoint=10.0.0.1:80 detail=error_ratio at=2026-03-04T05:06:07.089Z
level=INFO msg=breaker service=catalog route=items from=open to=half_open at=2026-03-04T05:06:07.089Z
level=WARN msg=discovery to=failing detail="main: refused" at=2026-03-04T05:06:07.089Z
level=INFO msg=discovery to=ok detail="heard again: main" at=2026-03-04T05:06:07.089Z
`
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// A logger that hangs holds nobody; what it missed is counted.
func TestEventsDoNotWaitForTheLog(t *testing.T) {
	out := &gate{open: make(chan struct{})}
	r := newTest(t, Options{Log: slog.New(slog.NewTextHandler(out, nil))})
	const n = 5000
	for range n {
		r.Events().Add(Event{Kind: "k"})
	}
	close(out.open)
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := uint64(strings.Count(out.String(), "\n")) + r.events.lostCount(); got != n {
		t.Errorf("%d of %d accounted for", got, n)
	}
	if r.events.lostCount() == 0 {
		t.Error("none was lost")
	}
}
