package admin

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"
)

// Switch is a degradation switch.
type Switch struct {
	Name        string        `json:"name"`
	Service     string        `json:"service"`
	Route       string        `json:"route,omitempty"`
	Level       int           `json:"level"`
	Mode        string        `json:"mode"`   // shield or fallback
	Answer      string        `json:"answer"` // answer, empty, error or local
	State       string        `json:"state"`  // off, on, auto or ramp
	Auto        bool          `json:"auto"`   // has a rule
	Description string        `json:"description,omitempty"`
	Owner       string        `json:"owner,omitempty"`
	From        string        `json:"from"` // where it is written
	Last        *SwitchChange `json:"last_change"`
}

// SwitchChange is an entry of the journal.
type SwitchChange struct {
	Time    time.Time `json:"time"`
	Switch  string    `json:"switch"`
	Service string    `json:"service"`
	Level   int       `json:"level"`
	Old     string    `json:"old"`
	New     string    `json:"new"`
	By      string    `json:"by"`
	Reason  string    `json:"reason,omitempty"`
}

// SwitchWrite is the body of PUT /switches/NAME.
type SwitchWrite struct {
	Enabled *bool  `json:"enabled"`
	Reason  string `json:"reason,omitempty"`
	By      string `json:"by,omitempty"`      // left out: the address of the client
	Confirm bool   `json:"confirm,omitempty"` // level 3 needs it, and a reason
}

// Why a switch is not changed.
var (
	ErrNoSwitch    = errors.New("no such switch")
	ErrUnconfirmed = errors.New("not confirmed")
)

func (a *api) switches(w http.ResponseWriter, _ *http.Request) {
	list, journal := a.process.Switches()
	answer(w, http.StatusOK, struct {
		Switches []Switch       `json:"switches"`
		Journal  []SwitchChange `json:"journal"`
	}{filled(list), filled(journal)})
}

func (a *api) oneSwitch(w http.ResponseWriter, r *http.Request) {
	list, journal := a.process.Switches()
	for _, s := range list {
		if s.Name != strings.TrimPrefix(r.URL.Path, "/switches/") {
			continue
		}
		own := []SwitchChange{}
		for _, c := range journal {
			if c.Switch == s.Name {
				own = append(own, c)
			}
		}
		answer(w, http.StatusOK, struct {
			Switch
			Journal []SwitchChange `json:"journal"`
		}{s, own})
		return
	}
	refuse(w, r, problem{Status: http.StatusNotFound, Title: "no such switch", Detail: "GET /switches lists them"})
}

// mostOfWrite bounds the body of a write, and its texts.
const mostOfWrite = 16 << 10

func (a *api) setSwitch(w http.ResponseWriter, r *http.Request) {
	var body SwitchWrite
	d := json.NewDecoder(io.LimitReader(r.Body, mostOfWrite))
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil || body.Enabled == nil {
		detail := `{"enabled": true} or {"enabled": false} is expected, with "reason", "by" and "confirm" beside it`
		if err != nil {
			detail += ": " + err.Error()
		}
		refuse(w, r, problem{Status: http.StatusBadRequest, Title: "bad body", Detail: detail})
		return
	}
	if strings.ContainsFunc(body.Reason+body.By, unicode.IsControl) {
		refuse(w, r, problem{Status: http.StatusBadRequest, Title: "bad body", Detail: "reason and by are one line of text each: they are shown as such in the journal"})
		return
	}
	if body.By == "" {
		body.By = r.RemoteAddr
	}
	s, err := a.process.SetSwitch(strings.TrimPrefix(r.URL.Path, "/switches/"), body)
	switch {
	case errors.Is(err, ErrNoSwitch):
		refuse(w, r, problem{Status: http.StatusNotFound, Title: "not changed", Detail: strings.TrimPrefix(err.Error(), ErrNoSwitch.Error()+": ")})
	case errors.Is(err, ErrUnconfirmed):
		refuse(w, r, problem{Status: http.StatusConflict, Title: ErrUnconfirmed.Error(), Detail: strings.TrimPrefix(err.Error(), ErrUnconfirmed.Error()+": ")})
	case err != nil:
		refuse(w, r, problem{Status: http.StatusInternalServerError, Title: "not changed", Detail: err.Error()})
	default:
		answer(w, http.StatusOK, s)
	}
}
