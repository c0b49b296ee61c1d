package resilience

// HTTPStatus returns the status of a local answer with reason r; 0 for None. bad_request may be sharpened by the engine
// (413, 414, 417, 431, 501, 505) and degraded by its switch. 499 appears in the log only.
func (r Reason) HTTPStatus() int {
	switch r {
	case None:
		return 0
	case BadRequest:
		return 400
	case NoRoute:
		return 404
	case Forbidden:
		return 403
	case UpstreamReset, UpstreamProtocol:
		return 502
	case Timeout:
		return 504
	case RateLimited, Quota:
		return 429
	case CallerGone:
		return 499
	}
	return 503
}

// The gRPC status codes that local answers use, by their numbers on the wire.
const (
	grpcCancelled         = 1
	grpcDeadlineExceeded  = 4
	grpcPermissionDenied  = 7
	grpcResourceExhausted = 8
	grpcUnimplemented     = 12
	grpcInternal          = 13
	grpcUnavailable       = 14
)

// GRPCStatus returns the grpc-status of a local answer with reason r; 0 (OK) for None.
func (r Reason) GRPCStatus() int {
	switch r {
	case None:
		return 0
	case BadRequest, UpstreamProtocol:
		return grpcInternal
	case NoRoute:
		return grpcUnimplemented
	case Forbidden:
		return grpcPermissionDenied
	case Timeout:
		return grpcDeadlineExceeded
	case RateLimited, Quota:
		return grpcResourceExhausted
	case CallerGone:
		return grpcCancelled
	}
	return grpcUnavailable
}

// ParseReason returns the reason named s, as String writes it. The empty text is no reason.
func ParseReason(s string) (Reason, bool) {
	for r := None + 1; r < Reasons; r++ {
		if r.String() == s {
			return r, true
		}
	}
	return None, false
}

// Reason returns what a local answer says when an attempt that ended so was the last; None for Answered.
func (k Kind) Reason() Reason {
	return [...]Reason{
		None, ConnectFailed, ConnectTimeout, UpstreamReset, Timeout, UpstreamProtocol, CallerGone, NoEndpoints, Overloaded, BadRequest,
		Overloaded,
	}[k]
}

// reason returns what a local answer says when o was the last attempt. A request of which surely nothing was acted on is
// one that could not be sent.
func (o Outcome) reason() Reason {
	if o.Kind == Reset && !o.Sent {
		return ConnectFailed
	}
	return o.Kind.Reason()
}

// String returns the name of k in logs and scripts.
func (k Kind) String() string {
	return [...]string{
		"answered", "refused", "connect_timed", "reset", "timed_out", "malformed", "gone", "no_endpoint", "saturated", "unfit",
		"too_busy",
	}[k]
}

// String returns the name of v in logs and scripts.
func (v Verb) String() string { return [...]string{"wait", "try", "finish", "fail"}[v] }

// String returns the name of w in logs and metrics.
func (w Why) String() string {
	return [...]string{
		"", "first", "retry", "stale", "exhausted", "budget", "not_retryable", "body", "deadline", "caller", "breaker",
		"pushback", "backup", "dual_send", "backup_cap", "no_other",
	}[w]
}
