package admin

import (
	"net/http"
	"time"
)

// inForce is the answer of /config.
type inForce struct {
	Revision string    `json:"revision"`
	Loaded   time.Time `json:"loaded"`
	Trigger  string    `json:"trigger"`
	Sources  []string  `json:"sources"`
	// LastFailed is the last attempt to reload, if it was refused.
	LastFailed *Reload  `json:"last_failed_reload"`
	Warnings   []string `json:"warnings"`
}

func (a *api) config(w http.ResponseWriter, r *http.Request) {
	s := a.process.Snapshot()
	if s == nil {
		refuse(w, r, problem{Status: http.StatusServiceUnavailable, Title: "nothing is in force yet", Reason: "starting"})
		return
	}
	v := a.process.Reloads()
	c := inForce{
		Revision: s.Mesh.Revision, Loaded: v.Loaded.Time, Trigger: v.Loaded.Trigger, Sources: filled(v.Loaded.Sources),
		LastFailed: v.Failed, Warnings: []string{},
	}
	for i := range s.Mesh.Config.Warnings {
		c.Warnings = append(c.Warnings, s.Mesh.Config.Warnings[i].Error())
	}
	answer(w, http.StatusOK, c)
}
