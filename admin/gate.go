package admin

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Gate is the update gate: while it is closed, only a part of all sidecars follows its registries.
type Gate struct {
	Closed bool    `json:"closed"`
	Share  float64 `json:"percent"` // 0 … 1
	Epoch  string  `json:"epoch"`
	By     string  `json:"by,omitempty"`
	// Turn says that this sidecar may pull, until Until; without one for as long as the gate is as it is.
	Turn    bool       `json:"turn"`
	Until   *time.Time `json:"until,omitempty"`
	Waiting int        `json:"waiting"` // pulls that are suspended
}

// gate shows the update gate.
func (a *api) gate(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, a.process.Gate())
}

// setGate closes the gate with ?closed=true and opens it with ?closed=false; ?percent changes the part.
func (a *api) setGate(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	closed, err := strconv.ParseBool(q.Get("closed"))
	if err != nil {
		refuse(w, r, problem{Status: http.StatusBadRequest, Title: "bad parameter", Detail: "closed: true or false is expected"})
		return
	}
	share := a.process.Gate().Share
	if text := q.Get("percent"); text != "" {
		v, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
		if strings.HasSuffix(text, "%") {
			v /= 100
		}
		if err != nil || !(v > 0 && v <= 1) {
			refuse(w, r, problem{Status: http.StatusBadRequest, Title: "bad parameter", Detail: "percent: a ratio like 10% or 0.1, above 0, is expected"})
			return
		}
		share = v
	}
	answer(w, http.StatusOK, a.process.SetGate(closed, share))
}
