// Package telemetry takes one Outcome per exchange and turns it into metrics, latency quantiles and the access log. It
// owns the metric registry and the log writer; it is the only user of metric libraries. Recording allocates nothing and
// never blocks: what cannot be written is dropped and counted. It imports route, balance and resilience for the names
// of reasons. Tests: golden files of the exposition and of log lines, digest property tests, allocation tests.
package telemetry

import (
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

// Direction is which way an exchange went.
type Direction uint8

// The directions.
const (
	Outbound Direction = iota // from our app
	Inbound                   // to our app
)

// String returns the label value of d.
func (d Direction) String() string {
	if d == Inbound {
		return "inbound"
	}
	return "outbound"
}

// Outcome is what happened in one exchange, or one TCP connection. Strings are only valid during Record.
type Outcome struct {
	Series    *Series // counters of the route; nil: none was found (counted under service "")
	Direction Direction
	Protocol  string // "HTTP/1.1", "HTTP/1.0", "tcp", …
	Service   string
	Route     string
	Caller    string // address of the downstream peer
	Method    string
	Host      string
	Path      string // with query, as sent
	Status    int    // sent downstream; 0: none (tcp, or the caller left)
	Reason    resilience.Reason
	Detail    string // which limit, rule or error: one line for a person
	Attempts  int    // 0: nothing was tried
	Retries   int    // by policy
	Replays   int    // on a stale connection, outside the policy
	Backups   int    // beside others: backup requests and dual-sends
	BackupWon bool   // such an attempt gave the answer
	Endpoint  string // of the last attempt
	RequestID string
	TraceID   string
	Start     time.Time
	Queue     time.Duration // waited for admission and for a connection's place
	Connect   time.Duration // of the last attempt; 0: pooled
	FirstByte time.Duration // start to the first byte of the final head
	Total     time.Duration
	BytesIn   int64 // request body, or bytes from downstream
	BytesOut  int64 // response body, or bytes to downstream
	Upgraded  bool
	Fallback  string // what stood in for a failed call: answer, empty, local, stale; empty: nothing did

	Version *Version // of the endpoint; nil: it has none

	GRPC                    resilience.GRPC // status of a gRPC call; NotGRPC: none
	MessagesIn, MessagesOut int64           // of a gRPC call, from and to downstream

	// Ongoing marks a report on an exchange that is not over: a log line with the totals so far, and its bytes are
	// counted; the final Record of the same Outcome value counts the rest.
	Ongoing bool

	countedIn, countedOut int64 // bytes that earlier reports counted
}
