package config

import "time"

// Mesh is everything in force: the configuration and, by service, the endpoints that its sources report. It is immutable
// once handed on; what did not change keeps its pointer, so that a compiler can reuse what it made of it.
type Mesh struct {
	Config    *Config
	Endpoints map[string]*EndpointSet // by service name; absent: no source has answered yet
	Revision  string                  // short hash of the configuration, for metrics and logs
}

// EndpointSet is the full list of one service's endpoints, addresses resolved, in a stable order, each address once.
type EndpointSet struct {
	List    []*Endpoint
	Sources []SourceState
}

// SourceState says how one source of a service is doing.
type SourceState struct {
	Name     string // registry name, or "static"
	Answered bool   // at least once
	Stale    bool   // its last attempt failed: the list is the last good one
	Since    time.Time
	Err      string // of the last attempt, empty when it succeeded
}
