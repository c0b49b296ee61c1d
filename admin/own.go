package admin

import (
	"cmp"
	"net/http"
	"time"
)

// App is how the app behind an inbound service answers its probes.
type App struct {
	Service string    `json:"-"`
	State   string    `json:"state"` // unknown, well or ill
	Reason  string    `json:"reason,omitempty"`
	Since   time.Time `json:"since"`
}

// Registration is where an inbound service stands in one registry.
type Registration struct {
	Service  string    `json:"-"`
	Registry string    `json:"registry"`
	ID       string    `json:"id"`
	State    string    `json:"state"` // checking, refused, registering, critical, passing, offline, leaving or left
	Reason   string    `json:"reason,omitempty"`
	Since    time.Time `json:"since"`
}

// own adds what is known of a service of our own app.
func (a *api) own(v *Service) {
	for _, app := range a.process.Apps() {
		if app.Service == v.Name {
			v.App = &app
		}
	}
	for _, r := range a.process.Registrations() {
		if r.Service == v.Name {
			v.Registrations = append(v.Registrations, r)
		}
	}
}

// appReady says whether all apps that are asked are well, for /ready?app.
func (a *api) appReady() Readiness {
	for _, app := range a.process.Apps() {
		if app.State != "well" {
			return Readiness{
				Reason: "app", Detail: "the app of service " + app.Service + " is not well: " + cmp.Or(app.Reason, "it has not answered yet"),
			}
		}
	}
	return Readiness{Ready: true}
}

// ready answers /ready; with ?app our own app must be well too.
func (a *api) ready(w http.ResponseWriter, r *http.Request) {
	v := a.process.Readiness()
	if v.Ready && r.URL.Query().Has("app") {
		v = a.appReady()
	}
	if v.Ready {
		answer(w, http.StatusOK, struct {
			Ready bool `json:"ready"`
		}{true})
		return
	}
	w.Header().Set("Retry-After", "1")
	refuse(w, r, problem{
		Status: http.StatusServiceUnavailable, Title: "not ready", Detail: v.Detail, Reason: v.Reason, Waiting: v.Waiting,
	})
}
