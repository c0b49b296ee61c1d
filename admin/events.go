package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/telemetry"
)

const (
	maxFollowers = 16               // of the events at one time
	eventBeat    = 15 * time.Second // something is sent at least so often, so that a follower who left is noticed
	eventWrite   = 10 * time.Second // for one piece of the stream; who is slower is cut off
)

// events answers with the remembered events, or with follow in the query streams them from there on: as server-sent
// events for who accepts those, else one JSON object a line.
func (a *api) events(w http.ResponseWriter, r *http.Request) {
	want, err := eventQuery(r.URL.Query())
	if err != nil {
		refuse(w, r, problem{Status: http.StatusBadRequest, Title: "bad parameter", Detail: err.Error()})
		return
	}
	if want.follow {
		a.follow(w, r, want)
		return
	}
	list, _ := a.recorder.Events().Since(want.since)
	answer(w, http.StatusOK, struct {
		Events []telemetry.Event `json:"events"`
	}{want.pick(list)})
}

// eventWish is which events somebody wants.
type eventWish struct {
	follow        bool
	since         uint64
	service, kind string
}

func eventQuery(q url.Values) (v eventWish, err error) {
	for name, values := range q {
		text := values[len(values)-1]
		switch name {
		case "follow":
			if text == "" {
				text = "true"
			}
			if v.follow, err = strconv.ParseBool(text); err != nil {
				return v, fmt.Errorf("follow: true or false is expected, not %q", cut(text))
			}
		case "since":
			if v.since, err = strconv.ParseUint(text, 10, 64); err != nil {
				return v, fmt.Errorf("since: the seq of an event is expected, not %q", cut(text))
			}
		case "service":
			v.service = text
		case "kind":
			v.kind = text
		default:
			return v, fmt.Errorf("there is no parameter %s; there is: follow kind service since", cut(name))
		}
	}
	return v, nil
}

// pick leaves out what is not wanted.
func (v *eventWish) pick(list []telemetry.Event) []telemetry.Event {
	kept := list[:0]
	for _, e := range list {
		if (v.service == "" || v.service == e.Service) && (v.kind == "" || v.kind == e.Kind) {
			kept = append(kept, e)
		}
	}
	return kept
}

// follow streams events until the client leaves or the listener closes.
func (a *api) follow(w http.ResponseWriter, r *http.Request, want eventWish) {
	if a.followers.Add(1) > maxFollowers {
		a.followers.Add(-1)
		w.Header().Set("Retry-After", "5")
		refuse(w, r, problem{Status: http.StatusServiceUnavailable, Title: "too many followers", Detail: fmt.Sprintf(
			"%d already follow the events", maxFollowers)})
		return
	}
	defer a.followers.Add(-1)
	s := stream{w: w, c: http.NewResponseController(w), sse: strings.Contains(r.Header.Get("Accept"), "text/event-stream")}
	if id, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64); err == nil && want.since == 0 {
		want.since = id // a browser that connects again
	}
	s.begin()
	if r.Method == http.MethodHead {
		return
	}
	beat := time.NewTicker(eventBeat)
	defer beat.Stop()
	for {
		list, more := a.recorder.Events().Since(want.since)
		if n := len(list); n > 0 {
			want.since = list[n-1].Seq
		}
		if s.send(want.pick(list)) != nil {
			return
		}
		select {
		case <-more:
		case <-beat.C:
			if s.beat() != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-ending(r):
			return
		}
	}
}

// stream is an answer without an end.
type stream struct {
	w   http.ResponseWriter
	c   *http.ResponseController
	sse bool
}

func (s *stream) begin() {
	// The server's time limits are for answers that end. Not every writer knows deadlines: then there is none to lift.
	_ = s.c.SetReadDeadline(time.Time{})
	s.limit()
	kind := "application/x-ndjson"
	if s.sse {
		kind = "text/event-stream"
	}
	s.w.Header().Set("Content-Type", kind)
	s.w.WriteHeader(http.StatusOK)
}

func (s *stream) limit() { _ = s.c.SetWriteDeadline(time.Now().Add(eventWrite)) }

// send writes events and flushes, be there none.
func (s *stream) send(list []telemetry.Event) error {
	s.limit()
	for i := range list {
		data, err := json.Marshal(&list[i])
		if err != nil {
			return err
		}
		if s.sse {
			_, err = fmt.Fprintf(s.w, "id: %d\nevent: %s\ndata: %s\n\n", list[i].Seq, list[i].Kind, data)
		} else {
			_, err = fmt.Fprintf(s.w, "%s\n", data)
		}
		if err != nil {
			return err
		}
	}
	return s.c.Flush()
}

// beat sends what means nothing: a comment, or an empty line.
func (s *stream) beat() error {
	s.limit()
	text := "\n"
	if s.sse {
		text = ":\n\n"
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.c.Flush()
}
