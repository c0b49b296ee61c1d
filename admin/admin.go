// Package admin is the local HTTP API: what is in force and why, and the two things that can be asked of the process as
// such, to drain and to quit. It reads everything and changes nothing else. It owns the sockets of listen.admin,
// listen.health and listen.metrics; what it knows of the process comes through the Process interface, which the
// composition root implements. Tests: the handlers with httptest against a scripted process, the listeners over loopback
// sockets.
package admin

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// Process is what the API shows and steers. Its methods may be called by any goroutine and must not block.
type Process interface {
	// Snapshot is what is in force, nil before the first.
	Snapshot() *snapshot.Snapshot
	// Readiness says whether requests should be sent to us.
	Readiness() Readiness
	// Reloads says how the last attempts to change the configuration went.
	Reloads() Reloads
	// Connections counts the connections of both sides.
	Connections() Connections
	// Apps says how our own apps answer their probes, and Registrations where our services stand in registries.
	Apps() []App
	Registrations() []Registration
	// Drain begins to drain, if that has not begun, and says how far it is.
	Drain() Drain
	// Drained is closed when nothing is left to drain.
	Drained() <-chan struct{}
	// Gate says what the update gate is like; SetGate closes or opens it, with the part of all sidecars that may pull.
	Gate() Gate
	SetGate(closed bool, share float64) Gate
	// Quit drains in a hurry and ends the process.
	Quit() Drain
	// Switches are the degradation switches, by name, and the journal of their changes, oldest first.
	Switches() ([]Switch, []SwitchChange)
	// SetSwitch changes one. The errors are ErrNoSwitch and ErrUnconfirmed, perhaps with more text.
	SetSwitch(name string, w SwitchWrite) (Switch, error)
}

// Readiness is the answer of /ready.
type Readiness struct {
	Ready bool
	// Reason is a short word for why not: starting, draining, registration; app.
	Reason string
	// Detail is a sentence for a person.
	Detail string
	// Waiting lists what is waited for.
	Waiting []Waiting
}

// Waiting is a source that has not answered yet.
type Waiting struct {
	Service string `json:"service"`
	Source  string `json:"source"`
	Error   string `json:"error,omitempty"`
}

// Reloads says how the last attempts to change the configuration went.
type Reloads struct {
	Loaded Reload  // the one in force
	Failed *Reload // the last one that was refused, if it came after the one in force; else nil
	Center *Center // the config centre; nil: none is followed
}

// Center says how the documents of the config centre are doing.
type Center struct {
	Source string `json:"source"`
	Heard  bool   `json:"heard"` // the store has answered since the start, or since it was named
	// Restored is when the documents were kept on disk, while they are those of an earlier run: the store has not answered.
	Restored  *time.Time `json:"restored,omitempty"`
	Documents []Document `json:"documents"`
}

// Document is one document of the config centre.
type Document struct {
	Name     string   `json:"name"`
	Revision uint64   `json:"revision"`
	State    string   `json:"state"` // in_force, restored, kept (an earlier version counts) or refused
	Errors   []string `json:"errors,omitempty"`
}

// Reload is one attempt to put a configuration into force.
type Reload struct {
	Time    time.Time `json:"time"`
	Trigger string    `json:"trigger"` // start, file or SIGHUP
	Sources []string  `json:"sources"` // the paths that were read
	Errors  []Mistake `json:"errors,omitempty"`
}

// Mistake is one reason why a configuration was refused.
type Mistake struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Text    string `json:"text"` // all of it in one line
}

// Drain says how far draining is.
type Drain struct {
	State string `json:"state"` // serving, waiting (for a lease; it serves as ever), draining or drained
	// Cut counts the connections that were cut off because the time was over.
	Cut int `json:"cut"`
}

// Connections counts the connections of both sides.
type Connections struct {
	Downstream []Listener `json:"downstream"`
	Upstream   []Pool     `json:"upstream"`
}

// Listener counts the connections of one listener.
type Listener struct {
	Direction string `json:"direction"`
	Name      string `json:"name"`
	Address   string `json:"address"`
	Open      int    `json:"open"`
	Active    int    `json:"active"`
	Idle      int    `json:"idle"`
}

// Pool counts the connections to one endpoint.
type Pool struct {
	Direction string `json:"direction"`
	Service   string `json:"service"`
	Endpoint  string `json:"endpoint"`
	Open      int    `json:"open"`
	Active    int    `json:"active"`
	Idle      int    `json:"idle"`
	Waiting   int    `json:"waiting"`
}

// api answers requests.
type api struct {
	process  Process
	recorder *telemetry.Recorder
	metrics  http.Handler
	now      func() time.Time
	started  time.Time

	followers *atomic.Int32 // of the events
}

// handler answers one method of one path.
type handler func(http.ResponseWriter, *http.Request)

// full is everything, for listen.admin.
func (a *api) full() *table {
	return &table{
		paths: map[string]methods{
			"/":            {get: a.index},
			"/ready":       {get: a.ready},
			"/live":        {get: a.live},
			"/config":      {get: a.config},
			"/services":    {get: a.services},
			"/explain":     {get: a.explain},
			"/connections": {get: a.connections},
			"/metrics":     {get: a.metrics.ServeHTTP},
			"/events":      {get: a.events},
			"/drain":       {post: a.drain},
			"/update-gate": {get: a.gate, post: a.setGate},
			"/quit":        {post: a.quit},
			"/switches":    {get: a.switches},
		},
		below: map[string]methods{"/services/": {get: a.service}, "/switches/": {get: a.oneSwitch, put: a.setSwitch}, profiles: {get: profile}},
	}
}

// health is what the platform's probes need.
func (a *api) health() *table {
	return &table{open: true, paths: map[string]methods{
		"/ready": {get: a.ready}, "/live": {get: a.live},
		healthCheck: {post: a.grpcCheck}, healthWatch: {post: a.grpcWatch},
	}}
}

// scrape is what a Prometheus needs.
func (a *api) scrape() *table {
	return &table{open: true, paths: map[string]methods{"/metrics": {get: a.metrics.ServeHTTP}}}
}

// index lists what there is.
func (a *api) index(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusOK, map[string]any{"paths": a.full().list()})
}

func (a *api) live(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, struct {
		Live bool `json:"live"`
	}{true})
}

func (a *api) connections(w http.ResponseWriter, _ *http.Request) {
	c := a.process.Connections()
	c.Downstream, c.Upstream = filled(c.Downstream), filled(c.Upstream)
	answer(w, http.StatusOK, c)
}

// filled makes an empty list [] in JSON, not null.
func filled[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
