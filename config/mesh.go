package config

import "time"

// Mesh is everything in force: the configuration and, by service, the endpoints that its sources report. It is immutable
// once handed on; what did not change keeps its pointer, so that a compiler can reuse what it made of it.
type Mesh struct {
	Config    *Config
	Endpoints map[string]*EndpointSet // by service name; absent: no source has answered yet
	Revision  string                  // short hash of the configuration, for metrics and logs
}

// EndpointSet is the list of one service's endpoints that are used, addresses resolved, in a stable order, each address once.
type EndpointSet struct {
	List    []*Endpoint
	Sources []SourceState
	Notes   []EndpointNote // what is special about endpoints of sources, whether they are used or not
}

// EndpointNote says why an endpoint is used or not that its source does not just list as well.
type EndpointNote struct {
	Address string
	Source  string
	Used    bool
	Why     string    // maintenance, unhealthy, retained, remembered, from_disk, unreachable, own_listener
	Check   string    // the direct check: alive, dead, unchecked; empty: there is none
	Err     string    // what the check met
	Since   time.Time // of Why
}

// SourceState says how one source of a service is doing.
type SourceState struct {
	Name     string // registry name, or "static"
	Answered bool   // at least once
	Stale    bool   // its last attempt failed: the list is the last good one
	Since    time.Time
	Err      string // of the last attempt, empty when it succeeded

	// Protection is what keeps the list from being used as it is: removal_protection, half_dead or restored; or empty.
	Protection     string
	ProtectedSince time.Time
	ProtectedUntil time.Time // when it ends if nothing changes; zero: not by time alone
	Listed, Known  int       // endpoints on the list, and those that it is measured by
}
