package admin

import (
	"net/http"
	"time"
)

// drain begins to drain and answers at once, or with ?wait=DURATION when nothing is left, at the latest after that.
func (a *api) drain(w http.ResponseWriter, r *http.Request) {
	var wait time.Duration
	if text := r.URL.Query().Get("wait"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			refuse(w, r, problem{Status: http.StatusBadRequest, Title: "bad parameter", Detail: "wait: a duration like 30s is expected"})
			return
		}
		wait = d
	}
	state := a.process.Drain()
	if wait > 0 && state.State != "drained" {
		c := http.NewResponseController(w)
		_ = c.SetWriteDeadline(a.now().Add(wait + stopTime)) // where it cannot be set, the wait is bounded by the server's
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-a.process.Drained():
		case <-t.C:
		case <-r.Context().Done():
		}
		state = a.process.Drain()
	}
	status := http.StatusAccepted
	if state.State == "drained" {
		status = http.StatusOK
	}
	answer(w, status, state)
}

// quit drains in a hurry and ends the process. It answers first.
func (a *api) quit(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusAccepted, a.process.Quit())
}
