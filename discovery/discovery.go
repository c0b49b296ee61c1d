// Package discovery turns the configuration and what registries say into one stream of immutable config.Mesh values.
//
// It owns the Source contract and the Merger, the one writer of the mesh: the configuration in force, the last good
// answer of every source for every service and what package guard believes of it, the union of a service's sources, the
// resolved names in addresses. It never opens a socket or a file of its own: sources, direct checks and the memory on disk
// are handed in by the composition root, and the result goes to one callback.
//
// Tests: the merger runs in synctest bubbles against scripted sources; a property test compares it with a naive model;
// a benchmark holds the price of one change at 10 000 endpoints.
package discovery

import (
	"context"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/guard"
)

// Source is one place where endpoints come from: a registry, a folder of files, the DNS.
type Source interface {
	// Run serves until ctx is done, then returns nil once every goroutine it started is gone. An earlier return is a
	// failure of the source: the merger says so for all its services and calls Run again after a pause.
	//
	// want carries the names wanted, sorted and each once; the first value is there when Run begins, a later one replaces
	// it whole. The channel is never closed and only the newest value waits in it. The slice is read-only.
	//
	// report hands one answer on. It may block for as long as the merger is applying, returns early when ctx is done, and
	// may be called from several goroutines, but for one service in order.
	Run(ctx context.Context, want <-chan []string, report func(Update)) error
}

// Refresher is a source that can be asked to look at once, since somebody knows better than its last answer (S-230). It
// must not block, and may be asked while it does not run.
type Refresher interface {
	Refresh(service string)
}

// Update is one answer of a source about one service.
type Update struct {
	// Service is the name as it was wanted. Empty: Err is something of the source that is wrong and that no service in particular
	// is known to suffer from (a file among others); nil when that is over.
	Service string
	// Endpoints is the full set (never a delta); empty means that the source is well and knows none. The slice and what it
	// points to belong to the merger from here on. Addresses may be names: the merger has them resolved. What the registry
	// lists as unfit is in it, with its Health: only so do failed and deregistered endpoints differ.
	Endpoints []*config.Endpoint
	// Unchanged says that the source is well and its answer is the one before; Endpoints is then ignored.
	Unchanged bool
	// Err says that the attempt failed; Endpoints is then ignored and the last good set stays (S-24, S-35).
	Err error
}

// Observer is told what happens, for metrics and logs. Its methods are called from the merger's goroutine and must not
// block. source is a registry's name, or "resolver" for names in addresses where no DNS registry is configured; service is
// the name as the source was asked (for a DNS registry: what is looked up).
type Observer interface {
	// Updated tells of an answer with so many endpoints, and whether it changed anything.
	Updated(source, service string, endpoints int, changed bool)
	// Failed tells of a failed attempt; service is empty when it is about the source and no service in particular, and when the
	// source as a whole stopped and is being restarted.
	Failed(source, service string, err error)
	// Well tells that nothing that is wanted of a source fails, or fails any more.
	Well(source string)
	// Closed tells that a source is no longer configured.
	Closed(source string)
	// Applied tells that a mesh was handed on: how many services changed their endpoints, and how long building and
	// applying took.
	Applied(mesh *config.Mesh, changed int, took time.Duration)
	// Refused tells that the callback refused a mesh; what was in force before still is.
	Refused(err error)
	// Forgot tells that what was kept on disk of a list cannot be used.
	Forgot(source, service string, err error)
	// Guarded tells what is believed of a source's list, when that changed: was is what was told before. service is the
	// configured service, of several that use the list the first by name. The slices are read-only.
	Guarded(source, service string, was, is guard.Decision)
}

// Check is one question whether an endpoint lives that its registry does not vouch for (S-47).
type Check struct {
	Service string // the service that it belongs to: who it should be
	Address string
	Probe   config.Probe // how it is asked
}

// Memory keeps lists over a restart (S-22). Its methods are called from the merger's goroutine: Load may read a small file,
// Save must not block.
type Memory interface {
	// Load returns what was saved of a service by an earlier run, sorted by address, and when; none without an error when
	// nothing was.
	Load(registry *config.Registry, service string) (list []*config.Endpoint, saved time.Time, err error)
	// Save notes the list for later; a list of none is forgotten.
	Save(registry *config.Registry, service string, list []*config.Endpoint)
}

// Wait is something that has not answered yet.
type Wait struct {
	Service string // the configured service
	Source  string // the registry, or "name NAME" for a name in an address
	Err     string // why the first attempt failed; empty when none has
}

type nobody struct{}

func (nobody) Updated(string, string, int, bool)        {}
func (nobody) Failed(string, string, error)             {}
func (nobody) Well(string)                              {}
func (nobody) Closed(string)                            {}
func (nobody) Applied(*config.Mesh, int, time.Duration) {}
func (nobody) Refused(error)                            {}

func (nobody) Forgot(string, string, error) {}

func (nobody) Guarded(string, string, guard.Decision, guard.Decision) {}
