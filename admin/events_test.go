package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/internal/meshtest"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

func TestEvents(t *testing.T) {
	_, rec, s := rig(t)
	rec.Ejected("catalog", "10.0.0.1:80", "error_ratio")
	rec.BreakerChanged("catalog", "one", "closed", "open", "")
	rec.BreakerChanged("other", "", "closed", "open", "")
	for query, want := range map[string]string{
		"":                              "1 ejected, 2 breaker, 3 breaker",
		"?since=1":                      "2 breaker, 3 breaker",
		"?kind=breaker":                 "2 breaker, 3 breaker",
		"?kind=breaker&service=catalog": "2 breaker",
		"?since=3":                      "",
		"?follow=false&service=nobody":  "",
	} {
		v := decode[struct{ Events []telemetry.Event }](t, ask(s.api.full(), "GET", "/events"+query), 200)
		if got := seqs(v.Events); got != want || v.Events == nil {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for _, query := range []string{"?since=x", "?follow=maybe", "?from=3"} {
		decode[problem](t, ask(s.api.full(), "GET", "/events"+query), 400)
	}
}

func seqs(list []telemetry.Event) string {
	var parts []string
	for _, e := range list {
		b, _ := json.Marshal(e.Seq) // a number always can
		parts = append(parts, string(b)+" "+e.Kind)
	}
	return strings.Join(parts, ", ")
}

// A follower gets what is remembered and then what happens, and the end of the listener ends it at once.
func TestEventsFollow(t *testing.T) {
	for _, row := range []struct {
		name, accept, kind string
		lines              [2][]string // of the first and the second event
	}{
		{"lines", "", "application/x-ndjson", [2][]string{{`{"seq":1,`}, {`{"seq":2,`}}},
		{"server-sent events", "text/event-stream", "text/event-stream", [2][]string{
			{"id: 1", "event: breaker", `data: {"seq":1,`, ""}, {"id: 2", "event: breaker", `data: {"seq":2,`, ""},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, rec, s := rig(t)
			l := &config.Listen{Admin: meshtest.FreeAddress(t)}
			c, err := s.Prepare(l)
			if err != nil {
				t.Fatal(err)
			}
			c.Commit()
			rec.BreakerChanged("catalog", "", "closed", "open", "")
			q, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+l.Admin+"/events?follow", nil)
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Accept", row.accept)
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			r, err := client.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.Body.Close() }()
			if got := r.Header.Get("Content-Type"); got != row.kind {
				t.Errorf("Content-Type %s", got)
			}
			body := bufio.NewScanner(r.Body)
			expect(t, body, row.lines[0])
			rec.BreakerChanged("catalog", "", "open", "half_open", "")
			expect(t, body, row.lines[1])

			start := time.Now()
			s.Close(t.Context())
			if body.Scan() {
				t.Errorf("after the end: %q", body.Text())
			}
			if took := time.Since(start); took > stopTime {
				t.Errorf("a follower held up the end for %v", took)
			}
		})
	}
}

func expect(t *testing.T, body *bufio.Scanner, lines []string) {
	t.Helper()
	for _, want := range lines {
		if !body.Scan() || !strings.HasPrefix(body.Text(), want) {
			t.Fatalf("%q (%v), want %q…", body.Text(), body.Err(), want)
		}
	}
}

func TestEventsFollowersAreBounded(t *testing.T) {
	_, _, s := rig(t)
	s.api.followers.Store(maxFollowers)
	decode[problem](t, ask(s.api.full(), "GET", "/events?follow"), 503)
	s.api.followers.Store(0)
	if r := ask(s.api.full(), "HEAD", "/events?follow"); r.StatusCode != 200 || s.api.followers.Load() != 0 {
		t.Errorf("%d, %d follow", r.StatusCode, s.api.followers.Load())
	}
	// A browser that was cut off goes on where it was.
	w := httptest.NewRecorder()
	for range 3 {
		s.api.recorder.Readmitted("a", "b")
	}
	q := httptest.NewRequest("GET", "/events?follow", nil)
	q.Header.Set("Last-Event-ID", "2")
	done := make(chan struct{})
	close(done)
	s.api.follow(w, q.WithContext(context.WithValue(t.Context(), endingKey{}, done)), eventWish{follow: true})
	if got := w.Body.String(); !strings.HasPrefix(got, `{"seq":3,`) || strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
}
