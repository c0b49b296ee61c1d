package admin

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

// inForce is the answer of /config.
type inForce struct {
	Revision string    `json:"revision"`
	Loaded   time.Time `json:"loaded"`
	Trigger  string    `json:"trigger"`
	Sources  []string  `json:"sources"`
	// LastFailed is the last attempt to reload, if it was refused.
	LastFailed *Reload  `json:"last_failed_reload"`
	Center     *Center  `json:"config_center,omitempty"`
	Warnings   []string `json:"warnings"`
	// LocalRules are the services whose rules the local file gives: neither the config centre nor an operator's push
	// changes them (S-127).
	LocalRules []string          `json:"local_rules"`
	Origins    map[string]string `json:"origins"`
	Config     json.RawMessage   `json:"config"`
}

func (a *api) config(w http.ResponseWriter, r *http.Request) {
	s := a.process.Snapshot()
	if s == nil {
		starting(w, r)
		return
	}
	c := s.Mesh.Config
	text, err := loadable(c)
	if err != nil {
		refuse(w, r, problem{Status: http.StatusInternalServerError, Title: "cannot be shown", Detail: err.Error()})
		return
	}
	v := a.process.Reloads()
	shown := inForce{
		Revision: s.Mesh.Revision, Loaded: v.Loaded.Time, Trigger: v.Loaded.Trigger, Sources: filled(v.Loaded.Sources),
		LastFailed: v.Failed, Center: v.Center, Warnings: []string{}, LocalRules: []string{}, Origins: origins(c), Config: text,
	}
	for _, w := range slices.Concat(c.Warnings, s.Warnings) {
		shown.Warnings = append(shown.Warnings, w.Error())
	}
	for _, r := range c.RuleSets() {
		if r.Local() {
			shown.LocalRules = append(shown.LocalRules, r.Service)
		}
	}
	answer(w, http.StatusOK, shown)
}

// origins says where the larger parts of a configuration are written.
func origins(c *config.Config) map[string]string {
	m := map[string]string{}
	for name, r := range c.Registries {
		m["registries."+name] = r.From.String()
	}
	for name, s := range c.Services {
		m["services."+name] = s.From.String()
	}
	for _, r := range c.RuleSets() {
		m["rules."+r.Service] = r.Rules.From.String()
	}
	for name, g := range c.Grey {
		m["grey."+name] = g.From.String()
	}
	for _, in := range c.Inbound {
		m["inbound."+in.Service] = in.From.String()
	}
	return m
}

// starting says that nothing is in force yet.
func starting(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", "1")
	refuse(w, r, problem{
		Status: http.StatusServiceUnavailable, Title: "nothing is in force yet", Reason: "starting",
		Detail: "the first configuration is being put in force",
	})
}
